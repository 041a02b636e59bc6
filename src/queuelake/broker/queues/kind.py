"""What besides durable queues can be subscribed to, and which of it shares names and hosts with
them."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from mypy_extensions import trait

if TYPE_CHECKING:
    from queuelake.broker.queues.host import HostedQueue
    from queuelake.broker.session import Session, Subscription
    from queuelake.storage.queue_records import QueueRecord


@trait
class Reception:
    """Takes subscriptions which are no business of the router; asked in order, the first wins."""

    @abstractmethod
    def takes(self, topic_filter: bytes) -> bool:
        """Whether a subscription to this filter is meant for it."""

    @abstractmethod
    def subscribe(self, subscription: Subscription) -> int:
        """A new one, one again, or one of a session which is resumed. Returns the granted QoS.

        Raises:
            RefusedError: it is not to be had.
        """

    def waits_for(self, subscription: Subscription) -> bool:
        """Whether what a resumed session once subscribed to, and is not there, may come again."""
        return False

    @abstractmethod
    def unsubscribe(self, session: Session, topic_filter: bytes) -> bool:
        """False: it is none of its own."""

    @abstractmethod
    def client_left(self, session: Session) -> None:
        """The connection is over; `session.consumers` have left already."""


@trait
class QueueKind(Reception):
    """Who knows the queues of one kind."""

    @abstractmethod
    def learn(self, queue_id: int, record: QueueRecord) -> None:
        """There is such a queue in the store."""

    @abstractmethod
    def asleep(self, name: str) -> None:
        """Only the name of a queue is in memory from now on."""

    @abstractmethod
    def wake(self, queue_id: int, record: QueueRecord) -> HostedQueue | None:
        """Read a queue from the store which is needed now; None: it keeps its hosts itself."""
