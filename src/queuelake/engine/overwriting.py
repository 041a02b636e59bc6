"""Commands of publishers to a message queue: a value takes the place of the last one of its key.

The former value leaves and the new one joins at the tail in one command, and the oldest messages
leave when there is no room: nothing is ever refused but a message which has no room alone.
"""

from __future__ import annotations

from queuelake.engine import commands as c
from queuelake.engine.groups import GROUP, Group
from queuelake.engine.lane import Lane
from queuelake.engine.leaving import drop, known, make_room, take_out
from queuelake.engine.state import TOO_LARGE, QueueState


def enqueue(state: QueueState, command: c.Enqueue) -> None:
    policy = state.policy
    entry = command.entry
    if entry.size > policy.message_bytes_max or 0 < policy.bytes_max < entry.size:
        state.counters.refused += 1
        state.reply = TOO_LARGE
        return
    group = state.groups[GROUP]
    if command.replaces:
        _overwrite(state, group, group.lanes[0], command)
    if policy.count_max or policy.bytes_max:
        make_room(state, 1, entry.size)
    state.partitions[0].append(entry)
    group.unsettled += 1
    state.bytes += entry.size
    state.counters.enqueued += 1


def _overwrite(state: QueueState, group: Group, lane: Lane, command: c.Enqueue) -> None:
    seq = command.replaces
    if not 0 < seq <= state.partitions[0].last or seq in lane.settled:
        return  # it has left meanwhile
    former = known(state, lane, seq)
    assert former is None or former.key == command.entry.key, "a message of another key"
    state.counters.overwritten += 1
    if former is not None:
        drop(state, group, lane, former)
        return
    take_out(lane, seq)
    state.done(group, lane, seq)
    state.bytes -= command.replaced_size
    state.freed.append((command.entry.key, seq))
