"""What a topic below `$queue/` means to a publisher."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from queuelake.broker.queues.host import HostedQueue


@final
class Target:
    """A queue, and what is asked of it: one of the operations in `names`."""

    __slots__ = ("host", "operation", "topic")

    def __init__(self, host: HostedQueue, operation: int, topic: bytes) -> None:
        self.host: HostedQueue = host
        self.operation: int = operation
        self.topic: bytes = topic  # when it is longer than the queue's own; else empty
