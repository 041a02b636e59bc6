"""Publishes below `$queue/`: messages for queues, settlements, settings.

Each function answers with an MQTT reason code, 0 for success. Errors are answers too: nothing here
raises but for mistakes of ours.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from queuelake import names
from queuelake.broker.queues.incoming import DIGEST_BYTES, Incoming, digits, read_incoming
from queuelake.broker.quorum import publishing as quorum
from queuelake.engine import commands as c
from queuelake.engine.message import PRIORITY_DEFAULT
from queuelake.engine.state import DUPLICATE
from queuelake.errors import RefusedError
from queuelake.protocol import reasons
from queuelake.queue_settings import read_changes
from queuelake.storage.chunk import Record
from queuelake.storage.delayed import Delayed, put_delayed

if TYPE_CHECKING:
    from queuelake.broker.queues.durable import DurableHost
    from queuelake.broker.queues.registry import Queues
    from queuelake.broker.queues.target import Target
    from queuelake.broker.session import Session
    from queuelake.protocol.message import Message

CONFIG_SUFFIX: Final = b"/$config"
_OUTCOMES: Final = {
    names.SETTLE_ACK: c.ACK,
    names.SETTLE_NACK: c.NACK,
    names.SETTLE_REJECT: c.REJECT,
}


def publish(
    queues: Queues,
    target: Target | None,
    topic: bytes,
    qos: int,
    body: bytes,
    payload_at: int,
    expiry_at: int,
    publisher: bytes,
    session: Session | None,
    now_ms: int,
) -> int:
    """A publish to a topic below `$queue/`; `queues.problem` says in words why it is refused.

    `target` if the topic is known already; `body`, `payload_at` and `expiry_at` as in
    `packets.Publish`.
    """
    queues.problem = ""
    queues.durable = False
    try:
        if target is None:
            if topic.endswith(CONFIG_SUFFIX):
                return _configure(queues, topic, body[payload_at:])
            target = queues.target(topic)
        incoming = queues.incoming
        read_incoming(incoming, body, payload_at, expiry_at)
        host = target.host
        if host is None:
            queues.durable = True
            payload = body[payload_at:] if payload_at else body
            return quorum.publish(target, incoming, payload, publisher, qos, session, now_ms)
        queues.durable = not host.ephemeral
        host.active_ms = now_ms
        if target.operation == names.ENQUEUE:
            payload = body[payload_at:] if payload_at else body
            source = target.topic
            return enqueue(queues, host, incoming, source, payload, publisher, qos, now_ms)
        if qos:
            queues.runner.group.settlements += 1
        return settle(queues, host, target.operation, incoming, session, now_ms)
    except RefusedError as error:
        queues.problem = str(error)
        return error.reason_code


def _configure(queues: Queues, topic: bytes, payload: bytes) -> int:
    name = names.parse_publish(topic).name
    queues.configure(name, read_changes(payload))
    queues.durable = not names.is_response(name)
    return 0


def enqueue(
    queues: Queues,
    host: DurableHost,
    incoming: Incoming,
    topic: bytes,
    payload: bytes,
    publisher: bytes,
    qos: int,
    now_ms: int,
) -> int:
    """Make a message part of a queue; `topic` when it is not the queue's own."""
    refuse_if_held(queues, host)
    policy = host.machine.policy
    expires_ms = now_ms + policy.ttl_ms if policy.ttl_ms else 0
    if incoming.expiry_ms >= 0:
        own_ms = now_ms + incoming.expiry_ms
        expires_ms = own_ms if not expires_ms or own_ms < expires_ms else expires_ms
    priority = PRIORITY_DEFAULT
    due_ms = 0
    if incoming.has_timing:
        priority = incoming.priority()
        due_ms = incoming.due_ms(now_ms)
    record = Record(
        topic,
        incoming.key,
        incoming.message_id,
        publisher,
        incoming.properties,
        payload,
        qos,
        priority,
        now_ms,
        expires_ms,
    )
    dedupe = b""
    if incoming.message_id and policy.dedupe_window_ms:
        identity = publisher + b"\0" + incoming.message_id
        dedupe = hashlib.blake2b(identity, digest_size=DIGEST_BYTES).digest()
    partition = queues.partition_for(host, incoming.key)
    if due_ms:
        reply = _delay(queues, host, Delayed(due_ms, 0, partition, record), dedupe, now_ms)
    else:
        reply = host.enqueue(record, partition, dedupe, c.PUBLISHED, now_ms)
    if reply == DUPLICATE:
        return 0  # it is here already: the publisher may forget it
    if reply:
        queues.problem = words(host, reply, len(payload))
    return reply


