"""Who gets which message next."""

from __future__ import annotations

from typing import Final

from queuelake.engine.machine import Effect
from queuelake.engine.quorum.effects import DeadLetterDeliver, Deliver, Delivery
from queuelake.engine.quorum.message import Message
from queuelake.engine.quorum.sessions import Consumer
from queuelake.engine.quorum.state import EXPIRED, QuorumState

CHUNK_BYTES_MAX: Final = 128 * 1024  # of one `Deliver`, but for a message which is larger alone


def dispatch(state: QuorumState) -> None:
    """Hand out what can be handed out."""
    service = state.service
    if service.is_empty() or not state.lines.count:
        return
    batches: dict[int, list[Delivery]] = {}
    while not service.is_empty():
        message = next_message(state)
        if message is None:
            break
        consumer = service.first()
        msg_id = state.hold(consumer, message)
        service.served()
        batch = batches.get(consumer.key)
        if batch is None:
            batch = batches[consumer.key] = []
        batch.append(message.delivery(msg_id))
    for key, batch in batches.items():
        state.effects.extend(chunks(state.consumers[key], batch))


def held_again(consumer: Consumer) -> list[Effect]:
    """All it holds, for a consumer which may not have got it."""
    return chunks(consumer, [one.delivery(msg_id) for msg_id, one in consumer.held.items()])


def chunks(consumer: Consumer, deliveries: list[Delivery]) -> list[Effect]:
    """As effects of a bearable size."""
    found: list[Effect] = []
    chunk: list[Delivery] = []
    size = 0
    for delivery in deliveries:
        if chunk and size + delivery.size > CHUNK_BYTES_MAX:
            found.append(Deliver(consumer.pid, consumer.tag, consumer.key, chunk))
            chunk, size = [], 0
        chunk.append(delivery)
        size += delivery.size
    if chunk:
        found.append(Deliver(consumer.pid, consumer.tag, consumer.key, chunk))
    return found


def next_message(state: QuorumState) -> Message | None:
    """Out of its line; those which have lived too long go where they belong."""
    lines = state.lines
    while lines.count:
        message = lines.take()
        if not message.is_expired(state.now_ms):
            return message
        state.bury(message, EXPIRED)
    return None


def dispatch_letters(state: QuorumState) -> None:
    """Hand dead letters to the worker, which holds a limited number."""
    if not state.letters or not state.worker:
        return
    deliveries: list[Delivery] = []
    reasons: list[str] = []
    while state.letters and len(state.letters_held) < state.worker_prefetch:
        letter = state.letters.popleft()
        msg_id = state.worker_next_id
        state.worker_next_id = msg_id + 1
        state.letters_held[msg_id] = letter
        deliveries.append(letter.message.delivery(msg_id))
        reasons.append(letter.reason)
    if deliveries:
        state.effects.append(DeadLetterDeliver(state.worker, deliveries, reasons))
