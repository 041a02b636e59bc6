"""Messages which wait aside: made due before their time, or fetched by their token."""

from __future__ import annotations

from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum.dispatching import chunks
from queuelake.engine.quorum.effects import Delivery
from queuelake.engine.quorum.state import EXPIRED, QuorumState


def make_due(state: QuorumState) -> None:
    """Those whose time has come are in line again, as any which returned."""
    for index in state.delays.take_due(state.now_ms):
        state.take_back(state.undelay(index))


def retry(state: QuorumState, command: c.DelayedRetry) -> r.Reply:
    """By time; those which only a token would bring back come last, the oldest first."""
    count = 0
    while count < command.count and state.delays.next_ms():
        state.take_back(state.undelay(state.delays.take_next()))
        count += 1
    if count < command.count:
        for index in sorted(state.delayed)[: command.count - count]:
            state.take_back(state.undelay(index))
            count += 1
    return r.Counted(count)


def assign(state: QuorumState, command: c.AssignDeferred) -> r.Reply:
    consumer = state.consumers.get(command.key)
    if consumer is None:
        return r.Reply(r.NOT_FOUND)
    assigned: list[Delivery] = []
    for token in command.tokens:
        for index in list(state.tokens.get(token, ())):
            if not consumer.may_be_served():
                break
            message = state.undelay(index)
            if message.is_expired(state.now_ms):
                state.bury(message, EXPIRED)
                continue
            msg_id = state.hold(consumer, message)
            assigned.append(message.delivery(msg_id))
    state.effects.extend(chunks(consumer, assigned))
    if not consumer.may_be_served():
        state.service.leave(consumer)
    return r.Counted(len(assigned))
