"""How messages leave a message queue.

A message which leaves is settled at once, so it does not come back after a crash. One which leaves
while a consumer has it stays in its hands: whatever the consumer says of it later frees its place
there and changes nothing else. The oldest message is always the first which is not settled, so
limits and age take it from there, and never a newer one before an older one.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from typing import Final

from queuelake.engine import commands as c
from queuelake.engine import events as e
from queuelake.engine.effects import Load
from queuelake.engine.groups import GROUP, Group
from queuelake.engine.lane import Lane
from queuelake.engine.machine import Effect
from queuelake.engine.message import Entry, sequence_of
from queuelake.engine.policy.settings import Policy
from queuelake.engine.state import LIMIT, QueueState

DROPS_MAX: Final = 1_000  # by one command: the rest follows with the next


def depart(state: QueueState, group: Group, lane: Lane, entry: Entry) -> None:
    """It is in no line, and nobody needs it any more."""
    state.done(group, lane, entry.seq)
    account(state, entry)


def account(state: QueueState, entry: Entry) -> None:
    """What is there, without this one."""
    state.bytes -= entry.size
    if state.policy.is_last_value:
        state.freed.append((entry.key, entry.seq))


def drop(state: QueueState, group: Group, lane: Lane, entry: Entry) -> None:
    """Out of whatever line it is in; a consumer who has it keeps it."""
    seq = entry.seq
    if seq not in lane.held and lane.dying.pop(seq, None) is None:
        take_out(lane, seq)
    depart(state, group, lane, entry)


def take_out(lane: Lane, seq: int) -> None:
    """Out of the lines; where the lane has not come to it, it is in none."""
    if seq >= lane.next and seq not in lane.ahead:
        return
    if lane.aside_count and take_from_aside(lane, seq):
        return
    for number, entry in enumerate(lane.returns):
        if entry.seq == seq:
            del lane.returns[number]
            return
    for number, (_, found, _) in enumerate(lane.waiting):
        if found == seq:
            del lane.waiting[number]
            heapq.heapify(lane.waiting)
            return


def take_from_aside(lane: Lane, seq: int) -> bool:
    for slot, entries in lane.aside.items():
        at = bisect_left(entries, seq, key=sequence_of)
        if at < len(entries) and entries[at].seq == seq:
            del entries[at]
            lane.aside_count -= 1
            if not entries:
                del lane.aside[slot]
            return True
    return False


def known(state: QueueState, lane: Lane, seq: int) -> Entry | None:
    """The entry, if it is in memory."""
    entry = state.partitions[lane.number].window.get(seq)
    if entry is not None:
        return entry
    held = lane.held.get(seq)
    return held.entry if held is not None else lane.dying.get(seq)


def over_ms(policy: Policy, entry: Entry) -> int:
    """From when on it is too old to be handed out; 0: never."""
    age_ms = policy.retention_age_ms
    if not age_ms:
        return entry.expires_ms
    over = entry.ts_ms + age_ms
    return entry.expires_ms if 0 < entry.expires_ms < over else over


def is_over(policy: Policy, entry: Entry, now_ms: int) -> bool:
    return 0 < over_ms(policy, entry) <= now_ms


def excess(policy: Policy, count: int, size: int) -> bool:
    """Whether that is more than the queue may hold."""
    return 0 < policy.count_max < count or 0 < policy.bytes_max < size


def make_room(state: QueueState, count: int, size: int) -> None:
    """Drop the oldest messages until so many more fit, as far as their sizes are known."""
    policy = state.policy
    group = state.groups[GROUP]
    lane = group.lanes[0]
    last = state.partitions[0].last
    for _ in range(DROPS_MAX):
        seq = lane.settled.upto + 1
        if seq > last or not excess(policy, group.unsettled + count, state.bytes + size):
            return
        entry = known(state, lane, seq)
        if entry is None:
            return
        state.counters.dropped += 1
        state.note(e.DROPPED, entry, reason=LIMIT)
        drop(state, group, lane, entry)


def missing_head(state: QueueState, size: int) -> int:
    """The message which must be loaded before one of this size is stored; 0: none."""
    policy = state.policy
    if not policy.count_max and not policy.bytes_max:
        return 0
    group = state.groups[GROUP]
    lane = group.lanes[0]
    last = state.partitions[0].last
    count, total = group.unsettled + 1, state.bytes + size
    seq = lane.settled.upto + 1
    for _ in range(DROPS_MAX):
        if seq > last or not excess(policy, count, total):
            return 0
        entry = known(state, lane, seq)
        if entry is None:
            return seq
        count -= 1
        total -= entry.size
        seq = lane.settled.next_unsettled(seq + 1)
    return 0


def trim(state: QueueState, effects: list[Effect]) -> None:
    """Drop what is too old, or too much since the limits changed; asks the store for the oldest."""
    policy = state.policy
    group = state.groups[GROUP]
    lane = group.lanes[0]
    partition = state.partitions[0]
    for _ in range(DROPS_MAX):
        seq = lane.settled.upto + 1
        if seq > partition.last:
            return
        is_excess = excess(policy, group.unsettled, state.bytes)
        if seq == partition.head_seq and not is_excess:
            if not 0 < partition.head_expires_ms <= state.now_ms:
                return
        entry = known(state, lane, seq)
        if entry is None:
            if not partition.loading:
                partition.loading = seq
                effects.append(Load(0, seq))
            return
        if is_excess:
            state.counters.dropped += 1
            state.note(e.DROPPED, entry, reason=LIMIT)
        elif is_over(policy, entry, state.now_ms):
            state.counters.expired += 1
            state.note(e.EXPIRED, entry)
        else:
            partition.head_seq = seq
            partition.head_expires_ms = over_ms(policy, entry)
            return
        drop(state, group, lane, entry)


def truncate(state: QueueState, command: c.Truncate) -> None:
    """Everything up to a sequence leaves as too old."""
    group = state.groups[GROUP]
    lane = group.lanes[0]
    partition = state.partitions[0]
    upto = min(command.upto, partition.last)
    if upto <= lane.settled.upto:
        return
    before = group.unsettled
    if state.policy.events:
        for first, last in lane.settled.unsettled_ranges(lane.settled.upto + 1, upto):
            state.events.add_range(e.EXPIRED, state.now_ms, 0, first, last)
    lane.returns = [entry for entry in lane.returns if entry.seq > upto]
    lane.waiting = [item for item in lane.waiting if item[1] > upto]
    heapq.heapify(lane.waiting)
    lane.aside_count = 0
    for slot, entries in list(lane.aside.items()):
        later = [entry for entry in entries if entry.seq > upto]
        lane.aside_count += len(later)
        if later:
            lane.aside[slot] = later
        else:
            del lane.aside[slot]
    for seq in [seq for seq in lane.dying if seq <= upto]:
        del lane.dying[seq]
    for seq in [seq for seq in lane.tallies if seq <= upto]:
        del lane.tallies[seq]
        lane.dirty_tallies.add(seq)
    lane.unseen = {seq for seq in lane.unseen if seq > upto}
    lane.ahead = {seq for seq in lane.ahead if seq > upto}
    lane.settled.raise_to(upto)
    lane.skip_to(lane.settled.upto + 1)
    lane.move_horizon()
    lane.dirty = True
    group.unsettled = lane.unsettled(partition.last)
    state.counters.expired += before - group.unsettled
    state.bytes = max(0, state.bytes - command.size) if group.unsettled else 0
    state.release(partition)
