"""SUBSCRIBE and UNSUBSCRIBE: what may be subscribed to, and the retained messages it brings.

There may be more retained messages than one client's share of memory holds. They are given out as
fast as the client takes them, each as it is when its turn comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from queuelake.broker.delivery import Delivery
from queuelake.broker.ecq.topics import is_mailbox_filter, subscription_problem
from queuelake.broker.queues import subscribing as queue_subscribing
from queuelake.broker.queues.subscribing import is_queue_filter
from queuelake.broker.session import Session, Subscription
from queuelake.errors import PeerError, ProtocolViolationError, RefusedError
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
    joined = False
    wanted: list[bytes] = []  # filters whose retained messages are to follow
    for item in packet.items:
        code, problem = _check(connection, session, item)
        if code >= 0x80:
            problems.append(problem)
            if code == reasons.TOPIC_FILTER_INVALID and connection.version != V5:
                raise ProtocolViolationError(problem)
        elif is_queue_filter(item.topic_filter):
            code, problem = _join(connection, session, item, packet)
            joined = joined or code < 0x80
            if problem:
                problems.append(problem)
        else:
            item.qos = code
            _, is_new = broker.sessions.subscribe(session, item, packet.subscription_id, [])
            if item.retain_handling == 0 or (item.retain_handling == 1 and is_new):
                wanted.append(item.topic_filter)
        codes.append(code)
    problem = "; ".join(problems) if connection.request_problem else ""
    words = encoder.suback(connection.version, packet.packet_id, bytes(codes), problem)
    bare = encoder.suback(connection.version, packet.packet_id, bytes(codes))
    _answer(connection, session, connection.told(words, bare), session.persistent or joined)
    if session.persistent or joined:
        session.gate = connection.runner.number  # retained messages come behind SUBACK
    now_ms = broker.clock.now_ms()
    for topic_filter in wanted:
        if not is_shared(topic_filter):
            if connection.feed is None:
                connection.feed = RetainedFeed(broker.delivery, session)
            connection.feed.add(session.subscriptions[topic_filter], now_ms)
    broker.fanout.subscribed(session)


def _join(
    connection: Connection, session: Session, item: SubscribeItem, packet: Subscribe
) -> tuple[int, str]:
    """Subscribe to a queue: the granted QoS, or a refusal and why."""
    broker = connection.broker
    former = session.subscriptions.get(item.topic_filter)
    subscription, _ = broker.sessions.subscribe(session, item, packet.subscription_id, packet.user)
    try:
        granted = queue_subscribing.subscribe(broker.queues, subscription)
    except RefusedError as error:
        if former is None:
            broker.sessions.unsubscribe(session, item.topic_filter)
        else:
            broker.sessions.put_back(former)
        reason = error.reason_code
        if reason == reasons.IMPLEMENTATION_SPECIFIC_ERROR or connection.version != V5:
            return (reason if connection.version == V5 else 0x80), str(error)
        return reason, str(error)
    return granted, ""


@final
class RetainedFeed:
    """The retained messages which new subscriptions of one session are still to get."""

    __slots__ = ("_delivery", "_session", "_waiting")

    def __init__(self, delivery: Delivery, session: Session) -> None:
        self._delivery = delivery
        self._session = session
        self._waiting: list[tuple[Subscription, list[bytes]]] = []  # topics from the last on

    def add(self, subscription: Subscription, now_ms: int) -> None:
        topics = self._delivery.retained.topics(subscription.topic_filter)
        if self._session.persistent and subscription.qos:
            # These belong to the session: it gets them even if its client leaves before the end.
            topics = [one for one in topics if not self._offer(subscription, one, now_ms, 1)]
        topics.reverse()
        self._waiting = [one for one in self._waiting if self._is_wanted(one[0])]
        self._waiting.append((subscription, topics))
        self.fill(now_ms)

    def fill(self, now_ms: int) -> bool:
        """Give out what there is room for; False when nothing is left."""
        while self._waiting:
            subscription, topics = self._waiting[0]
            if not topics or not self._is_wanted(subscription):
                del self._waiting[0]
            elif not self._delivery.has_room(self._session):
                return True
            else:
                self._offer(subscription, topics.pop(), now_ms, 0)
        return False

    def _offer(self, subscription: Subscription, topic: bytes, now_ms: int, qos_min: int) -> bool:
        message = self._delivery.retained.get(topic, now_ms)
        if message is None:
            return True
        if message.qos < qos_min:
            return False
        self._delivery.offer_retained(subscription, message)
        return True

    def _is_wanted(self, subscription: Subscription) -> bool:
        return self._session.subscriptions.get(subscription.topic_filter) is subscription


def _check(connection: Connection, session: Session, item: SubscribeItem) -> tuple[int, str]:
    """The reason code for one filter, and what is wrong with it."""
    mqtt = connection.broker.settings.mqtt
    topic_filter = item.topic_filter
    name = topic_filter.decode()[:100]
    inner = topic_filter
    if is_mailbox_filter(topic_filter):
        # Before the permissions: none of them makes a client the owner of another one's mailbox.
        code, problem = subscription_problem(session.name, topic_filter, item.qos)
        if code:
            return (code if connection.version == V5 else 0x80), problem
    if is_shared(topic_filter):
        _, inner = split_shared(topic_filter)
        if is_queue_filter(inner):
            problem = f"{name!r}: a queue is shared by its consumer groups, not by $share"
            return reasons.TOPIC_FILTER_INVALID, problem
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
        connection.metrics.subscribe_denied += 1
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
            if is_queue_filter(topic_filter):
                queue_subscribing.unsubscribe(connection.broker.queues, session, topic_filter)
            codes.append(reasons.SUCCESS)
        else:
            codes.append(reasons.NO_SUBSCRIPTION_EXISTED)
    answer = encoder.unsuback(connection.version, packet.packet_id, bytes(codes))
    _answer(connection, session, answer, session.persistent)


def _answer(connection: Connection, session: Session, answer: bytes, durable: bool) -> None:
    limit = connection.packet_size_max
    if limit and len(answer) > limit:
        problem = f"the answer has {len(answer)} bytes, the client takes {limit}"
        raise PeerError.because(reasons.PACKET_TOO_LARGE, problem)
    connection.answer(answer, durable)
