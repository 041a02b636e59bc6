"""Consumer groups: who is in, which partitions are whose, how much each may hold."""

from __future__ import annotations

from typing import Final, final

from queuelake.engine.lane import Lane
from queuelake.engine.message import Entry
from queuelake.engine.partitioning import fnv1a, ranges

GROUP: Final = ""  # the one group of a message queue


@final
class Consumer:
    """A member of a group."""

    __slots__ = ("hash", "held", "limit", "name", "prefetch", "tag", "turn", "unsent")

    def __init__(self, name: str, prefetch: int, tag: int) -> None:
        self.name: str = name
        self.hash: int = fnv1a(name.encode())
        self.prefetch: int = prefetch
        self.tag: int = tag
        self.held: int = 0
        self.limit: int = 0  # how much it may hold after the dispatch under way
        self.turn: int = 0  # when it was served last, where consumers take turns
        self.unsent: int = 0  # in the outbox


@final
class Group:
    """It sees every message; a message is in the hands of one of its consumers at a time."""

    __slots__ = (
        "absent_ms",
        "consumers",
        "derived",
        "dirty",
        "id",
        "is_ranked",
        "lanes",
        "name",
        "order",
        "pattern",
        "ranked",
        "turn",
        "unsettled",
    )

    def __init__(self, name: str, group_id: int, derived: bool, pattern: bytes) -> None:
        self.name: str = name
        self.id: int = group_id  # never used again for another group of this queue
        self.derived: bool = derived  # its name comes from a client id
        self.pattern: bytes = pattern
        self.lanes: list[Lane] = []
        self.consumers: dict[str, Consumer] = {}
        self.order: list[Consumer] = []  # by name
        self.absent_ms: int = 0  # since when it has no consumer; 0: it has one
        self.unsettled: int = 0  # messages this group still needs
        # Messages with a priority of their own, a heap: rank, time, partition, sequence.
        self.ranked: list[tuple[int, int, int, int, Entry]] = []
        self.is_ranked: bool = False  # stored messages with a priority were looked for
        self.turn: int = 0  # whose turn it is
        self.dirty: bool = True

    def rebalance(self) -> None:
        """Assign contiguous ranges of partitions to the consumers in order of their names.

        What a former owner holds stays with it; the new one gets nothing of that partition
        before it is settled or has timed out.
        """
        self.order = [self.consumers[name] for name in sorted(self.consumers)]
        for lane in self.lanes:
            lane.owner = None
        if not self.order:
            return
        shares = ranges(len(self.lanes), len(self.order))
        for consumer, (first, count) in zip(self.order, shares, strict=True):
            for number in range(first, first + count):
                self.lanes[number].owner = consumer

    def is_out(self, number: int, seq: int, attempt: int) -> bool:
        """Whether this attempt at a message is in the hands of a consumer."""
        held = self.lanes[number].held.get(seq)
        return held is not None and held.attempt == attempt

    def settle(self, lane: Lane, seq: int) -> None:
        lane.settle(seq)
        self.unsettled -= 1
