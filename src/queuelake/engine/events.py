"""Steps in the lives of messages, for the table `events`: which of them a machine notes down.

They say what happened and are no part of a machine's state, as its counters are not: whoever has
the store takes them with each commit.
"""

from __future__ import annotations

from typing import Final, final

# What a queue keeps.
OFF: Final = 0
FAILURES: Final = 1
ALL: Final = 2

# Steps, by their place in `tables.STEPS`.
ENQUEUED: Final = 0
DELIVERED: Final = 1
ACKED: Final = 2
NACKED: Final = 3
REJECTED: Final = 4
TIMED_OUT: Final = 5
DEAD_LETTERED: Final = 6
EXPIRED: Final = 7
DROPPED: Final = 8

REASON_CHARACTERS_MAX: Final = 1000
RANGE_MIN: Final = 1000  # messages: fewer are told of one by one


@final
class EventRange:
    """The same step of many messages, one after the other; `at` events came before it."""

    __slots__ = ("at", "first", "last", "partition", "reason", "step", "time_ms")

    def __init__(
        self, at: int, step: int, time_ms: int, partition: int, first: int, last: int, reason: str
    ) -> None:
        self.at: int = at
        self.step: int = step
        self.time_ms: int = time_ms
        self.partition: int = partition
        self.first: int = first
        self.last: int = last
        self.reason: str = reason


@final
class Events:
    """As columns, in the order in which things happened; a million messages which come, or are
    purged, at once are one range among them."""

    __slots__ = (
        "attempts",
        "consumers",
        "groups",
        "partitions",
        "ranges",
        "reasons",
        "seqs",
        "steps",
        "times_ms",
    )

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.times_ms: list[int] = []
        self.partitions: list[int] = []
        self.seqs: list[int] = []
        self.attempts: list[int] = []
        self.groups: list[str] = []
        self.consumers: list[str] = []
        self.reasons: list[str] = []
        self.ranges: list[EventRange] = []

    def add(
        self,
        step: int,
        now_ms: int,
        partition: int,
        seq: int,
        group: str = "",
        consumer: str = "",
        attempt: int = 0,
        reason: str = "",
    ) -> None:
        self.steps.append(step)
        self.times_ms.append(now_ms)
        self.partitions.append(partition)
        self.seqs.append(seq)
        self.attempts.append(attempt)
        self.groups.append(group)
        self.consumers.append(consumer)
        self.reasons.append(reason[:REASON_CHARACTERS_MAX])

    def add_range(
        self, step: int, now_ms: int, partition: int, first: int, last: int, reason: str = ""
    ) -> None:
        """Of the messages from `first` to `last`."""
        if last - first + 1 >= RANGE_MIN:
            at = len(self.steps)
            self.ranges.append(EventRange(at, step, now_ms, partition, first, last, reason))
            return
        for seq in range(first, last + 1):
            self.add(step, now_ms, partition, seq, reason=reason)

    def only(self, step: int, without: set[str]) -> Events:
        """Those of one step, without those of some consumers."""
        kept = Events()
        for n, found in enumerate(self.steps):
            if found == step and self.consumers[n] not in without:
                kept.add(
                    step,
                    self.times_ms[n],
                    self.partitions[n],
                    self.seqs[n],
                    self.groups[n],
                    self.consumers[n],
                    self.attempts[n],
                    self.reasons[n],
                )
        return kept

    def __len__(self) -> int:
        return len(self.steps) + sum([one.last - one.first + 1 for one in self.ranges])

    def extend(self, later: Events) -> None:
        """What came after these."""
        for one in later.ranges:
            at = len(self.steps) + one.at
            self.ranges.append(
                EventRange(
                    at, one.step, one.time_ms, one.partition, one.first, one.last, one.reason
                )
            )
        self.steps += later.steps
        self.times_ms += later.times_ms
        self.partitions += later.partitions
        self.seqs += later.seqs
        self.attempts += later.attempts
        self.groups += later.groups
        self.consumers += later.consumers
        self.reasons += later.reasons
