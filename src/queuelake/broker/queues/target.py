"""What a topic below `$queue/` means to a publisher."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from queuelake.broker.queues.durable import DurableHost


@final
class Target:
    """A queue, and what is asked of it: one of the operations in `names`."""

    __slots__ = ("host", "operation", "topic")

    def __init__(self, host: DurableHost, operation: int, topic: bytes) -> None:
        self.host: DurableHost = host
        self.operation: int = operation
        self.topic: bytes = topic  # when it is longer than the queue's own; else empty
