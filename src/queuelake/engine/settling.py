"""What becomes of a delivery: done, again, or a dead letter."""

from __future__ import annotations

from queuelake.engine import commands as c
from queuelake.engine import events as e
from queuelake.engine.effects import DeadLetter
from queuelake.engine.groups import Group
from queuelake.engine.lane import Held, Lane
from queuelake.engine.machine import Effect
from queuelake.engine.message import Entry
from queuelake.engine.policy import retry
from queuelake.engine.state import EXPIRED, NOT_FOUND, NOT_HELD, REJECTED, QueueState


def settle(state: QueueState, command: c.Settle, effects: list[Effect]) -> None:
    group = state.groups.get(command.group)
    if group is None or not 0 <= command.partition < len(state.partitions):
        state.reply = NOT_FOUND
        return
    lane = group.lanes[command.partition]
    seq = command.seq
    outcome = command.outcome
    held = lane.held.get(seq)
    if held is None:
        if outcome != c.BURIED:
            state.reply = not_held(state, lane, seq, outcome)
        elif lane.dying.pop(seq, None) is not None:
            state.done(group, lane, seq)
    elif held.consumer.name != command.consumer:
        state.reply = NOT_HELD
    elif outcome == c.ACK:
        state.counters.acked += 1
        if state.policy.events == e.ALL:
            state.note_held(e.ACKED, group, held)
        state.let_go(lane, held)
        state.done(group, lane, seq)
    elif outcome == c.NACK:
        state.counters.nacked += 1
        state.note_held(e.NACKED, group, held)
        come_back(state, group, lane, held, state.now_ms + command.delay_ms, effects)
    else:
        state.note_held(e.REJECTED, group, held, command.reason)
        state.let_go(lane, held)
        bury(state, group, lane, held, REJECTED, command.reason, effects)


def not_held(state: QueueState, lane: Lane, seq: int, outcome: int) -> int:
    if not 0 < seq <= state.partitions[lane.number].last:
        return NOT_FOUND
    if seq in lane.settled:
        return 0 if outcome == c.ACK else NOT_FOUND
    return NOT_HELD


def come_back(
    state: QueueState, group: Group, lane: Lane, held: Held, due_ms: int, effects: list[Effect]
) -> None:
    """Not settled: to be handed out again at `due_ms`, or a dead letter."""
    entry = held.entry
    state.let_go(lane, held)
    reason = retry.verdict(state.policy, held.attempt, entry.ts_ms, state.now_ms)
    if reason:
        bury(state, group, lane, held, reason, "", effects)
        return
    lane.come_back(entry, held.attempt, held.first_ms, due_ms)
    line_up(state, lane, entry, due_ms)


def line_up(state: QueueState, lane: Lane, entry: Entry, due_ms: int) -> None:
    """A message which was out waits for its time, or stands in line at once."""
    key = entry.key
    if key and state.blocks_keys():
        if key in lane.blocked:
            if due_ms > state.now_ms:
                lane.step_back(entry)
            elif lane.waits_for(entry):
                lane.set_aside(entry)
                return
        lane.block(key)
    if due_ms > state.now_ms:
        lane.wait(entry, due_ms)
    else:
        state.put_return(lane, entry)


def bury(
    state: QueueState,
    group: Group,
    lane: Lane,
    held: Held,
    reason: str,
    words: str,
    effects: list[Effect],
) -> None:
    """To the dead letters: it counts as settled when its copy there is stored."""
    entry = held.entry
    state.count_dead(reason)
    state.note_held(e.DEAD_LETTERED, group, held, reason)
    if not state.policy.dlq_enabled or state.policy.is_dead_letter_queue:
        state.done(group, lane, entry.seq)
        return
    lane.dying[entry.seq] = entry
    effects.append(DeadLetter(group.name, entry, reason, held.attempt, held.first_ms, words))


def expire(state: QueueState, entry: Entry, effects: list[Effect]) -> None:
    """Out of the lines of every group; one copy goes to the dead letters, where that is wanted."""
    partition = state.partitions[entry.partition]
    seq = entry.seq
    if seq in partition.gone:
        return
    copy = state.policy.expire_to_dlq and state.policy.dlq_enabled
    copies = len(effects)
    expired = False
    needed = False
    for group in state.groups.values():
        lane = group.lanes[entry.partition]
        if seq in lane.settled:
            continue
        if seq in lane.held or seq in lane.dying:
            needed = True
            continue
        expired = True
        lane.take_out(seq, state.blocks_keys())
        if not copy:
            state.done(group, lane, seq)
            continue
        copy = False
        needed = True
        state.count_dead(EXPIRED)
        lane.doom(entry)
        tally = lane.tallies.get(seq)
        attempts = 0 if tally is None else tally.attempts
        first_ms = 0 if tally is None else tally.first_ms
        effects.append(DeadLetter(group.name, entry, EXPIRED, attempts, first_ms, ""))
    if not state.groups:
        expired = True
        state.loose -= 1
        if copy:
            state.count_dead(EXPIRED)
            effects.append(DeadLetter("", entry, EXPIRED, 0, 0, ""))
    if not state.groups or (state.policy.is_stream and not needed):
        expired = True
        partition.gone.add(seq)
    if expired:
        state.counters.expired += 1
        state.note(e.EXPIRED, entry)
    for effect in effects[copies:]:
        assert isinstance(effect, DeadLetter)
        state.note(e.DEAD_LETTERED, entry, effect.group, "", effect.attempts, EXPIRED)
