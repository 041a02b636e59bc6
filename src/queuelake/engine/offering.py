"""The dispatch of a message queue: which message goes out next, and to whom.

What came back goes first, in the order of its return, then what was set aside, then what is new.
A strategy picks the consumer among those with room. With `sticky_key` each message has its own
consumer: while that one is full it is set aside for it, in `lane.aside` by the consumer's number,
and others pass. When consumers come or go, what was set aside is assigned anew.
"""

from __future__ import annotations

from bisect import insort
from typing import Final, final

from queuelake.engine import events as e
from queuelake.engine.dispatch import ASIDE_MAX, DELIVERIES_MAX
from queuelake.engine.effects import Deliver, Load
from queuelake.engine.groups import GROUP, Consumer, Group
from queuelake.engine.lane import Lane
from queuelake.engine.leaving import depart, is_over
from queuelake.engine.machine import Effect
from queuelake.engine.message import Entry, sequence_of
from queuelake.engine.policy.settings import STICKY_KEY
from queuelake.engine.policy.strategy import Chooser, home_of
from queuelake.engine.state import QueueState

SKIPS_MAX: Final = 256  # of those which came back and wait for another consumer
LOOSE: Final = 0  # where entries are aside which have no home
NOWHERE: Final = -1


def assign(state: QueueState) -> None:
    """Those set aside find their consumer, after the consumers or the strategy changed."""
    group = state.groups[GROUP]
    lane = group.lanes[0]
    if not lane.aside_count:
        return
    entries = [entry for aside in lane.aside.values() for entry in aside]
    entries.sort(key=sequence_of)
    lane.aside.clear()
    lane.aside_count = 0
    is_sticky = state.policy.strategy == STICKY_KEY and len(group.order) > 0
    for entry in entries:
        slot = LOOSE
        if is_sticky:
            slot = _home(group, lane, entry, state.now_ms)
        elif entry.seq in lane.tallies:
            slot = NOWHERE
        if slot == NOWHERE:
            state.put_return(lane, entry)
        else:
            lane.aside.setdefault(slot, []).append(entry)
            lane.aside_count += 1


def _home(group: Group, lane: Lane, entry: Entry, now_ms: int) -> int:
    """The number of the consumer whom it belongs to; NOWHERE: only one who refused it is there."""
    order = group.order
    tally = lane.tallies.get(entry.seq) if lane.tallies else None
    if len(order) > 1:
        return home_of(entry.key, order, "" if tally is None else tally.without)
    if tally is not None and tally.without == order[0].name and tally.due_ms > now_ms:
        return NOWHERE
    return 0


def offer(state: QueueState, in_bulk: bool, effects: list[Effect]) -> None:
    state.more = False
    group = state.groups[GROUP]
    lane = group.lanes[0]
    if not lane.returns and not lane.aside_count and lane.next > state.partitions[0].last:
        return
    policy = state.policy
    if len(lane.held) >= policy.unacked_max:
        return
    chooser = Chooser(policy.strategy, group.order, state.dice, group.turn)
    if not chooser.free or (in_bulk and _waits(chooser.free)):
        return
    offered = _Offer(state, group, lane, effects)
    if policy.strategy == STICKY_KEY:
        offered.to_homes()
    else:
        offered.to_any(chooser)
        state.dice = chooser.dice
        group.turn = chooser.turn


def _waits(free: list[Consumer]) -> bool:
    """Whether those with room have less than half of what they may hold; see `Dispatch`."""
    held = 0
    prefetch = 0
    for consumer in free:
        held += consumer.held
        prefetch += consumer.prefetch
    return held * 2 > prefetch


