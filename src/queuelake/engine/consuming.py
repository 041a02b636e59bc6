"""Commands of consumers: join and leave a group, and the dispatch to those who are there."""

from __future__ import annotations

from queuelake.engine import commands as c
from queuelake.engine.dispatch import Dispatcher, rank
from queuelake.engine.effects import Rank
from queuelake.engine.groups import Consumer, Group
from queuelake.engine.lane import Lane
from queuelake.engine.machine import Effect
from queuelake.engine.policy.settings import NONE
from queuelake.engine.settling import come_back, expire
from queuelake.engine.state import QueueState


def join(state: QueueState, command: c.Join, effects: list[Effect]) -> None:
    group = state.groups.get(command.group)
    if group is None:
        group = _new_group(state, command)
    elif command.replays and command.starts is not None and state.policy.is_stream:
        _move_group(state, group, command.starts)
    if not group.is_ranked:
        # A group which was read back from the store knows as little of them as a new one.
        group.is_ranked = True
        if state.uses_priorities and state.policy.ordering == NONE:
            effects.append(Rank(group.name))
    consumer = group.consumers.get(command.consumer)
    if consumer is None:
        consumer = group.consumers[command.consumer] = Consumer(command.consumer, 0, command.tag)
        # One who left and comes back still has in hand what it had.
        for lane in group.lanes:
            for held in lane.held.values():
                if held.consumer.name == consumer.name:
                    held.consumer = consumer
                    consumer.held += 1
    consumer.tag = command.tag
    consumer.prefetch = command.prefetch or state.policy.prefetch
    group.absent_ms = 0
    group.dirty = True
    group.rebalance()


def _new_group(state: QueueState, command: c.Join) -> Group:
    group = Group(command.group, state.next_group_id, command.derived, command.pattern)
    state.next_group_id += 1
    for partition in state.partitions:
        lane = Lane(partition.number, state.deleted(partition))
        group.lanes.append(lane)
        _start(state, group, lane, command.starts)
    state.groups[command.group] = group
    state.loose = 0
    for partition in state.partitions:
        state.release(partition)
    return group


def _start(state: QueueState, group: Group, lane: Lane, starts: list[int] | None) -> None:
    """Everything before where the group begins counts as settled."""
    partition = state.partitions[lane.number]
    start = c.FROM_EARLIEST
    if starts:
        start = starts[lane.number] if lane.number < len(starts) else starts[-1]
    if start == c.FROM_LATEST:
        start = partition.last + 1
    elif start == c.FROM_LAST:
        start = partition.last
    if start > 0:
        lane.settled.raise_to(min(start - 1, partition.last))
    lane.next = lane.horizon = lane.settled.upto + 1
    group.unsettled += lane.unsettled(partition.last)


def _move_group(state: QueueState, group: Group, starts: list[int]) -> None:
    """Replay of a stream: the group begins anew, and forgets what it has in hand."""
    group.unsettled = 0
    group.ranked.clear()
    group.is_ranked = False
    for consumer in group.order:
        consumer.held = 0
    for number, old in enumerate(group.lanes):
        lane = Lane(number, state.partitions[number].gone.copy())
        lane.settled.dirty |= set(old.settled.blocks) | old.settled.dirty
        lane.dirty_tallies = set(old.tallies) | old.dirty_tallies
        group.lanes[number] = lane
        _start(state, group, lane, starts)


def rank_stored(state: QueueState, command: c.Ranked) -> None:
    group = state.groups.get(command.group)
    if group is None or group.pattern:
        return
    lane = group.lanes[command.partition]
    for entry in command.entries:
        if entry.seq >= lane.next and entry.seq not in lane.ahead:
            if entry.seq not in lane.settled:
                rank(group, lane, entry)


def leave(state: QueueState, command: c.Leave, effects: list[Effect]) -> None:
    group = state.groups.get(command.group)
    if group is None:
        return
    group.consumers.pop(command.consumer, None)
    group.rebalance()
    if not group.consumers and not group.absent_ms:
        group.absent_ms = state.now_ms
        group.dirty = True
    if not command.gone:
        return
    for lane in group.lanes:
        theirs = [held for held in lane.held.values() if held.consumer.name == command.consumer]
        for held in theirs:
            come_back(state, group, lane, held, state.now_ms, effects)


def dispatch(state: QueueState, in_bulk: bool, effects: list[Effect]) -> None:
    dispatcher = Dispatcher(state.policy, state.partitions, state.now_ms, in_bulk, effects)
    for group in state.groups.values():
        dispatcher.run(group)
    state.more = dispatcher.more
    state.counters.delivered += dispatcher.delivered
    state.counters.redelivered += dispatcher.redelivered
    for entry in dispatcher.expired:
        expire(state, entry, effects)
    for number in dispatcher.passed:
        state.release(state.partitions[number])
