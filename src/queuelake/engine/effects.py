"""What a work queue asks of the world. Performed when the command behind it is durable."""

from __future__ import annotations

from typing import final

from mypy_extensions import mypyc_attr

from queuelake.engine.groups import Consumer, Group
from queuelake.engine.machine import Effect
from queuelake.engine.message import Entry


@final
@mypyc_attr(acyclic=True)
class Deliver(Effect):
    """Send a message to a consumer; `attempt` 1 is the first time."""

    __slots__ = ("attempt", "consumer", "entry", "group", "patient")

    def __init__(
        self, group: Group, consumer: Consumer, entry: Entry, attempt: int, patient: bool
    ) -> None:
        self.group: Group = group
        self.consumer: Consumer = consumer
        self.entry: Entry = entry
        self.attempt: int = attempt
        self.patient: bool = patient  # leaves when its own command is durable, never before

    def is_claimed(self) -> bool:
        """Whether the store knows already that this may have been handed out."""
        entry = self.entry
        return not self.patient and entry.seq < self.group.lanes[entry.partition].claimed


@final
class DeadLetter(Effect):
    """Copy a message to the dead letters, and settle it as BURIED when the copy is stored."""

    __slots__ = ("attempts", "entry", "first_ms", "group", "reason", "words")

    def __init__(
        self, group: str, entry: Entry, reason: str, attempts: int, first_ms: int, words: str
    ) -> None:
        self.group: str = group
        self.entry: Entry = entry
        self.reason: str = reason
        self.attempts: int = attempts
        self.first_ms: int = first_ms  # when it was handed out first; 0: never
        self.words: str = words  # why, as the consumer put it


@final
class Load(Effect):
    """Read entries of a partition from the store, from this sequence on: a `Loaded` command."""

    __slots__ = ("first", "partition")

    def __init__(self, partition: int, first: int) -> None:
        self.partition: int = partition
        self.first: int = first


@final
class Rank(Effect):
    """Find the stored entries with a priority of their own, for this group: `Ranked` commands."""

    __slots__ = ("group",)

    def __init__(self, group: str) -> None:
        self.group: str = group


@final
class GroupGone(Effect):
    """The group was forgotten: whatever is kept for it may go."""

    __slots__ = ("group", "group_id")

    def __init__(self, group: str, group_id: int) -> None:
        self.group: str = group
        self.group_id: int = group_id