@final
class _Offer:
    """The decisions of one dispatch."""

    __slots__ = ("_effects", "_group", "_lane", "_left", "_room", "_state")

    def __init__(self, state: QueueState, group: Group, lane: Lane, effects: list[Effect]) -> None:
        self._state: QueueState = state
        self._group: Group = group
        self._lane: Lane = lane
        self._effects: list[Effect] = effects
        self._left: int = DELIVERIES_MAX  # how many more messages may be looked at
        self._room: int = state.policy.unacked_max - len(lane.held)

    # Any consumer with room

    def to_any(self, chooser: Chooser) -> None:
        if self._lane.returns:
            self._give_returns(chooser)
        while chooser.free and self._may_go_on():
            entry = self._first_aside() or self._next_new()
            if entry is None:
                return
            if not self._expires(entry):
                consumer = chooser.take("")
                assert consumer is not None
                self._hand_out(consumer, entry)

    def _give_returns(self, chooser: Chooser) -> None:
        lane = self._lane
        returns = lane.returns
        now_ms = self._state.now_ms
        kept: list[Entry] = []
        at = 0
        while at < len(returns) and chooser.free and len(kept) < SKIPS_MAX and self._may_go_on():
            entry = returns[at]
            at += 1
            if self._expires(entry):
                continue
            tally = lane.tallies[entry.seq]
            consumer = chooser.take(tally.without if tally.due_ms > now_ms else "")
            if consumer is None:
                kept.append(entry)
            else:
                self._hand_out(consumer, entry)
        lane.returns = kept + returns[at:]

    def _first_aside(self) -> Entry | None:
        return self._take_aside(LOOSE) if self._lane.aside_count else None

    # Each message to its own consumer

    def to_homes(self) -> None:
        group, lane = self._group, self._lane
        order = group.order
        now_ms = self._state.now_ms
        returns, lane.returns = lane.returns, []
        for entry in returns:
            slot = _home(group, lane, entry, now_ms)
            if slot == NOWHERE:
                lane.returns.append(entry)
            else:
                self._set_aside(slot, entry)
        room = 0
        for slot, consumer in enumerate(order):
            while consumer.held < consumer.prefetch and slot in lane.aside:
                if not self._may_go_on():
                    return
                entry = self._take_aside(slot)
                if not self._expires(entry):
                    self._give(consumer, entry)
            room += 1 if consumer.held < consumer.prefetch else 0
        while room and lane.aside_count < ASIDE_MAX and self._may_go_on():
            new = self._next_new()
            if new is None:
                return
            if self._expires(new):
                continue
            slot = _home(group, lane, new, now_ms)
            consumer = order[slot]
            if consumer.held < consumer.prefetch:
                self._give(consumer, new)
                room -= 1 if consumer.held >= consumer.prefetch else 0
            else:
                lane.unseen.add(new.seq)
                self._set_aside(slot, new)

    def _set_aside(self, slot: int, entry: Entry) -> None:
        # One which came back after a crash may be there and be newer than one which is new.
        insort(self._lane.aside.setdefault(slot, []), entry, key=sequence_of)
        self._lane.aside_count += 1

    def _give(self, consumer: Consumer, entry: Entry) -> None:
        consumer.held += 1
        self._hand_out(consumer, entry)

    # Messages

    def _may_go_on(self) -> bool:
        """Other queues want their turn."""
        if self._room <= 0:
            return False
        self._left -= 1
        if self._left < 0:
            self._state.more = True
            return False
        return True

    def _take_aside(self, slot: int) -> Entry:
        lane = self._lane
        entries = lane.aside[slot]
        entry = entries.pop(0)
        lane.aside_count -= 1
        if not entries:
            del lane.aside[slot]
        return entry

    def _next_new(self) -> Entry | None:
        """The next which the lane has not come to; asks the store when the window ends."""
        lane = self._lane
        settled = lane.settled
        partition = self._state.partitions[0]
        while lane.next <= partition.last:
            seq = lane.next
            if seq <= settled.upto or settled.blocks:
                seq = settled.next_unsettled(seq)
                if seq > lane.next:
                    lane.skip_to(min(seq, partition.last + 1))
                    continue
            if lane.ahead and seq in lane.ahead:
                lane.ahead.discard(seq)
                lane.skip_to(seq + 1)
                continue
            entry = partition.window.get(seq)
            if entry is None:
                if not partition.loading:
                    partition.loading = seq
                    self._effects.append(Load(0, seq))
                return None
            lane.next = seq + 1
            return entry
        return None

    def _expires(self, entry: Entry) -> bool:
        """Whether it is too old, and has left the queue now."""
        state = self._state
        if not is_over(state.policy, entry, state.now_ms):
            return False
        state.counters.expired += 1
        state.note(e.EXPIRED, entry)
        depart(state, self._group, self._lane, entry)
        return True

    def _hand_out(self, consumer: Consumer, entry: Entry) -> None:
        """The consumer has it; whoever chose it counted that already."""
        state, lane = self._state, self._lane
        came_back = len(lane.tallies) > 0 and entry.seq in lane.tallies
        self._room -= 1
        attempt = lane.hand_out(entry, consumer, state.now_ms, state.policy.delivery_timeout_ms)
        state.counters.delivered += 1
        state.counters.redelivered += 1 if came_back else 0
        # Where one message waits for the settlement of another, that must be durable before.
        patient = came_back or consumer.prefetch == 1
        self._effects.append(Deliver(self._group, consumer, entry, attempt, patient))