def refuse_if_held(queues: Queues, host: DurableHost) -> None:
    """An archived queue takes nothing while the archive is too far behind."""
    if queues.hold_full and host.settings.archive:
        host.machine.counters.refused += 1
        problem = queues.archive.problem(names.address(host.name))
        raise RefusedError.because(reasons.QUOTA_EXCEEDED, problem)


def _delay(queues: Queues, host: DurableHost, delayed: Delayed, dedupe: bytes, now_ms: int) -> int:
    """Keep a message until it is due, in a table of its own."""
    if host.ephemeral:
        problem = "a reply cannot be delayed"
        raise RefusedError.because(reasons.IMPLEMENTATION_SPECIFIC_ERROR, problem)
    reply = host.apply(c.Accept(len(delayed.record.payload), dedupe), now_ms)
    if reply == 0:
        delayed.number = queues.new_number()
        put_delayed(queues.runner.group.batch, host.id, delayed)
        queues.runner.group.bytes += delayed.record.size()
    return reply


def capture(queues: Queues, name: str, message: Message) -> int:
    """A message of an ordinary topic which a queue is bound to."""
    host = queues.find(name)
    other = queues.quorum.find(name) if host is None else None
    if host is None and other is None:
        return 0
    queues.problem = ""
    try:
        incoming = queues.incoming
        read_incoming(incoming, message.body, message.payload_at, message.expiry_at)
        if host is None:
            assert other is not None
            return quorum.capture(other, incoming, message)
        host.active_ms = message.ts_ms
        return enqueue(
            queues,
            host,
            incoming,
            message.topic,
            message.payload(),
            message.publisher.encode(),
            message.qos,
            message.ts_ms,
        )
    except RefusedError as error:
        queues.problem = str(error)
        return error.reason_code


def settle(
    queues: Queues,
    host: DurableHost,
    operation: int,
    incoming: Incoming,
    session: Session | None,
    now_ms: int,
) -> int:
    """Ack, nack or reject one delivery."""
    if operation == names.FETCH:
        queues.problem = "only messages of a quorum queue can be deferred and fetched"
        return reasons.TOPIC_NAME_INVALID
    if not incoming.message_id:
        queues.problem = "user property message-id is missing"
        return reasons.IMPLEMENTATION_SPECIFIC_ERROR
    client_id = session.client_id if session is not None else ""
    group = host.group_named(incoming.group_id) if incoming.group_id else _group_of(host, session)
    partition, seq = _place(host, group, incoming.message_id, client_id)
    if partition < 0:
        queues.problem = "there is no delivery with this message-id"
        return reasons.NO_MATCHING_SUBSCRIBERS
    outcome = c.ACK if operation == names.SETTLE_ACK else _OUTCOMES[operation]
    delay_ms = incoming.delay_ms() if outcome == c.NACK else 0
    reason = incoming.reason.decode() if outcome == c.REJECT else ""
    reply = host.apply(
        c.Settle(group, client_id, partition, seq, outcome, delay_ms, reason), now_ms
    )
    if reply == reasons.NOT_AUTHORIZED:
        queues.problem = f"this delivery is not in the hands of {client_id!r}"
    return reply


def _group_of(host: DurableHost, session: Session | None) -> str:
    """The group in which this client consumes the queue."""
    if session is not None:
        for subscriber in session.consumers:
            if subscriber.host is host:
                return subscriber.group
        # It has unsubscribed, and still has something in hand.
        for group in host.machine.groups.values():
            for lane in group.lanes:
                for held in lane.held.values():
                    if held.consumer.name == session.client_id:
                        return group.name
    return ""


def _place(host: DurableHost, group: str, message_id: bytes, client_id: str) -> tuple[i64, i64]:
    """Partition and sequence of a message, from the id it was delivered with; -1: there is none."""
    known = host.delivered_ids.find(host.machine.groups.get(group), message_id, client_id)
    if known is not None:
        return known
    # From the end: the sequence, the partition, and what is left is the queue.
    seq, at = digits(message_id, len(message_id))
    partition, end = digits(message_id, at)
    if at == 0 or end == 0 or partition >= len(host.id_prefixes):
        return -1, 0
    prefix = host.id_prefixes[partition]
    if at + 1 == len(prefix) and message_id.startswith(prefix):  # as we write it
        return partition, seq
    name = message_id[:end]
    if name != host.topic and name != host.topic[len(names.PREFIX) :]:
        return -1, 0
    return partition, seq


def words(host: DurableHost, reply: int, size: int) -> str:
    policy = host.machine.policy
    address = names.address(host.name)
    if reply == reasons.QUOTA_EXCEEDED:
        return f"queue {address!r} holds {host.machine.depth()} of {policy.depth_max} messages"
    if reply == reasons.PACKET_TOO_LARGE:
        return f"message of {size} bytes; queue {address!r} takes {policy.message_bytes_max}"
    return ""
