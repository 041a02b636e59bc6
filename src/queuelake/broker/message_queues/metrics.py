"""What message queues counted since the start, by class; kept as plain numbers."""

from __future__ import annotations

from typing import Final, final

from queuelake.broker.metrics import Histogram
from queuelake.control_mq import INSERT_LATENCY_BOUNDS_MS

CLASSES: Final = (
    "regular_unlimited",
    "regular_limited",
    "lastvalue_unlimited",
    "lastvalue_limited",
)


@final
class MqClassMetrics:
    """Of all queues of one class."""

    __slots__ = ("insert_errors", "insert_latency", "inserted_messages", "received_messages")

    def __init__(self) -> None:
        self.received_messages: int = 0
        self.inserted_messages: int = 0
        self.insert_errors: int = 0
        self.insert_latency: Histogram = Histogram(INSERT_LATENCY_BOUNDS_MS)


@final
class MqMetrics:
    """`classes` are in the order of CLASSES."""

    __slots__ = ("classes",)

    def __init__(self) -> None:
        self.classes: list[MqClassMetrics] = [MqClassMetrics() for _ in CLASSES]

    def of(self, is_lastvalue: bool, is_limited: bool) -> MqClassMetrics:
        return self.classes[2 * is_lastvalue + is_limited]
