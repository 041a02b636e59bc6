"""Publishes to a quorum queue: messages and settlements. Answers are MQTT reason codes."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from queuelake import names
from queuelake.broker.queues.deadletters import PREFIX as DEAD_LETTER
from queuelake.broker.queues.incoming import (
    DIGEST_BYTES,
    Incoming,
    digits,
    moment,
    refused,
    skip_property,
)
from queuelake.broker.quorum.burying import REASON
from queuelake.broker.quorum.rows import PARTITION
from queuelake.engine.machine import Command
from queuelake.engine.message import PRIORITY_DEFAULT
from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum.policy import UNSET
from queuelake.protocol import reasons
from queuelake.protocol.properties import TYPES, USER_PROPERTY, read_properties
from queuelake.protocol.wire import Reader, varint
from queuelake.storage.chunk import Record

if TYPE_CHECKING:
    from queuelake.broker.queues.target import Target
    from queuelake.broker.quorum.host import QuorumHost
    from queuelake.broker.session import Session
    from queuelake.protocol.message import Message

DELIVERY_FAILED: Final = b"delivery-failed"  # of a $nack: it counts as a failure
DELIVERY_TIME: Final = c.DELIVERY_TIME.encode()
DEFERRAL_TOKEN: Final = c.DEFERRAL_TOKEN.encode()
TOKEN_BYTES_MAX: Final = 1_024
COUNTS: Final = (b"x-acquired-count", b"x-delivery-count")
ALL_PROPERTIES: Final = frozenset(TYPES)


def publish(
    target: Target,
    incoming: Incoming,
    payload: bytes,
    publisher: bytes,
    qos: int,
    session: Session | None,
    now_ms: int,
) -> int:
    """What a publish to the topic of a quorum queue, or below it, asks for.

    Raises:
        RefusedError: a property makes no sense.
    """
    host = target.quorum
    assert host is not None
    host.active_ms = now_ms
    if target.operation == names.FETCH:
        return fetch(host, incoming, session, now_ms)
    if target.operation != names.ENQUEUE:
        return settle(host, target.operation, incoming, session, now_ms)
    pid = host.pid_of(session) if session is not None and qos else ""
    return enqueue(host, incoming, b"", payload, publisher, qos, pid, now_ms)


def capture(host: QuorumHost, incoming: Incoming, message: Message) -> int:
    """A message of an ordinary topic which the queue is bound to."""
    host.active_ms = now_ms = message.ts_ms
    publisher, payload = message.publisher.encode(), message.payload()
    return enqueue(host, incoming, message.topic, payload, publisher, message.qos, "", now_ms)


def enqueue(
    host: QuorumHost,
    incoming: Incoming,
    topic: bytes,
    payload: bytes,
    publisher: bytes,
    qos: int,
    pid: str,
    now_ms: int,
) -> int:
    """Make a message part of a queue; `topic` when it is not the queue's own."""
    priority = PRIORITY_DEFAULT
    due_ms = 0
    if incoming.has_timing:
        priority = incoming.priority()
        due_ms = incoming.due_ms(now_ms)
    machine = host.machine
    if machine.rejecting:
        host.counters.refused += 1
        host.queues.problem = full(host)
        return reasons.QUOTA_EXCEEDED
    if incoming.message_id and host.dedupe_window_ms:
        identity = publisher + b"\0" + incoming.message_id
        digest = hashlib.blake2b(identity, digest_size=DIGEST_BYTES).digest()
        if host.ids.is_known(digest, now_ms):
            host.counters.duplicates += 1
            return 0  # it is here already: the publisher may forget it
        host.ids.add(digest, now_ms, now_ms + host.dedupe_window_ms)
    now_ms = max(now_ms, machine.now_ms)  # as the machine has it
    ttl_ms = _ttl_ms(machine.policy.ttl_ms, incoming.expiry_ms)
    record = Record(
        topic,
        incoming.key,
        incoming.message_id,
        publisher,
        _without_claims(incoming.properties),
        payload,
        qos,
        priority,
        now_ms,
        now_ms + max(1, ttl_ms) if ttl_ms >= 0 else 0,
    )
    host.enqueue(record, pid, ttl_ms, now_ms, due_ms)
    return 0


def _ttl_ms(queue_ms: int, message_ms: int) -> int:
    """The shorter one of those which are set."""
    if message_ms < 0 or queue_ms < 0:
        return max(queue_ms, message_ms, UNSET)
    return min(queue_ms, message_ms)


def _without_claims(properties: bytes) -> bytes:
    """What only the broker says is not the publisher's: counts, and the story of a dead letter."""
    if b"-count" not in properties and DEAD_LETTER not in properties:
        return properties
    kept: list[bytes] = []
    at = 0
    while at < len(properties):
        end = skip_property(properties, at)
        if properties[at] != USER_PROPERTY or not _is_claim(properties, at):
            kept.append(properties[at:end])
        at = end
    return b"".join(kept)


def _is_claim(properties: bytes, at: int) -> bool:
    """Of the user property there."""
    key = properties[at + 3 : at + 3 + (properties[at + 1] << 8 | properties[at + 2])]
    return key in COUNTS or key.startswith(DEAD_LETTER)


