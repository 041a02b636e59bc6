"""The whole state of a quorum queue as bytes, equal on every replica at the same index.

Payloads are no part of it: they are in the log, at `live_indexes`. What can be found from the rest
(lines by priority, who is in service with which credit aside) is not written but made anew.
"""

from __future__ import annotations

import hashlib
from typing import final

import msgspec

from queuelake.engine.quorum.machine import QuorumQueue
from queuelake.engine.quorum.message import DELAYED, HELD, LETTER, READY, RETURNED, Letter, Message
from queuelake.engine.quorum.policy import QuorumPolicy
from queuelake.engine.quorum.querying import live_indexes
from queuelake.engine.quorum.sessions import Consumer, Enqueuer
from queuelake.errors import StoreFormatError

VERSION = 1
_POLICY_FIELDS = tuple(
    name
    for name in sorted(dir(QuorumPolicy()))
    if not name.startswith("_") and not callable(getattr(QuorumPolicy(), name))
)

# Index, size, priority, expiry, acquired, failures, lock, token, annotations.
_Message = tuple[int, int, int, int, int, int, int, str, dict[str, str] | None]
_Letter = tuple[_Message, str]


class _Consumer(msgspec.Struct, array_like=True):
    key: int
    pid: str
    tag: str
    prefetch: int
    priority: int
    timeout_ms: int
    credited: bool
    credit: int
    delivery_count: int
    next_id: int
    held: list[tuple[int, _Message]]
    cancelled: bool
    suspected: bool
    timed_out: list[int]
    quiescing: bool
    waiting: bool
    since: int


class _Enqueuer(msgspec.Struct, array_like=True):
    pid: str
    next: int
    parked: list[tuple[int, _Message]]
    suspected: bool
    blocked_index: int


class _Queue(msgspec.Struct, array_like=True):
    version: int
    policy: list[int | bool | str]
    index: int
    now_ms: int
    last_active_ms: int
    deleted: bool
    returns: list[_Message]
    ready: list[_Message]
    delayed: list[_Message]
    delays: list[tuple[int, int]]
    tokens: list[tuple[str, list[int]]]
    uses_expiry: bool
    released_bytes: int
    letters: list[_Letter]
    letters_held: list[tuple[int, _Letter]]
    worker: tuple[str, int, int]
    enqueuers: list[_Enqueuer]
    rejecting: bool
    consumers: list[_Consumer]
    sessions: list[str]
    service: list[int]
    active: int
    deadlines: list[tuple[int, int]]
    suspicions: list[tuple[int, int]]
    timers: list[int]


@final
class Snapshot:
    """A state at its index, and where the log has payloads it needs; the rest below may go."""

    __slots__ = ("index", "live", "state")

    def __init__(self, index: int, state: bytes, live: list[int]) -> None:
        self.index = index
        self.state = state
        self.live = live


def take(queue: QuorumQueue) -> Snapshot:
    return Snapshot(queue.index, encode(queue), live_indexes(queue))


def state_hash(queue: QuorumQueue) -> bytes:
    return hashlib.blake2b(encode(queue), digest_size=16).digest()


def encode(queue: QuorumQueue) -> bytes:
    lines = queue.lines
    return msgspec.msgpack.encode(
        _Queue(
            VERSION,
            [getattr(queue.policy, name) for name in _POLICY_FIELDS],
            queue.index,
            queue.now_ms,
            queue.last_active_ms,
            queue.deleted,
            [_message(one) for one in lines.returns],
            [_message(one) for one in lines.in_order()[len(lines.returns) :]],
            [_message(queue.delayed[index]) for index in sorted(queue.delayed)],
            sorted(queue.delays.due_ms.items()),
            sorted(queue.tokens.items()),
            queue.uses_expiry,
            queue.released_bytes,
            [_letter(one) for one in queue.letters],
            [(msg_id, _letter(one)) for msg_id, one in queue.letters_held.items()],
            (queue.worker, queue.worker_prefetch, queue.worker_next_id),
            [_enqueuer(one) for one in queue.enqueuers.values()],
            queue.rejecting,
            [_consumer(one) for one in queue.consumers.values()],
            list(queue.sessions),
            [one.key for one in queue.service.in_order()],
            queue.active.key if queue.active is not None else 0,
            sorted(queue.deadlines.due_ms.items()),
            sorted(queue.suspicions.due_ms.items()),
            queue.timers,
        )
    )


def restore(data: bytes) -> QuorumQueue:
    """The queue whose state this is.

    Raises:
        StoreFormatError: another version of Queuelake wrote it.
    """
    version = msgspec.msgpack.decode(data, type=list[msgspec.Raw])[0]
    if bytes(version) != bytes([VERSION]):
        raise StoreFormatError(f"the state of a quorum queue is not of version {VERSION}")
    found = msgspec.msgpack.decode(data, type=_Queue)
    policy = QuorumPolicy()
    for name, value in zip(_POLICY_FIELDS, found.policy, strict=True):
        setattr(policy, name, value)
    queue = QuorumQueue(policy)
    queue.index = found.index
    queue.now_ms = found.now_ms
    queue.last_active_ms = found.last_active_ms
    queue.deleted = found.deleted
    queue.uses_expiry = found.uses_expiry
    queue.released_bytes = found.released_bytes
    queue.rejecting = found.rejecting
    queue.timers = found.timers
    _restore_messages(queue, found)
    _restore_sessions(queue, found)
    return queue


