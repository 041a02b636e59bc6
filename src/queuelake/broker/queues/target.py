"""What a topic below `$queue/` means to a publisher."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from queuelake.broker.queues.durable import DurableHost
    from queuelake.broker.quorum.host import QuorumHost


@final
class Target:
    """A queue, durable or quorum, and what is asked of it: one of the operations in `names`."""

    __slots__ = ("host", "operation", "quorum", "topic")

    def __init__(
        self,
        host: DurableHost | None,
        operation: int,
        topic: bytes,
        quorum: QuorumHost | None = None,
    ) -> None:
        self.host: DurableHost | None = host
        self.quorum: QuorumHost | None = quorum
        self.operation: int = operation
        self.topic: bytes = topic  # when it is longer than the queue's own; else empty
