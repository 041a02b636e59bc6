"""Messages which come as ranges: the store has them already, and their entries are asked back when
lanes come to them, like those of a backlog after a restart.

A range is taken whole or not at all. Where the oldest messages make room for new ones they do so
afterwards, as time passes (`shrink`): a range may be longer than all a queue may hold.
"""

from __future__ import annotations

from typing import Final

from queuelake.engine import commands as c
from queuelake.engine import events as e
from queuelake.engine.effects import Load
from queuelake.engine.machine import Effect
from queuelake.engine.publishing import make_room, missing_heads
from queuelake.engine.state import FULL, TOO_LARGE, QueueState

DROPS_MAX: Final = 1_000  # by one tick: the rest follows with the next


def refusal(state: QueueState, command: c.Extend) -> int:
    """Why there is no room for these messages; 0: there is. Changes nothing."""
    policy = state.policy
    if command.largest > policy.message_bytes_max:
        return TOO_LARGE
    if policy.is_message_queue:
        return TOO_LARGE if 0 < policy.bytes_max < command.largest else 0
    if policy.is_stream or not policy.depth_max or policy.drop_head:
        return 0
    depth = state.depth() + sum(command.counts) + command.delayed
    return FULL if depth > policy.depth_max else 0


def extend(state: QueueState, command: c.Extend) -> None:
    """Of a durable queue, or a regular message queue."""
    assert not state.policy.is_last_value, "which message replaces which is decided one by one"
    state.reply = refusal(state, command)
    if state.reply:
        state.counters.refused += 1
        return
    count = 0
    for number, added in enumerate(command.counts):
        last = state.partitions[number].last
        if state.policy.events == e.ALL:
            state.events.add_range(e.ENQUEUED, state.now_ms, number, last + 1, last + added)
        state.partitions[number].last = last + added
        count += added
    state.counters.enqueued += count
    for group in state.groups.values():
        group.unsettled += count
    if not state.groups:
        state.loose += count
    state.delayed += command.delayed
    if state.policy.is_message_queue:
        state.bytes += command.size
    if command.has_priorities:
        state.uses_priorities = True


def shrink(state: QueueState, effects: list[Effect]) -> None:
    """Drop the oldest messages of a queue which holds more than it may."""
    for _ in range(DROPS_MAX):
        if not state.is_over():
            return
        missing = missing_heads(state)
        if missing:
            for number, seq in missing:
                partition = state.partitions[number]
                if not partition.loading:
                    partition.loading = seq
                    effects.append(Load(number, seq))
            return
        if not make_room(state):
            return
