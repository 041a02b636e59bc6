"""An ordinary topic filter whose messages a queue captures."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from queuelake.broker.router import Capture

if TYPE_CHECKING:
    from queuelake.broker.queues.registry import Queues
    from queuelake.protocol.message import Message


@final
class Binding(Capture):
    """One filter of one queue; the queue may be asleep."""

    __slots__ = ("_name", "_queues")

    def __init__(self, queues: Queues, name: str, topic_filter: bytes) -> None:
        self.topic_filter = topic_filter
        self.is_lenient = False
        self._queues: Queues = queues
        self._name: str = name

    def capture(self, message: Message) -> int:
        return self._queues.capture(self._name, message)
