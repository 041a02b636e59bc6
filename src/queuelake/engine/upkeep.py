"""Time, and orders from above: timeouts and expiries, purge, removal, new settings."""

from __future__ import annotations

from typing import Final

from queuelake.engine import commands as c
from queuelake.engine import events as e
from queuelake.engine.dispatch import unrank
from queuelake.engine.effects import GroupGone, Rank
from queuelake.engine.groups import Group
from queuelake.engine.lane import Lane
from queuelake.engine.machine import Effect
from queuelake.engine.message import Entry
from queuelake.engine.partition import Partition
from queuelake.engine.policy import retry
from queuelake.engine.policy.settings import NONE, Policy
from queuelake.engine.settled import Settled
from queuelake.engine.settling import come_back, expire
from queuelake.engine.state import NOT_FOUND, PURGED, QueueState

GROUP_EXPIRY_DERIVED_MS: Final = 3_600_000
IDS_PER_TICK_MAX: Final = 10_000


def tick(state: QueueState, effects: list[Effect]) -> None:
    now_ms = state.now_ms
    state.ids.forget(now_ms, IDS_PER_TICK_MAX)
    for group in state.groups.values():
        for lane in group.lanes:
            while lane.waiting and (entry := lane.next_due(now_ms)) is not None:
                state.put_return(lane, entry)
            while lane.held:
                held = next(iter(lane.held.values()))
                if held.deadline_ms > now_ms:
                    break
                state.counters.timed_out += 1
                state.note_held(e.TIMED_OUT, group, held)
                due_ms = now_ms + retry.backoff_ms(state.policy, held.attempt)
                come_back(state, group, lane, held, due_ms, effects)
    for entry in state.expiry.due(state.partitions, now_ms, effects):
        expire(state, entry, effects)
        partition = state.partitions[entry.partition]
        if entry.seq > partition.gone.upto + 1 and not state.is_deleted(partition, entry.seq):
            state.expiry.missed_ms = now_ms  # somebody holds it, and may not settle it
    for name in [group.name for group in state.groups.values() if _is_over(state, group)]:
        forget_group(state, name, effects)


def expire_found(state: QueueState, entries: list[Entry], effects: list[Effect]) -> None:
    for entry in entries:
        partition = state.partitions[entry.partition]
        if 0 < entry.expires_ms <= state.now_ms and not state.is_deleted(partition, entry.seq):
            expire(state, entry, effects)


def _is_over(state: QueueState, group: Group) -> bool:
    return 0 < over_ms(state.policy, group) <= state.now_ms


def over_ms(policy: Policy, group: Group) -> int:
    """When a group will have been without a consumer for too long; 0: never, as it is."""
    if group.consumers or not group.absent_ms:
        return 0
    limit_ms = policy.group_expiry_ms
    if group.derived and (limit_ms == 0 or limit_ms > GROUP_EXPIRY_DERIVED_MS):
        limit_ms = GROUP_EXPIRY_DERIVED_MS
    return group.absent_ms + limit_ms if limit_ms else 0


def configure(state: QueueState, policy: Policy, effects: list[Effect]) -> None:
    assert policy.partitions >= len(state.partitions)
    before = state.policy
    state.policy = policy
    state.grow(policy.partitions)
    for group in state.groups.values():
        if before.ordering == NONE and policy.ordering != NONE:
            unrank(group)
        elif before.ordering != NONE and policy.ordering == NONE and state.uses_priorities:
            effects.append(Rank(group.name))
        for lane in group.lanes:
            for held in lane.held.values():
                held.deadline_ms += policy.delivery_timeout_ms - before.delivery_timeout_ms
            lane.realign(policy.key_inflight, state.blocks_keys(), state.in_order())
        group.rebalance()


