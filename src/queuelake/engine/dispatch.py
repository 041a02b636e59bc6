"""Who gets which message next.

Where order matters a partition belongs to one consumer of a group, and its messages go out in
order: first what came back, then what is new; the partitions of a consumer take turns. Where order
does not matter, the consumers take turns over all partitions, and priorities go first.
"""

from __future__ import annotations

import heapq
from typing import Final, final

from queuelake.engine.effects import Deliver, Load
from queuelake.engine.groups import Consumer, Group
from queuelake.engine.lane import Lane
from queuelake.engine.machine import Effect
from queuelake.engine.message import PRIORITY_DEFAULT, PRIORITY_MAX, Entry
from queuelake.engine.partition import Partition
from queuelake.engine.policy.settings import BLOCKS_KEY, BLOCKS_PARTITION, NONE, Policy
from queuelake.protocol.topics import matches

ASIDE_MAX: Final = 10_000  # entries of blocked keys a lane sets aside before it stops
RANK_DEFAULT: Final = PRIORITY_MAX - PRIORITY_DEFAULT
DELIVERIES_MAX: Final = 2_000  # of one dispatch: other queues want their turn


def rank(group: Group, lane: Lane, entry: Entry) -> None:
    """Put an entry with a priority of its own in its place among the others."""
    lane.unseen.add(entry.seq)
    if entry.seq >= lane.next:
        lane.ahead.add(entry.seq)
    push_ranked(group, entry)


def push_ranked(group: Group, entry: Entry) -> None:
    order = PRIORITY_MAX - entry.priority
    heapq.heappush(group.ranked, (order, entry.ts_ms, entry.partition, entry.seq, entry))


def unrank(group: Group) -> None:
    """Priorities count no more: each entry is where it is without one."""
    for _, _, number, seq, entry in sorted(group.ranked, key=_place):
        lane = group.lanes[number]
        if seq not in lane.unseen:
            continue
        if seq < lane.next:
            lane.set_aside(entry)
        else:
            lane.unseen.discard(seq)
            lane.ahead.discard(seq)
    group.ranked.clear()


def _place(item: tuple[int, int, int, int, Entry]) -> tuple[int, int]:
    return item[2], item[3]


