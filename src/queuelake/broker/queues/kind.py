"""Kinds of queues besides durable ones: they share names, hosts and upkeep with them."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from mypy_extensions import trait

if TYPE_CHECKING:
    from queuelake.broker.queues.host import HostedQueue
    from queuelake.broker.session import Session, Subscription
    from queuelake.storage.queue_records import QueueRecord


@trait
class QueueKind:
    """Who knows the queues of one kind."""

    @abstractmethod
    def learn(self, queue_id: int, record: QueueRecord) -> None:
        """There is such a queue in the store."""

    @abstractmethod
    def asleep(self, name: str) -> None:
        """Only the name of a queue is in memory from now on."""

    @abstractmethod
    def takes(self, topic_filter: bytes) -> bool:
        """Whether a subscription to this filter is one to a queue of this kind."""

    @abstractmethod
    def subscribe(self, subscription: Subscription) -> int:
        """Returns the granted QoS.

        Raises:
            RefusedError: it is not to be had.
        """

    @abstractmethod
    def unsubscribe(self, session: Session, topic_filter: bytes) -> bool:
        """False: it is none of this kind."""

    @abstractmethod
    def client_left(self, session: Session) -> None:
        """Its consumers have left already."""

    @abstractmethod
    def wake(self, queue_id: int, record: QueueRecord) -> HostedQueue:
        """Read a queue from the store which is needed now."""