def purge(state: QueueState) -> None:
    """Everything which is neither held nor dying is settled for every group, and what is delayed
    will not come."""
    state.purged = 0
    for partition in state.partitions:
        before = state.stored(partition)
        unneeded = _unneeded(state, partition) if state.policy.events else None
        for group in state.groups.values():
            _purge_lane(state, group, group.lanes[partition.number], partition.last)
        if not state.groups:
            partition.gone.raise_to(partition.last)
        elif state.policy.is_stream:
            lowest = min(
                [group.lanes[partition.number].settled.upto for group in state.groups.values()]
            )
            partition.gone.raise_to(lowest)
        state.release(partition)
        state.purged += before - state.stored(partition)
        if unneeded is not None:
            _note_purged(state, partition, unneeded)
    state.counters.purged += state.purged
    state.purged += state.delayed
    state.delayed = 0
    state.loose = 0


def _unneeded(state: QueueState, partition: Partition) -> Settled:
    """What every group has settled; without a group, what is gone."""
    if not state.groups:
        return partition.gone.copy()
    lanes = [group.lanes[partition.number] for group in state.groups.values()]
    common = lanes[0].settled.copy()
    for lane in lanes[1:]:
        common = common.shared_with(lane.settled)
    return common


def _note_purged(state: QueueState, partition: Partition, unneeded: Settled) -> None:
    """Of what was needed, all that is deleted now: ranges, for it may be millions."""
    deleted = state.deleted(partition)
    for first, last in unneeded.unsettled_ranges(1, partition.last):
        while first <= last:
            end = min(last, deleted.next_unsettled(first) - 1)
            if end >= first:
                now_ms, number = state.now_ms, partition.number
                state.events.add_range(e.DROPPED, now_ms, number, first, end, PURGED)
            first = deleted.next_settled(max(first, end + 1), last)


def _purge_lane(state: QueueState, group: Group, lane: Lane, last: int) -> None:
    kept = sorted([seq for seq in [*lane.held, *lane.dying] if seq not in lane.settled])
    before = lane.unsettled(last)
    lane.empty(last, kept, state.policy.key_inflight)
    group.unsettled -= before - lane.unsettled(last)
    group.ranked = [item for item in group.ranked if item[2] != lane.number]


def remove(state: QueueState, number: int, seq: int) -> None:
    """One message is gone for everybody, in hand or not."""
    partition = state.partitions[number]
    if not 0 < seq <= partition.last or state.is_deleted(partition, seq):
        state.reply = NOT_FOUND
        return
    _drop(state, number, seq)
    if not state.groups or state.policy.is_stream:
        partition.gone.add(seq)
    state.release(partition)


def truncate(state: QueueState, command: c.Truncate) -> None:
    """A partition forgets its messages up to a sequence."""
    partition = state.partitions[command.partition]
    upto = min(command.upto, partition.last)
    for seq in _needed(state, partition, upto):
        _drop(state, command.partition, seq)
    partition.gone.raise_to(upto)


def _needed(state: QueueState, partition: Partition, upto: int) -> list[int]:
    """Messages up to a sequence which some group has not settled; without a group, all of them."""
    first = partition.gone.upto + 1
    needed: set[int] = set()
    for group in state.groups.values():
        needed.update(group.lanes[partition.number].settled.unsettled(first, upto))
    if not state.groups:
        needed.update(partition.gone.unsettled(first, upto))
    return sorted(needed)


def _drop(state: QueueState, number: int, seq: int) -> None:
    for group in state.groups.values():
        lane = group.lanes[number]
        if seq in lane.settled:
            continue
        held = lane.held.get(seq)
        if held is not None:
            state.let_go(lane, held)
        lane.dying.pop(seq, None)
        lane.take_out(seq, state.blocks_keys())
        group.settle(lane, seq)
    if not state.groups:
        state.loose -= 1


def forget_group(state: QueueState, name: str, effects: list[Effect]) -> None:
    group = state.groups.get(name)
    if group is None:
        state.reply = NOT_FOUND
        return
    deleted = [state.deleted(partition) for partition in state.partitions]
    del state.groups[name]
    effects.append(GroupGone(name, group.id))
    if not state.groups and not state.policy.is_stream:
        for partition, gone in zip(state.partitions, deleted, strict=True):
            gone.dirty |= partition.gone.dirty | set(partition.gone.blocks)
            partition.gone = gone
    if not state.groups:
        state.loose = sum([partition.stored() for partition in state.partitions])
    for partition in state.partitions:
        state.release(partition)
