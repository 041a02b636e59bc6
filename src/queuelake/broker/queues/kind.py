"""Kinds of queues besides durable ones: they share names, hosts and upkeep with them."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from mypy_extensions import trait

if TYPE_CHECKING:
    from queuelake.broker.queues.host import HostedQueue
    from queuelake.storage.queue_records import QueueRecord


@trait
class QueueKind:
    """Who knows the queues of one kind."""

    @abstractmethod
    def learn(self, queue_id: int, record: QueueRecord) -> None:
        """There is such a queue in the store."""

    @abstractmethod
    def wake(self, queue_id: int, record: QueueRecord) -> HostedQueue:
        """Read a queue from the store which is needed now."""
