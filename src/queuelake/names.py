"""The grammar of `$queue/...` and `$q/...` topics: from a topic to what is meant by it. Pure.

    $queue/{name}                     publish: enqueue; subscribe: join a group
    $queue/{name}/{pattern}           subscribe: only what matches, of a queue with sublevels
    $queue/{name}/$ack|$nack|$reject  publish: settle one delivery
    $queue/{name}/$fetch              publish: get what was deferred, of a quorum queue
    $queue/{name}/$config             publish: configure
    $queue/dlq/{name}                 the dead letters of {name}
    $queue/responses/{id}             the reply to one request

    $q/{filter}, $queue//{filter}     subscribe: the message queue over this filter, without a name
    $queue/{name}, .../{filter}       subscribe: the message queue of this name

`{name}` has one or more levels, none of them empty and none beginning with `$`. Which queue a
longer topic belongs to depends on the queues there are, so it is not decided here.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from queuelake.errors import RefusedError

PREFIX: Final = b"$queue/"
MQ_PREFIX: Final = b"$q/"
MQ_PREFIXES: Final = (MQ_PREFIX, b"$queue//")  # of filters which are in the address whole
DEAD_LETTERS: Final = "dlq/"
RESPONSES: Final = "responses/"
NAME_BYTES_MAX: Final = 400

ENQUEUE: Final = 0
SETTLE_ACK: Final = 1
SETTLE_NACK: Final = 2
SETTLE_REJECT: Final = 3
CONFIGURE: Final = 4
FETCH: Final = 5

TOPIC_FILTER_INVALID: Final = 0x8F

_OPERATIONS: Final = {
    b"$ack": SETTLE_ACK,
    b"$nack": SETTLE_NACK,
    b"$reject": SETTLE_REJECT,
    b"$config": CONFIGURE,
    b"$fetch": FETCH,
}


@mypyc_attr(native_class=False)  # a compiled class would show its base's reason code
class BadAddressError(RefusedError):
    """The topic is below `$queue/` but means nothing there."""

    reason_code = 0x90


@final
class QueueAddress:
    """What a publish to a `$queue/` topic asks for."""

    __slots__ = ("name", "operation")

    def __init__(self, name: str, operation: int) -> None:
        self.name: str = name
        self.operation: int = operation


def parse_publish(topic: bytes) -> QueueAddress:
    """Read a topic below `$queue/`.

    Raises:
        BadAddressError: the name is none, or a settle suffix is not the last level.
    """
    levels = topic[len(PREFIX) :].split(b"/")
    operation = _OPERATIONS.get(levels[-1], ENQUEUE)
    if operation != ENQUEUE:
        levels.pop()
    return QueueAddress(check_name(b"/".join(levels)), operation)


def parse_subscribe(topic_filter: bytes) -> tuple[str, bytes]:
    """Read a filter below `$queue/`: the name before the first wildcard level, and the rest.

    Raises:
        BadAddressError: there is no such name; its reason code is that of a filter.
    """
    levels = topic_filter[len(PREFIX) :].split(b"/")
    end = 0
    while end < len(levels) and b"+" not in levels[end] and b"#" not in levels[end]:
        end += 1
    mistake = name_mistake(b"/".join(levels[:end]))
    if not mistake and any([level.startswith(b"$") for level in levels[end:]]):
        mistake = "a level of a filter may not begin with '$'"
    if mistake:
        shown = topic_filter.decode("utf-8", "replace")
        raise BadAddressError.because(TOPIC_FILTER_INVALID, f"{shown!r}: {mistake}")
    return b"/".join(levels[:end]).decode(), b"/".join(levels[end:])


def parse_message_queue(topic_filter: bytes) -> tuple[str, str]:
    """The name of the message queue a subscription means, and its filter where that is told."""
    text = topic_filter.decode()
    for prefix in MQ_PREFIXES:
        if topic_filter.startswith(prefix):
            inner = text[len(prefix) :]
            return f"/{inner}", inner
    name, _, inner = text.removeprefix("$queue/").partition("/")
    return name, inner


def queue_name_from_path(segment: str) -> str:
    """The queue a REST path means: `tasks/image`, `$queue/tasks/image` or `$queue$tasks$image`.

    Raises:
        BadAddressError: it is no queue's name.
    """
    if segment.startswith("$queue$"):
        segment = segment[len("$queue$") :].replace("$", "/")
    return bare_name(segment)


def bare_name(text: str) -> str:
    """A queue's name, written with or without `$queue/` in front of it.

    Raises:
        BadAddressError: it is no queue's name.
    """
    # A lone surrogate, which JSON can carry, is no UTF-8: it becomes a name_mistake, not a crash.
    return check_name(text.removeprefix("$queue/").encode("utf-8", "surrogatepass"))


def check_name(name: bytes) -> str:
    """A queue's name as text, or a refusal which says why it is none."""
    mistake = name_mistake(name)
    if mistake:
        shown = name[: NAME_BYTES_MAX + 1].decode("utf-8", "replace")
        raise BadAddressError(f"queue name {shown!r}: {mistake}")
    return name.decode()


def name_mistake(name: bytes) -> str:
    """Why this is no queue's name, or "" when it is one."""
    if not name:
        return "is empty"
    # A queue with the longest name has dead letters too.
    limit = NAME_BYTES_MAX + (len(DEAD_LETTERS) if name.startswith(b"dlq/") else 0)
    if len(name) > limit:
        return f"has {len(name)} bytes, the limit is {limit}"
    if name in (b"dlq", b"responses"):
        return "is reserved; a name must follow it"
    for level in name.split(b"/"):
        if not level:
            return "has an empty level"
        if level.startswith(b"$"):
            return "a level may begin with '$' only as the last, $ack, $nack, $reject or $config"
        if b"+" in level or b"#" in level:
            return "holds a wildcard"
        if b"\0" in level:
            return "holds a null character"
    try:
        name.decode()
    except UnicodeDecodeError:
        return "is not UTF-8"
    return ""


def address(name: str) -> str:
    """How people and clients see a queue."""
    return f"$queue/{name}"


def dead_letter_name(name: str) -> str:
    """Where the messages of a queue go which nobody could process, unless it says another place."""
    return DEAD_LETTERS + name


def dead_letter_name_of_filter(name: str) -> str:
    """The same for a message queue, whose name may be `/` and a topic filter."""
    levels = name.removeprefix("/").split("/")
    escaped = [one.replace("%", "%25").replace("+", "%2B").replace("#", "%23") for one in levels]
    return DEAD_LETTERS + "/".join([level or "%2F" for level in escaped])


def filters_of_dead_letter_name(letters: str) -> list[str]:
    """The other way: message queues, by name, whose dead letters would be there."""
    levels = letters.removeprefix(DEAD_LETTERS).split("/")
    plain = [
        "" if one == "%2F" else one.replace("%23", "#").replace("%2B", "+").replace("%25", "%")
        for one in levels
    ]
    name = "/".join(plain)
    return [one for one in (name, f"/{name}") if dead_letter_name_of_filter(one) == letters]


def is_dead_letter(name: str) -> bool:
    return name.startswith(DEAD_LETTERS)


def is_response(name: str) -> bool:
    return name.startswith(RESPONSES)
