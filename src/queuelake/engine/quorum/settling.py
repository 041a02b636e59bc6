"""What consumers say of the messages they hold; what they do not hold is passed over in silence.

That is normal: settled twice, or taken back meanwhile. Numbers of deliveries are never used again.
"""

from __future__ import annotations

from typing import Final

from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum.activating import changed
from queuelake.engine.quorum.message import Message
from queuelake.engine.quorum.returning import FAILED, RETURNED, give_back
from queuelake.engine.quorum.sessions import Consumer
from queuelake.engine.quorum.state import REJECTED, QuorumState

ANNOTATIONS_BYTES_MAX: Final = 4_096


def settle(state: QuorumState, command: c.Settle) -> r.Reply:
    consumer = state.consumers.get(command.key)
    if consumer is None:
        return r.OK
    for message in _let_go(state, consumer, command.ids):
        state.end(message)
    _answered(state, consumer, command.ids)
    return r.OK


def give(state: QuorumState, command: c.Return) -> r.Reply:
    consumer = state.consumers.get(command.key)
    if consumer is None:
        return r.OK
    for message in _let_go(state, consumer, command.ids):
        give_back(state, message, RETURNED)
    _answered(state, consumer, command.ids)
    return r.OK


def discard(state: QuorumState, command: c.Discard) -> r.Reply:
    consumer = state.consumers.get(command.key)
    if consumer is None:
        return r.OK
    _discard(state, consumer, command.ids, None)
    return r.OK


def modify(state: QuorumState, command: c.Modify) -> r.Reply:
    consumer = state.consumers.get(command.key)
    if consumer is None:
        return r.OK
    notes = dict(command.annotations or {})
    if sum([len(name) + len(value) for name, value in notes.items()]) > ANNOTATIONS_BYTES_MAX:
        return r.Reply(r.TOO_LARGE)
    due_ms = _moment(notes.pop(c.DELIVERY_TIME, ""))
    token = notes.pop(c.DEFERRAL_TOKEN, "")
    if command.undeliverable_here:
        _discard(state, consumer, command.ids, notes)
        return r.OK
    cause = FAILED if command.delivery_failed else RETURNED
    for message in _let_go(state, consumer, command.ids):
        message.annotations = _merged(message.annotations, notes)
        give_back(state, message, cause, due_ms, token)
    _answered(state, consumer, command.ids)
    return r.OK


def requeue(state: QuorumState, command: c.Requeue) -> r.Reply:
    consumer = state.consumers.get(command.key)
    message = state.let_go(consumer, command.msg_id) if consumer is not None else None
    if consumer is None or message is None:
        state.release(state.index, command.size)
        return r.Reply(r.NOT_FOUND)
    state.release(message.index, message.size)
    message.index = state.index
    message.size = command.size
    give_back(state, message, RETURNED)
    _answered(state, consumer, [command.msg_id])
    return r.OK


def _discard(
    state: QuorumState, consumer: Consumer, ids: list[int], notes: dict[str, str] | None
) -> None:
    for message in _let_go(state, consumer, ids):
        message.failures += 1
        message.annotations = _merged(message.annotations, notes)
        state.bury(message, REJECTED)
    _answered(state, consumer, ids)


def _let_go(state: QuorumState, consumer: Consumer, ids: list[int]) -> list[Message]:
    """Those of them which it holds."""
    found = [state.let_go(consumer, msg_id) for msg_id in ids]
    return [message for message in found if message is not None]


def _answered(state: QuorumState, consumer: Consumer, ids: list[int]) -> None:
    """It may get more now, or is done."""
    consumer.refill()
    was_up = not consumer.timed_out
    if not was_up:
        consumer.timed_out.difference_update(ids)
    if consumer.cancelled:
        if not consumer.held:
            state.forget(consumer)
    elif consumer.quiescing or not was_up:
        changed(state, consumer)
    else:
        state.service.enter(consumer)


def _moment(text: str) -> int:
    """Milliseconds, or 0 when that is no such number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


def _merged(former: dict[str, str] | None, notes: dict[str, str] | None) -> dict[str, str] | None:
    return {**(former or {}), **notes} if notes else former
