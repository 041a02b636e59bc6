"""The figures of the last minutes, asked for once for all tabs.

One task asks the broker once a second, and only while a tab is open. Counters become rates here; a
counter which fell (the broker is new) counts as no rate.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import NamedTuple

from queuelake.admin.services import Services
from queuelake.control import Histogram, MetricsSnapshot, Readiness
from queuelake.control_queues import QueueMetrics
from queuelake.errors import QueuelakeError

INTERVAL_S = 1.0
POINTS_MAX = 300

log = logging.getLogger(__name__)


class Point(NamedTuple):
    """One second."""

    at_ms: int
    received_per_s: float
    sent_per_s: float
    received_bytes_per_s: float
    sent_bytes_per_s: float
    depth: int
    in_flight: int
    connections: int
    commit_ms: float | None  # mean of this second; None: nothing was committed
    store_bytes: int
    memory_bytes: int
    loop_lag_ms: float


class Flow(NamedTuple):
    """How fast one queue moves, in messages per second."""

    in_per_s: float
    out_per_s: float


class Sampler:
    """`points` are the last minutes; `problem` says why the broker does not answer, or ""."""

    def __init__(self, services: Services) -> None:
        self.points: deque[Point] = deque(maxlen=POINTS_MAX)
        self.metrics: MetricsSnapshot | None = None
        self.readiness = Readiness(ready=True)
        self.problem = ""
        self.queues: dict[str, QueueMetrics] = {}
        self.flows: dict[str, Flow] = {}
        self.message_flows: dict[str, Flow] = {}
        self._services = services
        self._watchers: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._asked_at = 0.0

    def join(self, tab: str) -> None:
        """A tab is open: there is somebody to ask for."""
        self._watchers.add(tab)
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def leave(self, tab: str) -> None:
        self._watchers.discard(tab)

    @property
    def watchers(self) -> int:
        return len(self._watchers)

    async def idle(self) -> None:
        """Until nobody is asked for any more."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        self._watchers.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._watchers:
                await self.sample()
                await asyncio.sleep(INTERVAL_S)
        finally:
            self._task = None

    async def sample(self) -> None:
        """Ask once."""
        try:
            metrics = await self._services.metrics()
            self.readiness = await self._services.readiness()
        except QueuelakeError as exc:
            self.problem = str(exc)
            return
        except Exception:
            log.exception("the figures of the console")
            self.problem = "the figures cannot be read; see the log of the admin process"
            return
        at_s = time.time()
        queues = {one.queue: one for one in metrics.queue_metrics}
        elapsed_s = at_s - self._asked_at
        if self.metrics is not None and elapsed_s < POINTS_MAX:
            self.points.append(_point(at_s, elapsed_s, self.metrics, metrics))
            before, named = self.metrics.mq.named, metrics.mq.named
            self.flows = {
                name: _flow(elapsed_s, (old.enqueued, old.dequeued), (new.enqueued, new.dequeued))
                for name, new in queues.items()
                if (old := self.queues.get(name)) is not None
            }
            self.message_flows = {
                name: _flow(elapsed_s, (was.inserted, was.delivered), (now.inserted, now.delivered))
                for name, now in named.items()
                if (was := before.get(name)) is not None
            }
        self.metrics, self.queues, self._asked_at, self.problem = metrics, queues, at_s, ""


def _point(at_s: float, elapsed_s: float, old: MetricsSnapshot, new: MetricsSnapshot) -> Point:
    def rate(before: int, after: int) -> float:
        return max(0, after - before) / elapsed_s

    return Point(
        at_ms=int(at_s * 1000),
        received_per_s=rate(sum(old.messages_received_by_qos), sum(new.messages_received_by_qos)),
        sent_per_s=rate(sum(old.messages_sent_by_qos), sum(new.messages_sent_by_qos)),
        received_bytes_per_s=rate(old.bytes_received, new.bytes_received),
        sent_bytes_per_s=rate(old.bytes_sent, new.bytes_sent),
        depth=total_depth(new),
        in_flight=sum(queue.in_flight for queue in new.queue_metrics),
        connections=new.connections,
        commit_ms=_mean_ms(old.commit_duration_s, new.commit_duration_s),
        store_bytes=new.store_bytes,
        memory_bytes=new.resident_memory_bytes,
        loop_lag_ms=new.loop_lag_s * 1000,
    )


def total_depth(metrics: MetricsSnapshot) -> int:
    """Of durable and message queues together, as far as a scrape names them."""
    named = sum(one.messages for one in metrics.mq.named.values())
    return sum(queue.depth for queue in metrics.queue_metrics) + named


def _flow(elapsed_s: float, old: tuple[int, int], new: tuple[int, int]) -> Flow:
    return Flow(max(0, new[0] - old[0]) / elapsed_s, max(0, new[1] - old[1]) / elapsed_s)


def _mean_ms(old: Histogram, new: Histogram) -> float | None:
    count = sum(new.counts) - sum(old.counts)
    return (new.sum - old.sum) / count * 1000 if count > 0 and new.sum >= old.sum else None
