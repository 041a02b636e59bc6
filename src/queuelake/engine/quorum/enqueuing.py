"""Commands of enqueuers: nothing is stored twice, and the messages of one are stored in order."""

from __future__ import annotations

from queuelake.engine.message import PRIORITY_MAX
from queuelake.engine.publishers import NEW, PARKED, REPEATED
from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum.effects import QueueStatus
from queuelake.engine.quorum.message import Message
from queuelake.engine.quorum.sessions import Enqueuer
from queuelake.engine.quorum.state import QuorumState


def register(state: QuorumState, pid: str) -> r.Reply:
    enqueuer = _session(state, pid)
    enqueuer.suspected = False
    return r.Reply(r.REJECT_PUBLISH) if state.rejecting else r.OK


def enqueue(state: QuorumState, command: c.Enqueue) -> r.Reply:
    """Parked counts as accepted: it is stored when the gap is filled, or when its session ends."""
    if not command.pid or not command.seq:
        if state.rejecting:  # nobody to be told to stop, so this is where it stops
            return _refuse(state, command)
        _store(state, command)
        return r.OK
    enqueuer = _session(state, command.pid)
    numbers = enqueuer.numbers
    verdict = numbers.check(command.seq)
    if verdict == NEW:
        _store(state, command)
        numbers.next += 1
        _store_parked(state, enqueuer)
    elif verdict == REPEATED or command.seq in numbers.parked:
        state.release(state.index, command.size)
    elif verdict == PARKED and not command.due_ms:
        numbers.parked[command.seq] = _message(state, command)
    else:
        return _refuse(state, command)
    return r.OK


def end(state: QuorumState, enqueuer: Enqueuer) -> None:
    """The gaps will not be filled: what was parked behind them is stored, in order."""
    parked = enqueuer.numbers.parked
    for seq in sorted(parked):
        message = parked[seq]
        assert isinstance(message, Message)
        state.stored(message)
    del state.enqueuers[enqueuer.pid]
    state.end_session(enqueuer.pid)


def _session(state: QuorumState, pid: str) -> Enqueuer:
    enqueuer = state.enqueuers.get(pid)
    if enqueuer is None:
        enqueuer = state.enqueuers[pid] = Enqueuer(pid)
        state.begin_session(pid)
        if state.rejecting:
            enqueuer.blocked_index = state.index
            state.effects.append(QueueStatus(pid, True, state.index))
    return enqueuer


def _store_parked(state: QuorumState, enqueuer: Enqueuer) -> None:
    numbers = enqueuer.numbers
    while numbers.parked:
        message = numbers.take_parked()
        if message is None:
            return
        assert isinstance(message, Message)
        state.stored(message)
        numbers.next += 1


def _store(state: QuorumState, command: c.Enqueue) -> None:
    message = _message(state, command)
    if command.due_ms > state.now_ms:
        state.stored_aside(message, command.due_ms)
    else:
        state.stored(message)


def _message(state: QuorumState, command: c.Enqueue) -> Message:
    ttl_ms = state.policy.ttl_ms
    if ttl_ms < 0 or 0 <= command.ttl_ms < ttl_ms:
        ttl_ms = command.ttl_ms
    # Without any time to live a message can be handed out in the millisecond in which it came.
    expires_ms = 0 if ttl_ms < 0 else state.now_ms + max(1, ttl_ms)
    priority = min(PRIORITY_MAX, max(0, command.priority))
    return Message(state.index, command.size, priority, expires_ms)


def _refuse(state: QuorumState, command: c.Enqueue) -> r.Reply:
    state.release(state.index, command.size)
    return r.Reply(r.NOT_ENQUEUED)