def full(host: QuorumHost) -> str:
    """In words, why it takes no messages."""
    machine, policy = host.machine, host.machine.policy
    held = f"{machine.waiting_count()} of {policy.length_max} messages"
    if not policy.length_max or machine.waiting_count() <= policy.length_max * 4 // 5:
        held = f"{machine.waiting_bytes()} of {policy.bytes_max} bytes"
    if policy.length_max or policy.bytes_max:
        held += "; it takes more when it is down to 80 %"
    return f"queue {names.address(host.name)!r} holds {held}"


# Settlements


def settle(
    host: QuorumHost, operation: int, incoming: Incoming, session: Session | None, now_ms: int
) -> int:
    """Ack, nack or reject one delivery."""
    problems = host.queues
    if not incoming.message_id:
        problems.problem = "user property message-id is missing"
        return reasons.IMPLEMENTATION_SPECIFIC_ERROR
    seqs = _sequences(host, incoming.message_id)
    holders = host.by_session.get(session.id, []) if session is not None else []
    for subscriber in holders:
        for seq in seqs:
            msg_id = subscriber.held_as(seq)
            if msg_id >= 0:
                command = _command(subscriber.key, msg_id, operation, incoming, now_ms)
                subscriber.settle(command, seq, now_ms)
                return 0
    if not seqs:
        problems.problem = "there is no delivery with this message-id"
        return reasons.NO_MATCHING_SUBSCRIBERS
    if all([seq in host.gone for seq in seqs]):
        if operation == names.SETTLE_ACK:
            return 0  # settled before: to say it twice does no harm
        problems.problem = "this message is settled already"
        return reasons.NO_MATCHING_SUBSCRIBERS
    client_id = session.client_id if session is not None else ""
    problems.problem = f"this delivery is not in the hands of {client_id!r}"
    return reasons.NOT_AUTHORIZED


def _command(key: int, msg_id: int, operation: int, incoming: Incoming, now_ms: int) -> Command:
    if operation == names.SETTLE_ACK:
        return c.Settle(key, [msg_id])
    if operation == names.SETTLE_REJECT:
        words = incoming.reason.decode()[:1000]
        if words:
            return c.Modify(key, [msg_id], False, True, {REASON: words})
        return c.Discard(key, [msg_id])
    said = _user_properties(incoming.properties)
    failed = _has_failed(said)
    due_ms = _due_ms(said, incoming, now_ms)
    token = said.get(DEFERRAL_TOKEN, b"")
    if len(token) > TOKEN_BYTES_MAX:
        allowed = f"at most {TOKEN_BYTES_MAX} bytes, not {len(token)}"
        raise refused(c.DEFERRAL_TOKEN, token, allowed)
    notes: dict[str, str] = {}
    if due_ms:
        notes[c.DELIVERY_TIME] = str(due_ms)
    if token:
        notes[c.DEFERRAL_TOKEN] = token.decode()
    if failed or notes:
        return c.Modify(key, [msg_id], failed, False, notes or None)
    return c.Return(key, [msg_id])


def _has_failed(said: dict[bytes, bytes]) -> bool:
    value = said.get(DELIVERY_FAILED, b"false")
    if value not in (b"true", b"false"):
        raise refused("delivery-failed", value, "true or false")
    return value == b"true"


def _due_ms(said: dict[bytes, bytes], incoming: Incoming, now_ms: int) -> int:
    """Not before then, if the consumer says so; 0: it does not."""
    delay_ms = incoming.delay_ms()
    if delay_ms:
        return now_ms + delay_ms
    value = said.get(DELIVERY_TIME, b"")
    return moment(c.DELIVERY_TIME, value, now_ms) if value else 0


def fetch(host: QuorumHost, incoming: Incoming, session: Session | None, now_ms: int) -> int:
    """Hand what was deferred under a token to a consumer of whoever asks for it."""
    token = _user_properties(incoming.properties).get(DEFERRAL_TOKEN, b"").decode()
    if not token:
        host.queues.problem = f"user property {c.DEFERRAL_TOKEN} is missing"
        return reasons.IMPLEMENTATION_SPECIFIC_ERROR
    known = host.by_session.get(session.id, []) if session is not None else []
    for subscriber in known:
        if subscriber.joined:
            reply = host.apply(c.AssignDeferred(subscriber.key, [token]), now_ms)
            if isinstance(reply, r.Counted) and reply.count:
                return 0
    host.queues.problem = (
        f"nothing is deferred under {token!r}, or no consumer here has room for it"
    )
    return reasons.NO_MATCHING_SUBSCRIBERS


def _user_properties(properties: bytes) -> dict[bytes, bytes]:
    data = varint(len(properties)) + properties
    return dict(read_properties(Reader(data, 0, len(data)), ALL_PROPERTIES).user)


def _sequences(host: QuorumHost, message_id: bytes) -> list[int]:
    """Of the messages which this id may mean; none: it was never delivered."""
    known = host.delivered_ids.get(message_id)
    if known is not None:
        return known
    # From the end: the sequence, the partition, and what is left is the queue.
    seq, at = digits(message_id, len(message_id))
    partition, end = digits(message_id, at)
    if at == 0 or end == 0 or partition != PARTITION or not 0 < seq <= host.last:
        return []
    name = message_id[:end]
    if name != host.topic and name != host.topic[len(names.PREFIX) :]:
        return []
    return [seq]
