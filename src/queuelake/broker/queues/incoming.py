"""What a publisher says about a message for a queue: its properties, read once.

User properties with a meaning for queues are taken out of the list; those which only the broker may
set are dropped, so that no consumer takes them for the broker's word. All others travel on as they
are. An expiry interval is put first, where it is found without searching when it has to be counted
down.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from queuelake.engine.message import PRIORITY_DEFAULT, PRIORITY_MAX
from queuelake.errors import RefusedError
from queuelake.protocol import properties as p
from queuelake.protocol import reasons
from queuelake.protocol.wire import Reader

USER: Final = p.USER_PROPERTY
EXPIRY: Final = b"\x02"
DELAY_MS_MAX: Final = 10 * 365 * 86_400_000
DIGITS_MAX: Final = 18
DIGEST_BYTES: Final = 16  # of a message id, for what is remembered of it

_PARTITION_KEY: Final = 1
_MESSAGE_ID: Final = 2
_DELAY_MS: Final = 3
_DELIVER_AT: Final = 4
_PRIORITY: Final = 5
_GROUP_ID: Final = 6
_REASON: Final = 7
_RESERVED: Final = 8

PARTITION_KEY: Final = b"partition-key"
MESSAGE_ID: Final = b"message-id"
GROUP_ID: Final = b"group-id"
KEY_BYTES_MIN: Final = 5
KEY_BYTES_MAX: Final = 14
_MEANINGS: Final = {
    PARTITION_KEY: _PARTITION_KEY,
    MESSAGE_ID: _MESSAGE_ID,
    b"delay-ms": _DELAY_MS,
    b"deliver-at": _DELIVER_AT,
    b"priority": _PRIORITY,
    GROUP_ID: _GROUP_ID,
    b"reason": _REASON,
    b"queue": _RESERVED,
    b"partition": _RESERVED,
    b"offset": _RESERVED,
    b"delivery-count": _RESERVED,
    b"x-source-topic": _RESERVED,
}


@final
class Incoming:
    """The properties of one PUBLISH to a queue."""

    __slots__ = (
        "_delay",
        "_deliver_at",
        "_priority",
        "expiry_ms",
        "group_id",
        "has_timing",
        "key",
        "message_id",
        "properties",
        "reason",
    )

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """One object serves all publishes, one after the other."""
        self.key: bytes = b""
        self.message_id: bytes = b""
        self.group_id: bytes = b""
        self.reason: bytes = b""
        self.properties: bytes = b""  # what travels on, encoded
        self.expiry_ms: int = -1  # how long it may live; -1: it does not say
        self.has_timing: bool = False  # one of the next three is given
        self._delay: bytes = b""
        self._deliver_at: bytes = b""
        self._priority: bytes = b""

    def priority(self) -> int:
        """Clamped to what there is.

        Raises:
            RefusedError: it is no number.
        """
        if not self._priority:
            return PRIORITY_DEFAULT
        return min(max(0, _number("priority", self._priority)), PRIORITY_MAX)

    def due_ms(self, now_ms: int) -> int:
        """When it may be seen first; 0: at once.

        Raises:
            RefusedError: it is no number, or a delay of more than ten years.
        """
        if self._delay:
            due_ms = now_ms + self.delay_ms()
        elif self._deliver_at:
            due_ms = moment("deliver-at", self._deliver_at, now_ms)
        else:
            return 0
        return due_ms if due_ms > now_ms else 0

    def delay_ms(self) -> int:
        delay_ms = _number("delay-ms", self._delay) if self._delay else 0
        if not 0 <= delay_ms <= DELAY_MS_MAX:
            raise refused("delay-ms", self._delay, f"0..{DELAY_MS_MAX}")
        return delay_ms


def read_incoming(found: Incoming, body: bytes, payload_at: int, expiry_at: int) -> None:
    """Read the properties of a PUBLISH; `body` as in `packets.Publish`, checked by the decoder."""
    found.forget()
    if payload_at < 2:
        return
    at: i64 = _after_varint(body)
    start: i64 = at  # of what travels on and is not in `kept`
    stop: i64 = payload_at
    kept: list[bytes] | None = None
    if expiry_at:
        found.expiry_ms = 1000 * Reader(body, expiry_at, payload_at).u32()
        kept = [EXPIRY, body[expiry_at : expiry_at + 4]]
    while at < stop:
        end: i64
        if body[at] != USER:
            end = skip_property(body, at)
            travels = at + 1 != expiry_at
        else:
            value_at = at + 5 + _u16(body, at + 1)
            end = value_at + _u16(body, value_at - 2)
            meaning = _meaning(body, at + 3, value_at - 2)
            travels = meaning == 0 or not _take(found, meaning, body[value_at:end])
        if not travels:
            if start < at:
                if kept is None:
                    kept = []
                kept.append(body[start:at])
            start = end
        at = end
    if kept is not None:
        kept.append(body[start:stop])
        found.properties = b"".join(kept)
    elif start < stop:
        found.properties = body[start:stop]


def _u16(body: bytes, at: i64) -> i64:
    high: i64 = body[at]
    low: i64 = body[at + 1]
    return high << 8 | low


def _meaning(body: bytes, at: i64, end: i64) -> int:
    """What a user property says whose key is `body[at:end]`; 0: nothing to us."""
    size = end - at
    if not KEY_BYTES_MIN <= size <= KEY_BYTES_MAX:
        return 0
    # These two come with each message and each settlement.
    if size == len(PARTITION_KEY) and _is_at(PARTITION_KEY, body, at):
        return _PARTITION_KEY
    if size == len(MESSAGE_ID) and _is_at(MESSAGE_ID, body, at):
        return _MESSAGE_ID
    if size == len(GROUP_ID) and _is_at(GROUP_ID, body, at):
        return _GROUP_ID
    return _MEANINGS.get(body[at:end], 0)


def _is_at(key: bytes, body: bytes, at: i64) -> bool:
    """For short keys, cheaper than to cut them out and compare."""
    size: i64 = len(key)
    place: i64 = 0
    while place < size:
        if key[place] != body[at + place]:
            return False
        place += 1
    return True


def _take(found: Incoming, meaning: int, value: bytes) -> bool:
    """Note what the property says; True: it does not travel on."""
    if meaning == _PARTITION_KEY:
        found.key = value
        return False
    if meaning == _MESSAGE_ID:
        found.message_id = value
        return True
    if meaning == _DELAY_MS:
        found._delay = value
        found.has_timing = True
        return False
    if meaning == _DELIVER_AT:
        found._deliver_at = value
        found.has_timing = True
        return False
    if meaning == _PRIORITY:
        found._priority = value
        found.has_timing = True
        return False
    if meaning == _GROUP_ID:
        found.group_id = value
        return True
    if meaning == _REASON:
        found.reason = value
        return False
    return True


def _after_varint(body: bytes) -> int:
    at = 0
    while body[at] & 0x80:
        at += 1
    return at + 1


def skip_property(body: bytes, at: int) -> int:
    """Where the property behind this one begins; only those of a PUBLISH occur."""
    kind = p.TYPES[body[at]]
    if kind == p.PAIR:
        at += 3 + (body[at + 1] << 8 | body[at + 2])
        return at + 2 + (body[at] << 8 | body[at + 1])
    if kind == p.FLAG:
        return at + 2
    if kind == p.U16:
        return at + 3
    if kind == p.U32:
        return at + 5
    assert kind == p.STRING or kind == p.BINARY
    return at + 3 + (body[at + 1] << 8 | body[at + 2])


def moment(name: str, value: bytes, now_ms: int) -> int:
    """A time in milliseconds since 1970.

    Raises:
        RefusedError: it is no number, or in more than ten years.
    """
    due_ms = _number(name, value)
    if due_ms > now_ms + DELAY_MS_MAX:
        raise refused(name, value, "a time within ten years")
    return due_ms


def _number(name: str, value: bytes) -> int:
    digits = value[1:] if value.startswith(b"-") else value
    if not digits.isdigit() or len(digits) > DIGITS_MAX:
        raise refused(name, value, f"a whole number of at most {DIGITS_MAX} digits")
    return int(value)


def refused(name: str, value: bytes, allowed: str) -> RefusedError:
    shown = value[:64].decode("utf-8", "replace")
    return RefusedError.because(
        reasons.IMPLEMENTATION_SPECIFIC_ERROR, f"{name} = {shown!r}: allowed: {allowed}"
    )


def digits(text: bytes, end: i64) -> tuple[i64, i64]:
    """The number before `end`, and where the colon in front of it stands; 0: there is none."""
    value: i64 = 0
    scale: i64 = 1
    at = end - 1
    while at > 0:
        digit: i64 = text[at]
        digit -= 48
        if digit == 10 and at < end - 1:  # a colon
            return value, at
        if not 0 <= digit <= 9 or end - at > DIGITS_MAX:
            break
        value += digit * scale
        scale *= 10
        at -= 1
    return 0, 0
