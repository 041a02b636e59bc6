"""What can be asked of a work queue."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from queuelake.engine.machine import Command
from queuelake.engine.message import Entry
from queuelake.engine.policy.settings import Policy

ACK: Final = 0
NACK: Final = 1
REJECT: Final = 2
BURIED: Final = 3  # its copy among the dead letters is stored

# Where a new group starts; a sequence otherwise.
FROM_EARLIEST: Final = -1
FROM_LATEST: Final = -2
FROM_LAST: Final = -3  # the last message which is there

# Why a message is enqueued.
PUBLISHED: Final = 0
ACCEPTED: Final = 1  # confirmed before, as another queue's message: no limit applies
DUE: Final = 2  # accepted with a delay which is over


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class Enqueue(Command):
    """Append a message; the machine gives it its sequence."""

    __slots__ = (
        "cause",
        "dedupe",
        "entry",
        "number",
        "publisher",
        "replaced_size",
        "replaces",
    )

    def __init__(
        self,
        entry: Entry,
        dedupe: bytes = b"",
        cause: int = PUBLISHED,
        publisher: str = "",
        number: int = 0,
        replaces: int = 0,
        replaced_size: int = 0,
    ) -> None:
        self.entry: Entry = entry
        self.dedupe: bytes = dedupe  # hash of producer and message id, empty: none
        self.cause: int = cause
        self.publisher: str = publisher  # who numbers its messages, so that none comes twice
        self.number: int = number  # 0: not numbered
        # The message with the same key, as far as the caller knows; 0: none.
        self.replaces: int = replaces
        self.replaced_size: int = replaced_size  # the machine may have forgotten it


@final
class Extend(Command):
    """Append so many messages to each partition, all or none; the store has them already."""

    __slots__ = ("counts", "delayed", "has_priorities", "largest", "size")

    def __init__(
        self,
        counts: list[int],
        largest: int,
        size: int,
        delayed: int = 0,
        has_priorities: bool = False,
    ) -> None:
        self.counts: list[int] = counts
        self.largest: int = largest  # bytes of the longest payload
        self.size: int = size  # bytes of all payloads
        self.delayed: int = delayed  # which are to be enqueued later, each by itself
        self.has_priorities: bool = has_priorities


@final
class Accept(Command):
    """A message which is to be enqueued later: is it new, and is there room?"""

    __slots__ = ("dedupe", "size")

    def __init__(self, size: int, dedupe: bytes) -> None:
        self.size: int = size
        self.dedupe: bytes = dedupe


@final
class Join(Command):
    """A consumer joins a group, which is made when it is new."""

    __slots__ = ("consumer", "derived", "group", "pattern", "prefetch", "replays", "starts", "tag")

    def __init__(
        self,
        group: str,
        consumer: str,
        prefetch: int,
        derived: bool = False,
        starts: list[int] | None = None,
        pattern: bytes = b"",
        tag: int = 0,
        replays: bool = False,
    ) -> None:
        self.group: str = group
        self.consumer: str = consumer
        self.replays: bool = replays  # a group which is known goes back to `starts`
        self.prefetch: int = prefetch  # 0: as the queue says
        self.derived: bool = derived  # its name was made from a client id
        # Where it begins, for each partition or one for all; None: at the earliest, if it is new.
        self.starts: list[int] | None = starts
        self.pattern: bytes = pattern  # only messages whose `rest` matches
        self.tag: int = tag  # the caller's own number for this consumer, handed back in effects


@final
class Leave(Command):
    """A consumer leaves its group. `gone`: it cannot settle any more, what it holds returns."""

    __slots__ = ("consumer", "gone", "group")

    def __init__(self, group: str, consumer: str, gone: bool) -> None:
        self.group: str = group
        self.consumer: str = consumer
        self.gone: bool = gone


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class Settle(Command):
    """The outcome of one delivery."""

    __slots__ = ("consumer", "delay_ms", "group", "outcome", "partition", "reason", "seq")

    def __init__(
        self,
        group: str,
        consumer: str,
        partition: int,
        seq: int,
        outcome: int,
        delay_ms: int = 0,
        reason: str = "",
    ) -> None:
        self.group: str = group
        self.consumer: str = consumer
        self.partition: int = partition
        self.seq: int = seq
        self.outcome: int = outcome
        self.delay_ms: int = delay_ms
        self.reason: str = reason  # of a reject, in the words of the consumer


@final
class Loaded(Command):
    """Entries read back from the store, in order, starting where the machine asked."""

    __slots__ = ("entries", "first", "partition")

    def __init__(self, partition: int, first: int, entries: list[Entry]) -> None:
        self.partition: int = partition
        self.first: int = first
        self.entries: list[Entry] = entries


@final
class Ranked(Command):
    """Every stored entry of a partition with a priority of its own, for a group which is new."""

    __slots__ = ("entries", "group", "partition")

    def __init__(self, group: str, partition: int, entries: list[Entry]) -> None:
        self.group: str = group
        self.partition: int = partition
        self.entries: list[Entry] = entries


@final
class Dispatch(Command):
    """Hand out what can be handed out: once for each batch of other commands.

    A few messages at a time cost as much to send as many. So between commits only those get more
    who have settled half of what they may hold (`in_bulk`); a commit leaves no credit unused.
    """

    __slots__ = ("in_bulk",)

    def __init__(self, in_bulk: bool = False) -> None:
        self.in_bulk: bool = in_bulk


@final
class Tick(Command):
    """Time has passed: timeouts, retries, expiries."""

    __slots__ = ()


@final
class Expire(Command):
    """Entries which were found in the store and whose time is over."""

    __slots__ = ("entries",)

    def __init__(self, entries: list[Entry]) -> None:
        self.entries: list[Entry] = entries


@final
class Configure(Command):
    __slots__ = ("policy",)

    def __init__(self, policy: Policy) -> None:
        self.policy: Policy = policy


@final
class Purge(Command):
    """Drop every message nobody holds."""

    __slots__ = ()


@final
class Remove(Command):
    """Take one message out for every group, whoever has it: redriven, or compacted away."""

    __slots__ = ("partition", "seq")

    def __init__(self, partition: int, seq: int) -> None:
        self.partition: int = partition
        self.seq: int = seq


@final
class Truncate(Command):
    """Forget the messages of a partition up to a sequence: they were kept long enough."""

    __slots__ = ("partition", "size", "upto")

    def __init__(self, partition: int, upto: int, size: int = 0) -> None:
        self.partition: int = partition
        self.upto: int = upto
        self.size: int = size  # payload bytes of those which are there, where that is counted


@final
class ForgetGroup(Command):
    __slots__ = ("group",)

    def __init__(self, group: str) -> None:
        self.group: str = group