@final
class Dispatcher:
    """The decisions of one `Dispatch` command."""

    __slots__ = (
        "_effects",
        "_in_bulk",
        "_is_loading",
        "_now_ms",
        "_partitions",
        "_policy",
        "delivered",
        "expired",
        "more",
        "passed",
        "redelivered",
    )

    def __init__(
        self,
        policy: Policy,
        partitions: list[Partition],
        now_ms: int,
        in_bulk: bool,
        effects: list[Effect],
    ) -> None:
        self._policy: Policy = policy
        self._partitions: list[Partition] = partitions
        self._now_ms: int = now_ms
        self._in_bulk: bool = in_bulk
        self._effects: list[Effect] = effects
        self._is_loading: bool = False  # a lane of this group waits for the store
        self.delivered: int = 0
        self.redelivered: int = 0
        self.more: bool = False  # stopped at its limit, not at the end
        self.expired: list[Entry] = []
        self.passed: set[int] = set()  # partitions with messages which did not match a pattern

    def run(self, group: Group) -> None:
        if not group.order:
            return
        for consumer in group.order:
            waits = self._in_bulk and consumer.held * 2 > consumer.prefetch
            consumer.limit = 0 if waits else consumer.prefetch
        self._is_loading = False
        if self._policy.ordering == NONE:
            self._in_turn(group)
        else:
            self._in_order(group)

    # Each partition for one consumer

    def _in_order(self, group: Group) -> None:
        active: list[Lane] = []
        for lane in group.lanes:
            consumer = lane.owner
            if consumer is None or consumer.held >= consumer.limit:
                continue
            if not lane.returns and not lane.has_ready():
                if lane.next > self._partitions[lane.number].last:
                    continue
            if lane.held and next(iter(lane.held.values())).consumer is not consumer:
                continue  # the former owner has not finished
            active.append(lane)
        if len(active) > 1:
            turn = group.turn % len(active)
            active = active[turn:] + active[:turn]
            group.turn += 1
        while active:
            left: list[Lane] = []
            for lane in active:
                consumer = lane.owner
                assert consumer is not None
                while consumer.held < consumer.limit:
                    if self.delivered >= DELIVERIES_MAX:
                        self.more = True
                        return
                    entry = self._next_in_order(group, lane)
                    if entry is None:
                        break
                    self._hand_out(group, lane, consumer, entry)
                    if len(active) > 1:
                        left.append(lane)
                        break
            active = left

    def _next_in_order(self, group: Group, lane: Lane) -> Entry | None:
        policy = self._policy
        blocks = policy.retry_blocks == BLOCKS_PARTITION
        if blocks and lane.returns and lane.is_waiting_before(lane.returns[0].seq):
            return None
        if lane.returns:
            entry = lane.take_return(policy.key_inflight)
            if entry is not None:
                if policy.retry_blocks == BLOCKS_KEY:
                    lane.unblock(entry.key)
                return entry
        if blocks and (lane.waiting or lane.returns):
            return None
        return self._next_new(group, lane)

    # Any partition for any consumer

    def _in_turn(self, group: Group) -> None:
        order = group.order
        returning = [(lane.first_in_line(), lane.number) for lane in group.lanes if lane.returns]
        heapq.heapify(returning)
        new = [
            lane
            for lane in group.lanes
            if lane.has_ready() or lane.next <= self._partitions[lane.number].last
        ]
        full = 0
        while full < len(order):
            consumer = order[group.turn % len(order)]
            group.turn += 1
            if consumer.held >= consumer.limit:
                full += 1
                continue
            full = 0
            for _ in range(self._policy.batch_size):
                if consumer.held >= consumer.limit:
                    break
                if self.delivered >= DELIVERIES_MAX:
                    self.more = True
                    return
                entry = self._next_of_any(group, returning, new)
                if entry is None:
                    return
                self._hand_out(group, group.lanes[entry.partition], consumer, entry)

    def _next_of_any(
        self, group: Group, returning: list[tuple[int, int]], new: list[Lane]
    ) -> Entry | None:
        """Returned messages first, in the order of their return, then by priority."""
        while returning:
            lane = group.lanes[returning[0][1]]
            returned = lane.take_return(self._policy.key_inflight)
            if returned is None or not lane.returns:
                heapq.heappop(returning)
            else:
                heapq.heapreplace(returning, (lane.first_in_line(), lane.number))
            if returned is None:
                continue
            if self._policy.retry_blocks == BLOCKS_KEY:
                lane.unblock(returned.key)
            return returned
        if group.ranked and group.ranked[0][0] < RANK_DEFAULT:
            ranked = self._next_ranked(group, RANK_DEFAULT)
            if ranked is not None:
                return ranked
        while new:
            lane = new.pop(0)
            entry = self._next_new(group, lane)
            if entry is not None:
                new.append(lane)
                return entry
            if group.ranked and group.ranked[0][0] < RANK_DEFAULT:
                return self._next_of_any(group, returning, new)  # it has just been found
        if self._is_loading:
            return None  # low priorities go when nothing else is left
        return self._next_ranked(group, PRIORITY_MAX + 1) if group.ranked else None

    def _next_ranked(self, group: Group, below: int) -> Entry | None:
        ranked = group.ranked
        while ranked and ranked[0][0] < below:
            entry = heapq.heappop(ranked)[4]
            lane = group.lanes[entry.partition]
            if entry.seq not in lane.unseen:
                continue  # settled in another way
            if entry.key and entry.key in lane.blocked:
                lane.set_aside(entry)
                continue
            return entry
        return None

    # A message which was never handed out

    def _next_new(self, group: Group, lane: Lane) -> Entry | None:
        """The next entry of the partition which may go; asks the store when the window ends."""
        if lane.ready:
            free = lane.take_ready()
            if free is not None:
                return free
        partition = self._partitions[lane.number]
        while lane.next <= partition.last:
            seq = lane.next
            if seq in lane.settled or (lane.ahead and seq in lane.ahead):
                lane.ahead.discard(seq)
                lane.skip_to(max(seq, lane.settled.upto) + 1)
                continue
            if lane.aside_count >= ASIDE_MAX:
                return None
            entry = partition.window.get(seq)
            if entry is None:
                self._is_loading = True
                if not partition.loading:
                    partition.loading = seq
                    self._effects.append(Load(partition.number, seq))
                return None
            lane.next = seq + 1
            if self._may_go(group, lane, entry):
                return entry
        return None

    def _may_go(self, group: Group, lane: Lane, entry: Entry) -> bool:
        """Whether a new entry goes out now; if not, it is put where it belongs."""
        if group.pattern and not matches(group.pattern, entry.rest):
            group.settle(lane, entry.seq)
            self.passed.add(lane.number)
            return False
        if entry.priority != PRIORITY_DEFAULT and self._policy.ordering == NONE:
            rank(group, lane, entry)
            return False
        if lane.blocked and entry.key and entry.key in lane.blocked:
            lane.unseen.add(entry.seq)
            lane.set_aside(entry)
            return False
        return True

    def _hand_out(self, group: Group, lane: Lane, consumer: Consumer, entry: Entry) -> None:
        now_ms = self._now_ms
        if entry.expires_ms and now_ms >= entry.expires_ms:
            self.expired.append(entry)
            return
        policy = self._policy
        attempt = lane.hand_out(entry, consumer, now_ms, policy.delivery_timeout_ms)
        consumer.held += 1
        self.delivered += 1
        self.redelivered += 1 if attempt > 1 else 0
        if policy.key_inflight and entry.key:
            out = lane.out.get(entry.key, 0) + 1
            lane.out[entry.key] = out
            if out == policy.key_inflight:
                lane.block(entry.key)
        # Where one message waits for the settlement of another, that must be durable before.
        patient = attempt > 1 or policy.key_inflight > 0 or consumer.prefetch == 1
        self._effects.append(Deliver(group, consumer, entry, attempt, patient))
