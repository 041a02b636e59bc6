"""The `$SYS/` topics: the broker's own figures as retained messages, kept in memory only."""

from __future__ import annotations

from queuelake import __version__
from queuelake.broker.core import Broker
from queuelake.protocol.message import make_message


class SysTopics:
    """Publishes every `sys.interval_s` seconds what has changed."""

    def __init__(self, broker: Broker, interval_s: float) -> None:
        self._broker = broker
        self._interval_ms = int(interval_s * 1000)
        self._last: dict[str, str] = {}

    def start(self) -> None:
        if self._interval_ms:
            self._publish(self._broker.clock.now_ms())

    def _publish(self, now_ms: int) -> None:
        for name, value in self._values(now_ms).items():
            if self._last.get(name) == value:
                continue
            self._last[name] = value
            topic = f"$SYS/broker/{name}".encode()
            message = make_message(topic, value.encode(), now_ms)
            self._broker.delivery.publish(message, None)
            kept = make_message(topic, value.encode(), now_ms, retain=True)
            self._broker.retained.set(kept, 0, volatile=True)
        self._broker.timers.arm(now_ms + self._interval_ms, self._publish)

    def _values(self, now_ms: int) -> dict[str, str]:
        broker = self._broker
        metrics = broker.metrics
        numbers = {
            "uptime": (now_ms - broker.clock.started_ms) // 1000,
            "clients/connected": metrics.connections,
            "clients/total": len(broker.sessions.by_client),
            "clients/disconnected": max(0, len(broker.sessions.by_client) - metrics.connections),
            "subscriptions/count": broker.router.count,
            "retained messages/count": len(broker.retained),
            "messages/received": sum(metrics.received),
            "messages/sent": sum(metrics.sent),
            "messages/dropped": sum(metrics.dropped.values()),
            "bytes/received": metrics.bytes_received,
            "bytes/sent": metrics.bytes_sent,
        }
        values = {name: str(number) for name, number in numbers.items()}
        values["version"] = f"queuelake {__version__}"
        return values
