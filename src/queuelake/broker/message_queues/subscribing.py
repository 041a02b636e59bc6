"""Subscriptions to message queues: which queue a filter means, attaching to it, waiting for it."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final, final

from queuelake import names
from queuelake.broker.message_queues.subscriber import MqSubscriber
from queuelake.broker.queues.membership import join, leave
from queuelake.broker.queues.subscribing import find
from queuelake.errors import RefusedError
from queuelake.mq_settings import auto_created
from queuelake.protocol import reasons
from queuelake.protocol.packets import V5

if TYPE_CHECKING:
    from queuelake.broker.message_queues.definition import Definition
    from queuelake.broker.message_queues.service import MessageQueues
    from queuelake.broker.session import Session, Subscription

log = logging.getLogger("queuelake.message_queues")

NAME: Final = re.compile(r"[0-9A-Za-z][-.0-9A-Za-z_]*")


@final
class Subscriptions:
    """Of all message queues."""

    def __init__(self, service: MessageQueues) -> None:
        self._service = service
        self._waiting: dict[tuple[int, bytes], Subscription] = {}  # by session and filter
        self._is_looking = False  # through those which wait
        self._looks_again = False  # something has changed meanwhile
        self._problems: set[str] = set()  # why no queue was made, in this look

    def takes(self, topic_filter: bytes) -> bool:
        """Whether a filter means a message queue, and not a durable one."""
        if topic_filter.startswith(names.MQ_PREFIX):
            return True
        name, inner = names.parse_message_queue(topic_filter)
        queues = self._service.queues
        if name.startswith("/"):
            return name in self._service.known
        whole = f"{name}/{inner}" if inner else name
        if queues.exists(whole):
            return False
        if name in self._service.known:
            return True
        if queues.above_with_sublevels(whole) or queues.exists(name):
            return False
        return not queues.settings.auto_create and bool(inner) and NAME.fullmatch(name) is not None

    def subscribe(self, subscription: Subscription) -> int:
        """Attach to a queue, or wait for it; returns the granted QoS.

        Raises:
            RefusedError: message queues are off, or not for MQTT 3.1.1, or it names no filter.
        """
        config = self._service.config
        session = subscription.session
        if config.enable is False:
            raise RefusedError.because(reasons.NOT_AUTHORIZED, "message queues are off: mq.enable")
        if session.version != V5 and not config.allow_v3:
            problem = "a message queue needs MQTT 5: mq.allow_v3 is off"
            raise RefusedError.because(reasons.UNSPECIFIED_ERROR, problem)
        if names.parse_message_queue(subscription.topic_filter)[0] == "/":
            problem = f"{subscription.topic_filter.decode()!r} lacks the filter of its queue"
            raise RefusedError.because(reasons.TOPIC_FILTER_INVALID, problem)
        self.wait(subscription)
        self._try_to_attach(subscription)
        return min(subscription.qos, 1)

    def waits_for(self, subscription: Subscription) -> bool:
        """A queue which was deleted while its subscriber was away may be made again."""
        name, _ = names.parse_message_queue(subscription.topic_filter)
        queues = self._service.queues
        is_name = name.startswith("/") or NAME.fullmatch(name) is not None
        if queues.is_taken(name) or not is_name:
            return False
        self.wait(subscription)
        return True

    def unsubscribe(self, session: Session, topic_filter: bytes) -> bool:
        """False: it is none of ours."""
        if self._waiting.pop((session.id, topic_filter), None) is not None:
            return True
        subscriber = find(session, topic_filter)
        if not isinstance(subscriber, MqSubscriber):
            return False
        session.consumers.remove(subscriber)
        leave(subscriber.host, subscriber, True, self._service.queues.clock.now_ms())
        return True

    def client_left(self, session: Session) -> None:
        """Those which are attached leave with all other consumers of the session."""
        for topic_filter in session.subscriptions:
            self._waiting.pop((session.id, topic_filter), None)

    def wait(self, subscription: Subscription) -> None:
        self._waiting[(subscription.session.id, subscription.topic_filter)] = subscription

    def look_again(self) -> None:
        """Something has changed."""
        self._looks_again = True
        if self._is_looking:
            return
        self._is_looking = True
        self._problems.clear()
        try:
            while self._looks_again:
                self._looks_again = False
                for subscription in list(self._waiting.values()):
                    self._try_to_attach(subscription)
        finally:
            self._is_looking = False

    def _try_to_attach(self, subscription: Subscription) -> None:
        known = self._find(subscription.topic_filter)
        if known is None or subscription.session.connection is None:
            return
        if not self._waiting.pop((subscription.session.id, subscription.topic_filter), None):
            return  # attached when the queue was made for it
        service = self._service
        host = service.awake(known)
        session = subscription.session
        now_ms = service.queues.clock.now_ms()
        subscriber = MqSubscriber(host, subscription, service.queues.new_tag())
        former = find(session, subscription.topic_filter)
        if former is not None:
            session.consumers.remove(former)
            if former.host is host:
                subscriber.take_over(former)
            else:
                leave(former.host, former, True, now_ms)
        session.consumers.append(subscriber)
        host.active_ms = now_ms
        join(host, subscriber, now_ms)

    def _find(self, topic_filter: bytes) -> Definition | None:
        name, inner = names.parse_message_queue(topic_filter)
        known = self._service.known.get(name)
        if known is None:
            known = self._auto_create(name, inner)
        if known is not None and inner and known.settings.topic_filter != inner:
            return None
        return known

    def _auto_create(self, name: str, inner: str) -> Definition | None:
        """A queue whose filter is known is made when it is not there."""
        service = self._service
        if not inner or service.queues.is_taken(name):
            return None
        if not name.startswith("/") and service.queues.settings.auto_create:
            return None  # such a name is one of a durable queue, when it is new
        settings = auto_created(service.config, name, inner)
        if settings is None:
            return None
        try:
            service.create(settings)
        except RefusedError as error:
            if not self._is_looking or str(error) not in self._problems:
                self._problems.add(str(error))
                log.warning("%s is not made for a subscription: %s", name, error)
            return None
        return service.known[name]
