"""Orders from above, and what time brings."""

from __future__ import annotations

from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum.activating import realign
from queuelake.engine.quorum.burying import drop_backlog
from queuelake.engine.quorum.delaying import make_due
from queuelake.engine.quorum.effects import Eol, QueueDeleted, Timer
from queuelake.engine.quorum.failing import disconnected_too_long, held_too_long
from queuelake.engine.quorum.limiting import expire
from queuelake.engine.quorum.message import Message
from queuelake.engine.quorum.policy import QuorumPolicy
from queuelake.engine.quorum.service import ServiceQueue
from queuelake.engine.quorum.state import QuorumState


def purge(state: QuorumState) -> r.Reply:
    count = drop_backlog(state)
    for message in [*state.lines.in_order(), *state.delayed.values()]:
        state.end(message)
        count += 1
    state.lines.clear()
    state.delayed.clear()
    state.delays.clear_all()
    state.tokens.clear()
    state.delayed_bytes = 0
    return r.Counted(count)


def configure(state: QuorumState, policy: QuorumPolicy) -> None:
    """New limits hold at once; times to live and deadlines for what comes from now on."""
    before = state.policy
    state.policy = policy
    if before.buries_surely() and not policy.buries_surely():
        drop_backlog(state)
    if before.single_active_consumer != policy.single_active_consumer:
        realign(state)


def delete(state: QuorumState) -> None:
    """Every session is told; what is left is nothing."""
    for pid in state.sessions:
        state.effects.append(Eol(pid))
    purge(state)
    for consumer in state.consumers.values():
        for message in consumer.held.values():
            state.end(message)
    for enqueuer in state.enqueuers.values():
        for parked in enqueuer.numbers.parked.values():
            assert isinstance(parked, Message)
            state.release(parked.index, parked.size)
    state.held_count = 0
    state.held_bytes = 0
    state.consumers.clear()
    state.enqueuers.clear()
    state.ids.clear()
    state.sessions.clear()
    state.service = ServiceQueue()
    state.active = None
    state.worker = ""
    state.rejecting = False
    state.deadlines.clear_all()
    state.suspicions.clear_all()
    state.timers = [0] * c.TIMERS
    state.deleted = True
    state.effects.append(QueueDeleted())


def time_out(state: QuorumState, name: int) -> None:
    state.timers[name] = 0
    if name == c.EXPIRY:
        expire(state)
    elif name == c.CONSUMER_TIMEOUT:
        held_too_long(state)
    elif name == c.DISCONNECTED:
        disconnected_too_long(state)
    elif name == c.DELAYED:
        make_due(state)
    elif name == c.IDLE and 0 < _idle_until_ms(state) <= state.now_ms:
        delete(state)


def set_timers(state: QuorumState) -> None:
    """A timer may go off for nothing, but never too late: so it is only ever set earlier."""
    if state.uses_expiry:
        _set_timer(state, c.EXPIRY, state.lines.next_expiry_ms())
    _set_timer(state, c.CONSUMER_TIMEOUT, state.deadlines.next_ms())
    _set_timer(state, c.DISCONNECTED, state.suspicions.next_ms())
    _set_timer(state, c.DELAYED, state.delays.next_ms())
    if state.policy.expires_ms:
        _set_timer(state, c.IDLE, _idle_until_ms(state))


def tidy(state: QuorumState) -> None:
    state.delays.tidy()
    state.deadlines.tidy()
    state.suspicions.tidy()


def _set_timer(state: QuorumState, name: int, due_ms: int) -> None:
    if due_ms and (not state.timers[name] or due_ms < state.timers[name]):
        state.timers[name] = due_ms
        state.effects.append(Timer(name, due_ms))


def _idle_until_ms(state: QuorumState) -> int:
    """When nobody will have used it for too long; 0: somebody does, or it may be idle."""
    if not state.policy.expires_ms:
        return 0
    for consumer in state.consumers.values():
        if not consumer.cancelled and not consumer.suspected:
            return 0
    return state.last_active_ms + state.policy.expires_ms
