"""The state of a work queue, and what every command does with it: settle, release, count.

The modules beside this one hold the commands by subject: `publishing`, `consuming`, `settling`,
`upkeep`. A kind of queue puts them together.
"""

from __future__ import annotations

from typing import Final

from queuelake.engine.counters import Counters
from queuelake.engine.events import Events
from queuelake.engine.expiry import Expiry
from queuelake.engine.groups import Group
from queuelake.engine.lane import Held, Lane
from queuelake.engine.machine import Command, Effect, Meta
from queuelake.engine.message import Entry
from queuelake.engine.partition import Partition
from queuelake.engine.policy.settings import BLOCKS_KEY, NONE, Policy
from queuelake.engine.publishers import MessageIds, PublisherSession
from queuelake.engine.settled import Settled

# Answers to a command, MQTT reasons where a client hears them.
DUPLICATE: Final = 0x01  # stored before: to be acknowledged, not stored again
OUT_OF_ORDER: Final = 0x02  # numbered too far ahead: parked, or to be sent again
NOT_FOUND: Final = 0x10
NOT_HELD: Final = 0x87
TOO_LARGE: Final = 0x95
FULL: Final = 0x97

REJECTED: Final = "rejected"
EXPIRED: Final = "expired"
# Why a message was dropped.
LIMIT: Final = "limit"
PURGED: Final = "purged"

PUBLISHERS_MAX: Final = 100_000  # which number their messages
WINDOW_ENTRIES_MAX: Final = 8192  # of all partitions together


