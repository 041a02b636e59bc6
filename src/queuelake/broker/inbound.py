"""What a connected client sends about messages: PUBLISH, and the four acknowledgements.

Functions of `Connection`, in a file of their own because they are the protocol, while the class
is the network. A publish is refused with a reason code where the client may go on, and with a
`PeerError` where it may not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from queuelake.broker.aliases import resolve_alias
from queuelake.broker.packet_ids import PACKET_ID_MAX
from queuelake.broker.queues.publishing import publish
from queuelake.broker.queues.target import Target
from queuelake.broker.refusing import refused
from queuelake.broker.session import Session
from queuelake.broker.throttle import SERVICE
from queuelake.broker.topic_service import LATER, TopicService
from queuelake.errors import PeerError, ProtocolViolationError
from queuelake.names import PREFIX as QUEUE_PREFIX
from queuelake.protocol import encoder, packets, reasons
from queuelake.protocol.decoder import TOPIC_BYTES_KEPT_MAX
from queuelake.protocol.message import PACKET_IDS, Message
from queuelake.protocol.packets import V5, Ack, Publish
from queuelake.protocol.topics import topic_problem

if TYPE_CHECKING:
    from queuelake.broker.connection import Connection

DOLLAR: Final = 0x24

_FULL: Final = (reasons.QUOTA_EXCEEDED, reasons.PACKET_TOO_LARGE)  # limits of a queue

_PROBLEMS: Final = {
    reasons.NOT_AUTHORIZED: "not authorized to publish to this topic",
    reasons.QUOTA_EXCEEDED: "the queue of every subscriber is full",
}


def on_publish(connection: Connection, packet: Publish, now_ms: int) -> None:
    session = connection.session
    if session is None:
        raise ProtocolViolationError("PUBLISH before CONNECT")
    qos = packet.qos
    received = connection.metrics.received
    received[qos] = received[qos] + 1  # += would go through objects
    if connection.throttle.limited:
        connection.throttle.published(len(packet.body))
    topic = packet.topic
    if packet.alias or len(topic) == 0:
        if connection.aliases is None:
            connection.aliases = {}
        topic = resolve_alias(
            connection.aliases, packet, connection.version, connection.terms.alias_max
        )
    if qos == 2 and packet.packet_id in session.inbound:
        # Sent again because our PUBREC was lost: the message is here already, stored or nearly so.
        durable = connection.runner.is_receiving(session, packet.packet_id)
        connection.answer(encoder.PUBREC_HEAD + PACKET_IDS[packet.packet_id], durable)
        return
    target: Target | None = None
    if topic[0] == DOLLAR:
        target = connection.delivery.queues.known_target(topic)
    reason = _refusal(connection, packet, topic, session, target is not None)
    if reason:
        connection.metrics.publish_refused += 1
        refusing = connection.delivery.service_for(topic) if topic[0] == DOLLAR else None
        if refusing is not None:
            refusing.refused(topic)
        _answer_refused(connection, packet, reason)
        return
    if target is not None or topic.startswith(QUEUE_PREFIX):
        _publish_to_queue(connection, packet, topic, session, target, now_ms)
        return
    delivery = connection.delivery
    message = Message(
        topic,
        qos,
        packet.retain,
        packet.body,
        packet.payload_at,
        packet.expiry_at,
        session.client_id,
        now_ms,
    )
    if topic[0] == DOLLAR:
        service = delivery.service_for(topic)
        if service is not None:
            _publish_to_service(connection, packet, message, service, session)
            return
    count = delivery.publish(message, session)
    durable = delivery.stored
    if durable:
        connection.throttle.unconfirmed(len(packet.body))
    if delivery.refused_because:
        _answer_queue(connection, packet, delivery.refused_because, session, durable)
    elif qos:
        _confirm(connection, packet, session, count, durable)


def _publish_to_queue(
    connection: Connection,
    packet: Publish,
    topic: bytes,
    session: Session,
    target: Target | None,
    now_ms: int,
) -> None:
    """As `on_publish`, without making a message which no session would get."""
    delivery = connection.delivery
    queues = delivery.queues
    reason = publish(
        queues,
        target,
        topic,
        packet.qos,
        packet.body,
        packet.payload_at,
        packet.expiry_at,
        session.name,
        session,
        now_ms,
    )
    if reason:
        _answer_queue(connection, packet, reason, session, False)
        return
    durable = queues.durable
    delivery.refused = 0
    if durable:
        connection.throttle.unconfirmed(len(packet.body))
    if packet.qos:
        _confirm(connection, packet, session, 1, durable)


def _publish_to_service(
    connection: Connection,
    packet: Publish,
    message: Message,
    service: TopicService,
    session: Session,
) -> None:
    delivery = connection.delivery
    service.packet_id = packet.packet_id
    reason = service.publish(message, session)
    if reason == LATER:
        connection.throttle.defer(packet)
    elif reason >= 0x80 and service.closes:
        connection.metrics.publish_refused += 1
        connection.close(reason, service.problem)
    elif reason >= 0x80:
        delivery.queues.problem = service.problem
        _answer_queue(connection, packet, reason, session, False)
    else:
        delivery.refused = 0
        if service.durable:
            connection.throttle.unconfirmed(len(packet.body))
        if packet.qos:
            packet.retain = False  # means nothing to a service
            count = 0 if reason == reasons.NO_MATCHING_SUBSCRIBERS else 1
            _confirm(connection, packet, session, count, service.durable)


def complete(connection: Connection) -> None:
    """What the deferred publish of this connection asked for is done and durable."""
    throttle = connection.throttle
    packet = throttle.deferred
    session = connection.session
    if packet is None or session is None:
        return  # it is gone
    throttle.deferred = None
    connection.delivery.refused = 0
    if packet.qos:
        _confirm(connection, packet, session, 1, False)
    throttle.resume(SERVICE)
    connection.process()


def refuse_deferred(connection: Connection, reason: int, problem: str, closes: bool) -> None:
    """What the deferred publish of this connection asked for is wrong."""
    throttle = connection.throttle
    packet = throttle.deferred
    session = connection.session
    if packet is None or session is None:
        return  # it is gone
    throttle.deferred = None
    if closes:
        connection.metrics.publish_refused += 1
        connection.close(reason, problem)
        return
    connection.delivery.queues.problem = problem
    _answer_queue(connection, packet, reason, session, False)
    throttle.resume(SERVICE)
    connection.process()


def _confirm(
    connection: Connection, packet: Publish, session: Session, count: int, durable: bool
) -> None:
    """PUBACK or PUBREC for a message which `count` receivers get."""
    packet_id = packet.packet_id
    if packet.qos == 1:
        head = encoder.PUBACK_HEAD
    else:
        head = encoder.PUBREC_HEAD
        session.inbound.add(packet_id)
        if session.persistent:
            connection.runner.store_cursor(session)
            durable = True
        if durable:
            connection.runner.group.received.append((session, packet_id))
    if count or packet.retain or connection.version != V5:
        delivery = connection.delivery
        if count and delivery.refused == count and not delivery.stored and connection.version == V5:
            session.inbound.discard(packet_id)
            _answer_refused(connection, packet, reasons.QUOTA_EXCEEDED)
            return
        connection.answer(head + PACKET_IDS[packet_id], durable)
    else:
        kind = head[0] >> 4
        connection.answer(encoder.ack(kind, packet_id, reasons.NO_MATCHING_SUBSCRIBERS), durable)


def _refusal(
    connection: Connection, packet: Publish, topic: bytes, session: Session, checked: bool
) -> int:
    """Why this publish is refused with a reason code, or 0; what ends the connection raises.

    `checked`: the topic is known to be one.
    """
    terms = connection.terms
    # One which was published to lately was checked then.
    if not checked and not connection.delivery.router.has_route(topic):
        problem = topic_problem(topic, terms.topic_levels_max)
        if problem:
            raise PeerError.because(reasons.TOPIC_NAME_INVALID, problem)
    if packet.qos > terms.qos_max:
        raise PeerError.because(reasons.QOS_NOT_SUPPORTED, f"QoS {packet.qos} is not supported")
    if packet.retain and not terms.retain_available:
        raise PeerError.because(reasons.RETAIN_NOT_SUPPORTED, "retain is not supported")
    if packet.qos == 2 and len(session.inbound) >= terms.receive_max and connection.version == V5:
        problem = f"more than {terms.receive_max} unacknowledged publishes"
        raise PeerError.because(reasons.RECEIVE_MAXIMUM_EXCEEDED, problem)
    acl = connection.acl
    assert acl is not None
    if topic is connection.permitted or (acl.open_publish and topic[0] != DOLLAR):
        return 0
    if not acl.may_publish(topic):
        connection.metrics.publish_denied += 1
        return reasons.NOT_AUTHORIZED
    if len(topic) <= TOPIC_BYTES_KEPT_MAX:
        connection.permitted = topic
    return 0


def _answer_refused(connection: Connection, packet: Publish, reason: int) -> None:
    if packet.qos == 0:
        return
    kind = packets.PUBACK if packet.qos == 1 else packets.PUBREC
    if connection.version != V5:
        reason = 0  # 3.1.1 has no way to say it: acknowledge, do not deliver
    problem = _PROBLEMS.get(reason, "") if connection.request_problem else ""
    connection.answer(refused(connection, kind, packet.packet_id, reason, problem), False)


def _answer_queue(
    connection: Connection, packet: Publish, reason: int, session: Session, durable: bool
) -> None:
    """A queue said no, or not quite yes; `durable`: others have it, and its commit is not over."""
    if reason >= 0x80:
        connection.metrics.publish_refused += 1
    if packet.qos == 0:
        return
    if connection.version != V5:
        if reason in _FULL and packet.topic.startswith(QUEUE_PREFIX):
            # 3.1.1 cannot say no: without PUBACK the client sends again when it is back. The
            # publisher of an ordinary topic knows nothing of queues; its subscribers have it.
            connection.close(reason, connection.delivery.queues.problem)
            return
        _confirm(connection, packet, session, 1, durable)
        return
    kind = packets.PUBACK if packet.qos == 1 else packets.PUBREC
    if packet.qos == 2 and reason < 0x80:
        session.inbound.add(packet.packet_id)
    problem = connection.delivery.queues.problem if connection.request_problem else ""
    connection.answer(refused(connection, kind, packet.packet_id, reason, problem), False)


def on_ack(connection: Connection, packet: Ack) -> None:
    session = connection.session
    if session is None:
        raise ProtocolViolationError("acknowledgement before CONNECT")
    kind = packet.kind
    packet_id = packet.packet_id
    if packet_id > PACKET_ID_MAX and kind != packets.PUBREL:
        _on_delivery_ack(connection, session, packet)
    elif kind == packets.PUBACK:
        entry = session.inflight.get(packet_id)
        if entry is not None and session.on_puback(packet_id):
            _settled(connection, session)
            if entry.shared:
                service = connection.delivery.service_of(entry.shared)
                if service is not None:
                    topic = entry.message.topic
                    service.acknowledged(session, topic, entry.shared, packet.reason)
    elif kind == packets.PUBREC:
        _on_pubrec(connection, session, packet)
    elif kind == packets.PUBCOMP:
        if session.on_pubcomp(packet_id):
            _settled(connection, session)
    elif packet_id in session.inbound:  # PUBREL
        session.inbound.discard(packet_id)
        keep_cursor(connection, session)
        connection.answer(encoder.PUBCOMP_HEAD + PACKET_IDS[packet_id], session.persistent)
    else:
        reason = reasons.PACKET_IDENTIFIER_NOT_FOUND if connection.version == V5 else 0
        connection.answer(encoder.ack(packets.PUBCOMP, packet_id, reason), False)


def _on_delivery_ack(connection: Connection, session: Session, packet: Ack) -> None:
    """The answer to a delivery of a queue; one which came before a takeover means nothing now."""
    deliveries = session.deliveries
    packet_id = packet.packet_id
    if packet.kind == packets.PUBREC and packet.reason < 0x80:
        if deliveries is not None and deliveries.on_pubrec(packet_id):
            connection.answer(encoder.PUBREL_HEAD + PACKET_IDS[packet_id], False)
            return
        reason = reasons.PACKET_IDENTIFIER_NOT_FOUND if connection.version == V5 else 0
        connection.answer(encoder.ack(packets.PUBREL, packet_id, reason), False)
    elif deliveries is not None:
        if packet.kind == packets.PUBCOMP:
            deliveries.on_pubcomp(packet_id)
        else:
            deliveries.on_ack(packet_id, packet.reason)
        _let_leave(connection, session)


def _on_pubrec(connection: Connection, session: Session, packet: Ack) -> None:
    packet_id = packet.packet_id
    if packet.reason >= 0x80:
        if session.on_puback(packet_id):
            _settled(connection, session)
    elif session.on_pubrec(packet_id):
        keep_cursor(connection, session)
        connection.answer(encoder.PUBREL_HEAD + PACKET_IDS[packet_id], session.persistent)
    else:
        reason = reasons.PACKET_IDENTIFIER_NOT_FOUND if connection.version == V5 else 0
        connection.answer(encoder.ack(packets.PUBREL, packet_id, reason), False)


def _settled(connection: Connection, session: Session) -> None:
    keep_cursor(connection, session)
    _let_leave(connection, session)


def _let_leave(connection: Connection, session: Session) -> None:
    """The window has room again, for messages of the session and for deliveries of queues."""
    deliveries = session.deliveries
    if (
        not session.queue.is_empty()
        or session.wants_refill()
        or (deliveries is not None and deliveries.has_waiting())
    ):
        connection.runner.touch(session)


def keep_cursor(connection: Connection, session: Session) -> None:
    if session.persistent:
        connection.runner.store_cursor(session)
