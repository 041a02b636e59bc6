"""SUBSCRIBE to a mailbox: its owner reads from then on, until it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from queuelake.broker.ecq.topics import PREFIX, subscription_problem
from queuelake.broker.queues.kind import Reception
from queuelake.errors import RefusedError

if TYPE_CHECKING:
    from queuelake.broker.ecq.service import Mailboxes
    from queuelake.broker.session import Session, Subscription


@final
class MailboxSubscriptions(Reception):
    """Of all mailboxes; who may subscribe was checked before."""

    def __init__(self, mailboxes: Mailboxes) -> None:
        self._mailboxes = mailboxes

    def takes(self, topic_filter: bytes) -> bool:
        return topic_filter.startswith(PREFIX)

    def subscribe(self, subscription: Subscription) -> int:
        session = subscription.session
        filter_, qos = subscription.topic_filter, subscription.qos
        reason, problem = subscription_problem(session.name, filter_, qos)
        if reason:
            raise RefusedError.because(reason, problem)
        reader = self._mailboxes.readers.get(session.name)
        if reader is None or reader.session is not session:
            reader = self._mailboxes.attach(session)
        reader.subscribed(subscription)
        return 1

    def unsubscribe(self, session: Session, topic_filter: bytes) -> bool:
        return self.takes(topic_filter) and self._mailboxes.detach(session)

    def client_left(self, session: Session) -> None:
        self._mailboxes.detach(session)