def _restore_messages(queue: QuorumQueue, found: _Queue) -> None:
    for one in found.returns:
        queue.lines.put_return(_to_message(one, RETURNED))
    for one in found.ready:
        queue.lines.put(_to_message(one, READY))
    for one in found.delayed:
        message = _to_message(one, DELAYED)
        queue.delayed[message.index] = message
        queue.delayed_bytes += message.size
    for index, due_ms in found.delays:
        queue.delays.set(index, due_ms)
    queue.tokens = dict(found.tokens)
    queue.letters.extend([_to_letter(one) for one in found.letters])
    queue.letters_held = {msg_id: _to_letter(one) for msg_id, one in found.letters_held}
    for letter in (*queue.letters, *queue.letters_held.values()):
        queue.letters_bytes += letter.message.size
    queue.worker, queue.worker_prefetch, queue.worker_next_id = found.worker
    letters = len(queue.letters) + len(queue.letters_held)
    queue.total = queue.lines.count + len(queue.delayed) + letters


def _restore_sessions(queue: QuorumQueue, found: _Queue) -> None:
    queue.sessions = dict.fromkeys(found.sessions, 0)
    if queue.worker:
        queue.sessions[queue.worker] += 1
    for stored in found.enqueuers:
        enqueuer = queue.enqueuers[stored.pid] = Enqueuer(stored.pid)
        enqueuer.numbers.next = stored.next
        for seq, parked in stored.parked:
            enqueuer.numbers.parked[seq] = _to_message(parked, READY)
        enqueuer.suspected = stored.suspected
        enqueuer.blocked_index = stored.blocked_index
        queue.sessions[stored.pid] += 1
    for one in found.consumers:
        consumer = _to_consumer(one)
        queue.consumers[consumer.key] = consumer
        queue.ids[(consumer.pid, consumer.tag)] = consumer.key
        queue.sessions[consumer.pid] += 1
        queue.held_count += len(consumer.held)
        queue.held_bytes += sum([message.size for message in consumer.held.values()])
    queue.total += queue.held_count
    for key in found.service:
        queue.service.enter(queue.consumers[key])
    queue.active = queue.consumers[found.active] if found.active else None
    for key, due_ms in found.deadlines:
        queue.deadlines.set(key, due_ms)
    for key, due_ms in found.suspicions:
        queue.suspicions.set(key, due_ms)


def _message(one: Message) -> _Message:
    return (
        one.index,
        one.size,
        one.priority,
        one.expires_ms,
        one.acquired,
        one.failures,
        one.lock_ms,
        one.token,
        dict(sorted(one.annotations.items())) if one.annotations else None,
    )


def _to_message(one: _Message, place: int) -> Message:
    message = Message(one[0], one[1], one[2], one[3])
    message.place = place
    _, _, _, _, message.acquired, message.failures, message.lock_ms, message.token, notes = one
    message.annotations = notes
    return message


def _letter(one: Letter) -> _Letter:
    return _message(one.message), one.reason


def _to_letter(one: _Letter) -> Letter:
    return Letter(_to_message(one[0], LETTER), one[1])


def _enqueuer(one: Enqueuer) -> _Enqueuer:
    parked: list[tuple[int, _Message]] = []
    for seq in sorted(one.numbers.parked):
        message = one.numbers.parked[seq]
        assert isinstance(message, Message)
        parked.append((seq, _message(message)))
    return _Enqueuer(one.pid, one.numbers.next, parked, one.suspected, one.blocked_index)


def _consumer(one: Consumer) -> _Consumer:
    return _Consumer(
        one.key,
        one.pid,
        one.tag,
        one.prefetch,
        one.priority,
        one.timeout_ms,
        one.credited,
        one.credit,
        one.delivery_count,
        one.next_id,
        [(msg_id, _message(message)) for msg_id, message in one.held.items()],
        one.cancelled,
        one.suspected,
        sorted(one.timed_out),
        one.quiescing,
        one.waiting,
        one.since,
    )


def _to_consumer(one: _Consumer) -> Consumer:
    consumer = Consumer(one.key, one.pid, one.tag)
    consumer.prefetch = one.prefetch
    consumer.priority = one.priority
    consumer.timeout_ms = one.timeout_ms
    consumer.credited = one.credited
    consumer.credit = one.credit
    consumer.delivery_count = one.delivery_count
    consumer.next_id = one.next_id
    consumer.held = {msg_id: _to_message(message, HELD) for msg_id, message in one.held}
    consumer.cancelled = one.cancelled
    consumer.suspected = one.suspected
    consumer.timed_out = set(one.timed_out)
    consumer.quiescing = one.quiescing
    consumer.waiting = one.waiting
    consumer.since = one.since
    return consumer
