"""What becomes of a delivery of a message queue: done, to another consumer, or a dead letter.

Whoever rejects a message is not asked again while there is another, at least for a while. A message
which was lost or put back goes to anybody at once; only rejections and timeouts count for the dead
letters. What left the queue while it was in hand is in nobody's line: see `leaving`.
"""

from __future__ import annotations

from queuelake.engine import commands as c
from queuelake.engine import events as e
from queuelake.engine.groups import GROUP, Group
from queuelake.engine.lane import Held, Lane
from queuelake.engine.leaving import account, depart
from queuelake.engine.machine import Effect
from queuelake.engine.policy import retry
from queuelake.engine.settling import bury, not_held
from queuelake.engine.state import NOT_FOUND, NOT_HELD, QueueState


def settle(state: QueueState, command: c.Settle, effects: list[Effect]) -> None:
    if command.group != GROUP or command.partition != 0:
        state.reply = NOT_FOUND
        return
    group = state.groups[GROUP]
    lane = group.lanes[0]
    seq = command.seq
    outcome = command.outcome
    held = lane.held.get(seq)
    if outcome == c.BURIED:
        dead = lane.dying.pop(seq, None)
        if dead is not None:
            depart(state, group, lane, dead)
    elif held is None:
        state.reply = not_held(state, lane, seq, outcome)
    elif held.consumer.name != command.consumer:
        state.reply = NOT_HELD
    elif outcome == c.ACK:
        state.counters.acked += 1
        if state.policy.events == e.ALL:
            state.note_held(e.ACKED, group, held)
        state.let_go(lane, held)
        if seq not in lane.settled:
            depart(state, group, lane, held.entry)
    elif outcome == c.NACK:
        put_back(state, lane, held, state.now_ms + command.delay_ms)
    else:
        state.counters.nacked += 1
        state.note_held(e.REJECTED, group, held, command.reason)
        _refused(state, group, lane, held, command.reason, effects)


def put_back(state: QueueState, lane: Lane, held: Held, due_ms: int) -> None:
    """It was not this consumer's to keep: as if it had not been handed out."""
    state.let_go(lane, held)
    entry = held.entry
    if entry.seq in lane.settled:
        return
    lane.come_back(entry, held.attempt - 1, held.first_ms, due_ms)
    if due_ms > state.now_ms:
        lane.wait(entry, due_ms)
    else:
        state.put_return(lane, entry)


def _refused(
    state: QueueState, group: Group, lane: Lane, held: Held, words: str, effects: list[Effect]
) -> None:
    """To another consumer; if there is none, to anybody after a while."""
    state.let_go(lane, held)
    entry = held.entry
    if entry.seq in lane.settled:
        return
    reason = retry.verdict(state.policy, held.attempt, entry.ts_ms, state.now_ms)
    if reason:
        bury(state, group, lane, held, reason, words, effects)
        if entry.seq in lane.settled:
            account(state, entry)
        return
    due_ms = state.now_ms + state.policy.redispatch_ms
    lane.come_back(entry, held.attempt, held.first_ms, due_ms)
    name = held.consumer.name
    if len(group.consumers) > (1 if name in group.consumers else 0):
        lane.tallies[entry.seq].without = name
        state.put_return(lane, entry)
    else:
        lane.wait(entry, due_ms)


def lose(state: QueueState, name: str) -> None:
    """A consumer has left: what it had goes to others, in order."""
    lane = state.groups[GROUP].lanes[0]
    theirs = [held for held in lane.held.values() if held.consumer.name == name]
    theirs.sort(key=_sequence_of)
    for held in theirs:
        put_back(state, lane, held, state.now_ms)


def time_out(state: QueueState, effects: list[Effect]) -> None:
    """Those who kept a message too long are treated as if they had rejected it."""
    group = state.groups[GROUP]
    lane = group.lanes[0]
    now_ms = state.now_ms
    while lane.waiting and (entry := lane.next_due(now_ms)) is not None:
        state.put_return(lane, entry)
    while state.policy.delivery_timeout_ms and lane.held:
        held = next(iter(lane.held.values()))
        if held.deadline_ms > now_ms:
            break
        state.counters.timed_out += 1
        state.note_held(e.TIMED_OUT, group, held)
        _refused(state, group, lane, held, "", effects)


def _sequence_of(held: Held) -> int:
    return held.entry.seq
