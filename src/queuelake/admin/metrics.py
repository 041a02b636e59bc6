"""`/metrics`: the broker's counters in the Prometheus text formats.

The broker counts in plain ints. At a scrape, one `metrics` call fetches them all, and this module
gives them their public names, help texts and labels. docs/metrics.md lists the same names.
"""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import FastAPI, Request
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.responses import Response

from queuelake.admin.ecq_metrics import ecq_families
from queuelake.admin.mq_metrics import mq_families
from queuelake.admin.pipeline_metrics import archive_families
from queuelake.admin.queue_metrics import queue_families
from queuelake.admin.sdv_metrics import sdv_families
from queuelake.admin.services import Services
from queuelake.control import Histogram, MetricsSnapshot

GAUGES = {
    "connections": "Clients connected now",
    "sessions": "Sessions, connected or not",
    "sessions_persistent": "Sessions which outlive their connection",
    "subscriptions": "Subscriptions of all sessions",
    "retained_messages": "Topics with a retained message",
    "queues": "Durable queues",
    "store_bytes": "Bytes of the store in use",
    "store_map_bytes": "Bytes the store may use before its map grows",
    "resident_memory_bytes": "Resident memory of the broker process",
}
COUNTERS = {
    "bytes_received": "Bytes received from clients",
    "bytes_sent": "Bytes sent to clients",
    "publish_refused": "PUBLISH packets answered with a failure reason code",
    "connects": "Connections accepted with CONNACK success",
    "commit_failures": "Group commits which failed; nothing in them was confirmed",
}


def add_metrics_route(app: FastAPI, services: Services) -> None:
    @app.get("/metrics", tags=["metrics"], response_class=Response, responses=_RESPONSES)
    async def metrics(request: Request) -> Response:
        """All metrics, in the Prometheus text format or, when asked for, OpenMetrics."""
        snapshot = await services.metrics()
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(SnapshotCollector(snapshot)), media_type=content_type)


_RESPONSES: dict[int | str, dict[str, object]] = {
    200: {
        "content": {
            "text/plain": {"schema": {"type": "string"}},
            "application/openmetrics-text": {"schema": {"type": "string"}},
        }
    }
}


class SnapshotCollector(Collector):
    """One answer of the broker as metric families."""

    def __init__(self, snapshot: MetricsSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        yield self._build_info()
        for name, text in GAUGES.items():
            yield GaugeMetricFamily(f"queuelake_{name}", text, value=getattr(self._snapshot, name))
        for name, text in COUNTERS.items():
            value = getattr(self._snapshot, name)
            yield CounterMetricFamily(f"queuelake_{name}", text, value=value)
        yield from self._labelled()
        yield from self._timings()
        yield from queue_families(self._snapshot.queue_metrics)
        yield from mq_families(self._snapshot.mq)
        yield from ecq_families(self._snapshot.ecq)
        yield from sdv_families(self._snapshot.sdv)
        yield from archive_families(self._snapshot.archive)

    def _build_info(self) -> Metric:
        compiled = "true" if self._snapshot.compiled else "false"
        labels = {"version": self._snapshot.version, "compiled": compiled}
        return InfoMetricFamily("queuelake_build", "The running build", value=labels)

    def _labelled(self) -> Iterator[Metric]:
        snapshot = self._snapshot
        received = dict(enumerate(snapshot.messages_received_by_qos))
        sent = dict(enumerate(snapshot.messages_sent_by_qos))
        yield _counter(
            "messages_received", "PUBLISH packets received from clients", "qos", received
        )
        yield _counter("messages_sent", "PUBLISH packets sent to clients", "qos", sent)
        yield _counter(
            "messages_dropped",
            "Messages not delivered to a session, by reason",
            "reason",
            snapshot.messages_dropped_by_reason,
        )
        yield _counter(
            "disconnects", "Connections ended, by reason", "reason", snapshot.disconnects_by_reason
        )
        yield _counter(
            "child_restarts", "Child processes started again", "child", snapshot.child_restarts
        )
        yield _counter(
            "webhook_alerts",
            "Alerts about dead letters, by what became of them",
            "result",
            snapshot.webhook_alerts_by_result,
        )

    def _timings(self) -> Iterator[Metric]:
        snapshot = self._snapshot
        yield GaugeMetricFamily(
            "queuelake_loop_lag_seconds",
            "How late the broker's event loop runs its timers",
            value=snapshot.loop_lag_s,
        )
        yield _histogram(
            "commit_duration_seconds",
            "Time of a group commit, with its sync to disk",
            snapshot.commit_duration_s,
        )
        yield _histogram(
            "commit_group_messages", "Messages in one group commit", snapshot.commit_group_messages
        )


def _counter(name: str, text: str, label: str, values: dict[int, int] | dict[str, int]) -> Metric:
    family = CounterMetricFamily(f"queuelake_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([str(key)], value)
    return family


def _histogram(name: str, text: str, histogram: Histogram) -> Metric:
    buckets: list[tuple[str, float]] = []
    total = 0
    for bound, count in zip([*histogram.bounds, float("inf")], histogram.counts, strict=True):
        total += count
        buckets.append(("+Inf" if bound == float("inf") else repr(float(bound)), total))
    return HistogramMetricFamily(
        f"queuelake_{name}", text, buckets=buckets, sum_value=histogram.sum
    )