class QueueState:
    """One queue. `reply` is the answer to the last command."""

    __slots__ = (
        "bytes",
        "counters",
        "delayed",
        "dice",
        "events",
        "expiry",
        "freed",
        "groups",
        "ids",
        "loose",
        "more",
        "next_group_id",
        "now_ms",
        "partitions",
        "policy",
        "publishers",
        "purged",
        "reply",
        "returned",
        "uses_priorities",
    )

    def __init__(self, policy: Policy) -> None:
        self.policy: Policy = policy
        self.partitions: list[Partition] = []
        self.groups: dict[str, Group] = {}
        self.next_group_id: int = 1
        self.publishers: dict[str, PublisherSession] = {}
        self.ids: MessageIds = MessageIds()
        self.expiry: Expiry = Expiry()
        self.delayed: int = 0  # accepted, not yet enqueued
        self.loose: int = 0  # messages stored while there is no group
        self.uses_priorities: bool = False
        self.returned: int = 0  # how many messages stood in line to return
        self.now_ms: int = 0
        self.bytes: int = 0  # payloads of what a message queue has not settled
        self.dice: int = 1  # where the generator of a message queue is
        self.counters: Counters = Counters()
        self.events: Events = Events()  # since somebody took them
        # Answers to the last command.
        self.reply: int = 0
        self.purged: int = 0
        self.more: bool = False  # a dispatch stopped at its limit
        # Key and sequence of what left a last-value queue; whoever has the store takes them.
        self.freed: list[tuple[int, int]] = []
        self.grow(policy.partitions)

    def apply(self, meta: Meta, command: Command) -> list[Effect]:
        """Change the state as the command says; returns what is to be done when it is durable."""
        raise NotImplementedError

    def in_order(self) -> bool:
        return self.policy.ordering != NONE

    def blocks_keys(self) -> bool:
        return self.policy.retry_blocks == BLOCKS_KEY

    def depth(self) -> int:
        """Messages which the group furthest behind still needs; without a group, all of them."""
        deepest = self.loose
        for group in self.groups.values():
            if group.unsettled > deepest:
                deepest = group.unsettled
        return deepest + self.delayed

    def signs(self) -> int:
        """Another number when something has happened: most of these only rise."""
        one = self.counters
        happened = one.enqueued + one.delivered + one.acked + one.nacked + one.timed_out
        happened += one.expired + one.dropped + one.purged + one.refused + one.duplicates
        consumers = (self.delayed + self.policy.depth_max) % 1_000_003
        for group in self.groups.values():
            consumers = (31 * consumers + 1 + len(group.consumers)) % 1_000_003
        return happened * 1_000_003 + consumers

    def is_over(self) -> bool:
        """Whether the oldest messages have to go because there are too many."""
        policy = self.policy
        if not policy.drop_head or not policy.depth_max or policy.is_stream:
            return False
        return self.depth() > policy.depth_max

    def stored(self, partition: Partition) -> int:
        """How many messages of a partition some group still needs."""
        if not self.groups or self.policy.is_stream:
            return partition.stored()
        lanes = [group.lanes[partition.number] for group in self.groups.values()]
        if len(lanes) == 1:
            return lanes[0].unsettled(partition.last)
        # The lane furthest behind needs everything from its `next` on.
        behind = min([lane.next for lane in lanes])
        needed: set[int] = set()
        for lane in lanes:
            needed.update(lane.settled.unsettled(partition.gone.upto + 1, behind - 1))
        return len(needed) + partition.last - behind + 1

    def is_waiting(self) -> bool:
        """Whether time alone can change something: this queue may not sleep."""
        if self.delayed or self.expiry.is_waiting() or self.is_over():
            return True
        for group in self.groups.values():
            for lane in group.lanes:
                if lane.held or lane.dying or (lane.waiting and group.consumers):
                    return True
        return False

    def remember(self, publisher: str, session: PublisherSession) -> None:
        """A publisher sent a number; whoever was silent longest is forgotten."""
        self.publishers.pop(publisher, None)
        self.publishers[publisher] = session
        if len(self.publishers) > PUBLISHERS_MAX:
            del self.publishers[next(iter(self.publishers))]

    def put_return(self, lane: Lane, entry: Entry) -> None:
        """In line, to be handed out before anything new."""
        self.returned += 1
        lane.put_return(entry, self.in_order(), self.returned)

    def let_go(self, lane: Lane, held: Held) -> None:
        """The consumer has it no more."""
        key = held.entry.key
        del lane.held[held.entry.seq]
        held.consumer.held -= 1
        if lane.out and key and key in lane.out:
            out = lane.out.pop(key)
            if out > 1:
                lane.out[key] = out - 1
            if out == self.policy.key_inflight:
                lane.unblock(key)

    def done(self, group: Group, lane: Lane, seq: int) -> None:
        """This group needs the message no more."""
        group.settle(lane, seq)
        partition = self.partitions[lane.number]
        if lane.settled.upto > partition.gone.upto:
            self.release(partition)

    def release(self, partition: Partition) -> None:
        """What every group has settled is gone; a stream keeps it."""
        if self.policy.is_stream or not self.groups:
            return
        lowest = -1
        for group in self.groups.values():
            upto = group.lanes[partition.number].settled.upto
            if lowest < 0 or upto < lowest:
                lowest = upto
        partition.gone.raise_to(lowest)

    def is_deleted(self, partition: Partition, seq: int) -> bool:
        if seq in partition.gone or self.policy.is_stream or not self.groups:
            return seq in partition.gone
        lanes = [group.lanes[partition.number] for group in self.groups.values()]
        return all([seq in lane.settled for lane in lanes])

    def deleted(self, partition: Partition) -> Settled:
        """What is gone, and what every group has settled: no new group will see it."""
        if self.policy.is_stream or not self.groups:
            return partition.gone.copy()
        lanes = [group.lanes[partition.number] for group in self.groups.values()]
        common = lanes[0].settled.copy()
        for lane in lanes[1:]:
            common = common.shared_with(lane.settled)
        return common

    def note(
        self,
        step: int,
        entry: Entry,
        group: str = "",
        consumer: str = "",
        attempt: int = 0,
        reason: str = "",
    ) -> None:
        """A message was not just delivered and acknowledged."""
        if self.policy.events:
            self.events.add(
                step, self.now_ms, entry.partition, entry.seq, group, consumer, attempt, reason
            )

    def note_held(self, step: int, group: Group, held: Held, reason: str = "") -> None:
        """The same, of one which a consumer has."""
        self.note(step, held.entry, group.name, held.consumer.name, held.attempt, reason)

    def count_dead(self, reason: str) -> None:
        dead = self.counters.dead
        dead[reason] = dead.get(reason, 0) + 1

    def grow(self, count: int) -> None:
        """Have at least so many partitions."""
        window_max = max(64, WINDOW_ENTRIES_MAX // max(1, count))
        for number in range(len(self.partitions), count):
            self.partitions.append(Partition(number, window_max))
            for group in self.groups.values():
                group.lanes.append(Lane(number, self.partitions[number].gone.copy()))
        for partition in self.partitions:
            partition.window_max = window_max
