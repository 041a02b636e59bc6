"""From a published message to the sessions which get it.

`publish` decides who gets a message and puts it in their line; a message for a persistent session
and a retained message become part of the commit group, and the caller holds its answer back until
that group is durable (`Runner.number` tells which one it is).
"""

from __future__ import annotations

from typing import final

from queuelake.broker.line import Outgoing
from queuelake.broker.metrics import Metrics
from queuelake.broker.queues.publishing import publish as publish_to_queue
from queuelake.broker.queues.registry import Queues
from queuelake.broker.retained import Retained
from queuelake.broker.router import NOT_TAKEN, Capture, Router
from queuelake.broker.runner import Runner
from queuelake.broker.session import Session, Subscription
from queuelake.broker.topic_service import TopicService
from queuelake.names import PREFIX as QUEUE_PREFIX
from queuelake.protocol import reasons
from queuelake.protocol.message import RETAIN_FLAG, Message, encode_ids
from queuelake.settings import Limits


@final
class Delivery:
    """The publish path, shared by connections, wills and `$SYS` topics."""

    __slots__ = (
        "_insist",
        "_mark",
        "_marked",
        "_memory_max",
        "_metrics",
        "_queued_bytes_max",
        "_queued_max",
        "_retained_max",
        "queues",
        "refused",
        "refused_because",
        "retained",
        "router",
        "runner",
        "services",
        "stored",
    )

    def __init__(
        self,
        router: Router,
        retained: Retained,
        runner: Runner,
        queues: Queues,
        metrics: Metrics,
        limits: Limits,
    ) -> None:
        self.router: Router = router
        self.retained: Retained = retained
        self.runner: Runner = runner
        self.queues: Queues = queues
        self.services: dict[bytes, TopicService] = {}  # by the first level of their topics
        self._metrics: Metrics = metrics
        self._memory_max: int = limits.memory_bytes_per_client_max
        self._queued_max: int = limits.queued_messages_per_client_max
        self._queued_bytes_max: int = limits.queued_bytes_per_client_max
        self._retained_max: int = limits.retained_messages_max
        self._mark: bytes = b""  # the last one somebody asked for
        self._marked: TopicService | None = None
        # Nobody waits for an answer and would send again: a failed commit is made good here.
        self._insist: bool = False
        # What the last publish did; read by the caller right after it.
        self.stored: bool = False  # something of it is part of the commit group
        self.refused: int = 0  # sessions whose limit it exceeded
        self.refused_because: int = 0  # the reason why a queue refused it

    def publish(self, message: Message, publisher: Session | None) -> int:
        """Put the message in line for every subscriber; returns how many there are."""
        self._insist = publisher is None
        self.stored = False
        self.refused = 0
        self.refused_because = 0
        if message.topic[:1] == b"$":
            if message.topic.startswith(QUEUE_PREFIX):
                return self._enqueue(message, publisher)
            service = self.service_for(message.topic)
            if service is not None:
                return self._serve(service, message, publisher)
        route = self.router.route(message.topic)
        count = 0
        for target in route.targets:
            if target.no_local and target.session.client_id == message.publisher:
                own = target.own
                if own is None:
                    continue
                target = own
            qos = message.qos if message.qos < target.qos else target.qos
            retain = message.retain and target.retain_as_published
            self._offer(target.session, message, qos, retain, target.ids, b"")
            count += 1
        for group in route.groups:
            member = group.pick(message.qos)
            if member is not None:
                self._offer_shared(member, message)
                count += 1
        if route.captures:
            count += self._capture_all(route.captures, message)
        if message.retain:
            self._retain(message)
        return count

    def service_for(self, topic: bytes) -> TopicService | None:
        """Who takes what is published to this topic, which begins with `$`; None: subscribers."""
        return self.services.get(topic.partition(b"/")[0])

    def service_of(self, mark: bytes) -> TopicService | None:
        """Who put a message with this mark in line; many in a row have the very same one."""
        if mark is not self._mark:
            self._mark, self._marked = mark, self.service_for(mark)
        return self._marked

    def _serve(self, service: TopicService, message: Message, publisher: Session | None) -> int:
        self.refused_because = max(0, service.publish(message, publisher))  # a will cannot wait
        self.stored = service.durable
        return 1

    def _enqueue(self, message: Message, publisher: Session | None) -> int:
        """A message for a queue, or an order to one: no session gets it by its topic."""
        self.refused_because = publish_to_queue(
            self.queues,
            None,
            message.topic,
            message.qos,
            message.body,
            message.payload_at,
            message.expiry_at,
            message.publisher.encode(),
            publisher,
            message.ts_ms,
        )
        self.stored = self.queues.durable
        if self._insist and not self.refused_because:
            self.runner.if_failed(lambda: self._enqueue_again(message))
        return 1

    def _enqueue_again(self, message: Message) -> None:
        self._insist = True
        self._enqueue(message, None)

    def _capture_all(self, captures: list[Capture], message: Message) -> int:
        """Returns how many have it, or had to have it."""
        count = failed = 0
        for capture in captures:
            reason = self._capture(capture, message)
            if reason == NOT_TAKEN:
                continue
            count += 1
            if reason and capture.is_lenient:
                failed += 1
            elif reason:
                self.refused_because = reason
        if failed and failed == count and self.queues.strict_publish:
            self.refused_because = reasons.UNSPECIFIED_ERROR
            self.queues.problem = "no message queue could store the message"
        return count

    def _capture(self, capture: Capture, message: Message) -> int:
        reason = capture.capture(message)
        if reason:
            return reason
        self.stored = True
        if self._insist:
            self.runner.if_failed(lambda: self._capture_again(capture, message))
        return 0

    def _capture_again(self, capture: Capture, message: Message) -> None:
        self._insist = True
        self._capture(capture, message)

    def hand_on(self, member: Subscription, message: Message, acknowledged: bool) -> None:
        """A message of a shared subscription leaves a session which has ended."""
        self._insist = acknowledged
        self._offer_shared(member, message)

    def _offer_shared(self, member: Subscription, message: Message) -> None:
        qos = message.qos if message.qos < member.qos else member.qos
        ids = _ids_of(member)
        retain = message.retain and member.retain_as_published
        self._offer(member.session, message, qos, retain, ids, member.shared)

    def offer_retained(self, subscription: Subscription, message: Message) -> None:
        """A retained message for a new subscription: the retain flag stays set."""
        if subscription.no_local and subscription.session.client_id == message.publisher:
            return
        self._insist = True
        qos = message.qos if message.qos < subscription.qos else subscription.qos
        self._offer(subscription.session, message, qos, True, _ids_of(subscription), b"")

    def offer_to(self, session: Session, message: Message, ids: bytes, mark: bytes) -> bool:
        """A message of a service for one session; `mark` comes back with its acknowledgement."""
        self._insist = False
        self.refused = 0
        self._offer(session, message, message.qos, False, ids, mark)
        return self.refused == 0

    def has_room(self, session: Session) -> bool:
        """Whether the session can take more of what waits for it elsewhere."""
        return session.memory_bytes < self._memory_max // 2

    def _offer(
        self, session: Session, message: Message, qos: int, retain: bool, ids: bytes, shared: bytes
    ) -> None:
        if session.memory_bytes > self._memory_max:
            if session.persistent:
                session.spill()
            if qos == 0 or not session.persistent:
                self._metrics.drop("slow_consumer")
                self.refused += 1
                return
        if qos == 0:
            if session.connection is None:
                self._metrics.drop("offline_qos0")
                return
            session.offer(message, 0, retain, ids, shared)
        elif session.persistent:
            if (
                session.unsettled >= self._queued_max
                or session.queued_bytes + session.storing_bytes >= self._queued_bytes_max
            ):
                self._metrics.drop("queue_full")
                self.refused += 1
                return
            entry = session.offer(message, qos, retain, ids, shared)
            self.runner.store_entry(session, entry)
            self.stored = True
            if self._insist:
                self.runner.if_failed(lambda: self._offer_again(session, entry))
        else:
            session.offer(message, qos, retain, ids, shared)
        self.runner.touch(session)

    def _offer_again(self, session: Session, entry: Outgoing) -> None:
        if session.persistent:  # it has not ended meanwhile
            self._insist = True
            retain = entry.first & RETAIN_FLAG != 0
            self._offer(
                session, entry.message, entry.first >> 1 & 3, retain, entry.ids, entry.shared
            )

    def _retain(self, message: Message) -> None:
        if self._insist:
            self.runner.if_failed(lambda: self._retain_again(message))
        topic = message.topic
        if len(message.body) == message.payload_at:  # an empty payload removes
            if self.retained.remove(topic):
                self.runner.store_retained(topic, None)
                self.stored = True
            return
        if self._retained_max and len(self.retained) >= self._retained_max:
            if topic not in self.retained:
                self._metrics.drop("retained_full")
                return
        self.retained.set(message, self.runner.number)
        self.runner.store_retained(topic, message)
        self.stored = True

    def _retain_again(self, message: Message) -> None:
        self._insist = True
        self._retain(message)


def _ids_of(subscription: Subscription) -> bytes:
    return encode_ids([subscription.subscription_id]) if subscription.subscription_id else b""
