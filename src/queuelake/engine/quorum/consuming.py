"""Commands of consumers: coming, going, taking one message, and saying how many they take."""

from __future__ import annotations

from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum.activating import arrive, changed, elect
from queuelake.engine.quorum.dispatching import held_again, next_message
from queuelake.engine.quorum.policy import PREFETCH_UNLIMITED
from queuelake.engine.quorum.returning import NEUTRAL, give_back_all
from queuelake.engine.quorum.sessions import Consumer
from queuelake.engine.quorum.state import QuorumState


def checkout(state: QuorumState, command: c.Checkout) -> r.Reply:
    """One which is known keeps its key, its numbers and what it holds, and is up again."""
    state.last_active_ms = state.now_ms
    known = state.ids.get((command.pid, command.tag))
    if known is None:
        consumer = _new(state, command.pid, command.tag)
    else:
        consumer = state.consumers[known]
        state.service.leave(consumer)  # its priority is its place
        state.suspicions.clear(consumer.key)
        consumer.suspected = False
        consumer.timed_out.clear()
        state.effects.extend(held_again(consumer))
    is_new = known is None or consumer.cancelled
    consumer.cancelled = False
    consumer.priority = command.priority
    consumer.timeout_ms = command.timeout_ms
    if command.credited and (is_new or not consumer.credited):
        consumer.credit = max(0, command.prefetch)
    consumer.credited = command.credited
    consumer.prefetch = command.prefetch if command.prefetch > 0 else PREFETCH_UNLIMITED
    consumer.refill()
    next_id = consumer.next_id
    if is_new:
        arrive(state, consumer)
    else:
        changed(state, consumer)
    return r.CheckedOut(consumer.key, next_id)


def cancel(state: QuorumState, command: c.Cancel) -> r.Reply:
    known = state.ids.get((command.pid, command.tag))
    if known is None:
        return r.Reply(r.NOT_FOUND)
    state.last_active_ms = state.now_ms
    consumer = state.consumers[known]
    if command.remove:
        remove(state, consumer, NEUTRAL)
        return r.OK
    consumer.cancelled = True
    consumer.waiting = False
    changed(state, consumer)
    if not consumer.held:
        state.forget(consumer)
    return r.OK


def remove(state: QuorumState, consumer: Consumer, cause: int) -> None:
    """It is gone, and what it holds returns."""
    consumer.cancelled = True
    consumer.waiting = False
    state.service.leave(consumer)
    give_back_all(state, consumer, cause)
    if state.policy.single_active_consumer:
        elect(state)
    state.forget(consumer)


def dequeue(state: QuorumState, command: c.Dequeue) -> r.Reply:
    """A consumer for one message, which it may settle later: it is cancelled from the first."""
    if state.policy.single_active_consumer:
        return r.Reply(r.SINGLE_ACTIVE)
    if not command.settled and (command.pid, command.tag) in state.ids:
        return r.Reply(r.TAG_IN_USE)
    state.last_active_ms = state.now_ms
    message = next_message(state)
    if message is None:
        return r.Reply(r.EMPTY)
    if command.settled:
        message.acquired += 1
        state.end(message)
        return r.Dequeued(0, message.delivery(0), state.lines.count)
    consumer = _new(state, command.pid, command.tag)
    consumer.cancelled = True
    consumer.prefetch = 1
    consumer.credit = 1
    msg_id = state.hold(consumer, message)
    return r.Dequeued(consumer.key, message.delivery(msg_id), state.lines.count)


def credit(state: QuorumState, command: c.Credit) -> r.Reply:
    """OK: `credited` has the answer when the messages are handed out."""
    consumer = state.consumers.get(command.key)
    if consumer is None:
        return r.Reply(r.NOT_FOUND)
    if not consumer.credited:
        return r.Reply(r.NOT_CREDITED)
    consumer.credit = max(0, command.delivery_count + command.credit - consumer.delivery_count)
    changed(state, consumer)
    return r.OK


def credited(state: QuorumState, command: c.Credit) -> r.Reply:
    consumer = state.consumers[command.key]
    drained = 0
    if command.drain and consumer.credit:
        drained = consumer.credit
        consumer.delivery_count += drained
        consumer.credit = 0
        state.service.leave(consumer)
    return r.Credited(consumer.credit, consumer.delivery_count, state.lines.count, drained)


def _new(state: QuorumState, pid: str, tag: str) -> Consumer:
    consumer = Consumer(state.index, pid, tag)
    state.consumers[consumer.key] = consumer
    state.ids[(pid, tag)] = consumer.key
    state.begin_session(pid)
    return consumer
