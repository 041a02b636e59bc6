"""SUBSCRIBE and UNSUBSCRIBE: what may be subscribed to, and the retained messages it brings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuelake.broker.session import Session
from queuelake.errors import ProtocolViolationError
from queuelake.protocol import encoder, reasons
from queuelake.protocol.packets import V5, Subscribe, SubscribeItem, Unsubscribe
from queuelake.protocol.topics import filter_problem, has_wildcard, is_shared, split_shared

if TYPE_CHECKING:
    from queuelake.broker.connection import Connection


def subscribe(connection: Connection, packet: Subscribe) -> None:
    """Answer every filter with its granted QoS or a refusal, then send retained messages."""
    session = connection.session
    if session is None:
        raise ProtocolViolationError("SUBSCRIBE before CONNECT")
    broker = connection.broker
    codes = bytearray()
    problems: list[str] = []
    retained: list[tuple[SubscribeItem, bool]] = []
    for item in packet.items:
        code, problem = _check(connection, session, item)
        if code >= 0x80:
            problems.append(problem)
            if code == reasons.TOPIC_FILTER_INVALID and connection.version != V5:
                raise ProtocolViolationError(problem)
        else:
            item.qos = code
            _, is_new = broker.sessions.subscribe(session, item, packet.subscription_id)
            if item.retain_handling == 0 or (item.retain_handling == 1 and is_new):
                retained.append((item, is_new))
        codes.append(code)
    problem = "; ".join(problems) if connection.request_problem else ""
    answer = encoder.suback(connection.version, packet.packet_id, bytes(codes), problem)
    connection.answer(answer, session.persistent)
    if session.persistent:
        session.gate = connection.runner.number  # retained messages come behind SUBACK
    now_ms = broker.clock.now_ms()
    for item, _ in retained:
        if not is_shared(item.topic_filter):
            subscription = session.subscriptions[item.topic_filter]
            for message in broker.retained.match(item.topic_filter, now_ms):
                broker.delivery.offer_retained(subscription, message)


def _check(connection: Connection, session: Session, item: SubscribeItem) -> tuple[int, str]:
    """The reason code for one filter, and what is wrong with it."""
    mqtt = connection.broker.settings.mqtt
    topic_filter = item.topic_filter
    name = topic_filter.decode()[:100]
    inner = topic_filter
    if is_shared(topic_filter):
        _, inner = split_shared(topic_filter)
        if not inner:
            return reasons.TOPIC_FILTER_INVALID, f"{name!r} is not $share/{{group}}/{{filter}}"
        if item.no_local:
            raise ProtocolViolationError(f"no-local on the shared subscription {name!r}")
        if not mqtt.shared_available:
            return reasons.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED, "shared subscriptions are off"
    problem = filter_problem(inner, mqtt.topic_levels_max)
    if problem:
        return reasons.TOPIC_FILTER_INVALID, f"{name!r}: {problem}"
    if has_wildcard(inner) and not mqtt.wildcard_available:
        return reasons.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED, "wildcard subscriptions are off"
    acl = connection.acl
    assert acl is not None
    if not acl.may_subscribe(topic_filter):
        return reasons.NOT_AUTHORIZED, f"not authorized to subscribe to {name!r}"
    limit = connection.broker.settings.limits.subscriptions_per_client_max
    if limit and topic_filter not in session.subscriptions and len(session.subscriptions) >= limit:
        return reasons.QUOTA_EXCEEDED, f"client has {limit} of {limit} subscriptions"
    return min(item.qos, mqtt.qos_max), ""


def unsubscribe(connection: Connection, packet: Unsubscribe) -> None:
    session = connection.session
    if session is None:
        raise ProtocolViolationError("UNSUBSCRIBE before CONNECT")
    codes = bytearray()
    for topic_filter in packet.filters:
        if is_shared(topic_filter):
            _, inner = split_shared(topic_filter)
        else:
            inner = topic_filter
        problem = filter_problem(inner, connection.broker.settings.mqtt.topic_levels_max)
        if problem and connection.version != V5:
            raise ProtocolViolationError(problem)
        if problem:
            codes.append(reasons.TOPIC_FILTER_INVALID)
        elif connection.broker.sessions.unsubscribe(session, topic_filter):
            codes.append(reasons.SUCCESS)
        else:
            codes.append(reasons.NO_SUBSCRIPTION_EXISTED)
    answer = encoder.unsuback(connection.version, packet.packet_id, bytes(codes))
    connection.answer(answer, session.persistent)
