"""`/metrics`: the broker's counters in the Prometheus text formats.

The broker counts in plain ints. At a scrape, one `metrics` call fetches them all, and this module
gives them their public names, help texts and labels. docs/metrics.md lists the same names.
"""

from __future__ import annotations

import asyncio
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

from queuelake.admin.cluster_metrics import cluster_families
from queuelake.admin.ecq_metrics import ecq_families
from queuelake.admin.mq_metrics import mq_families
from queuelake.admin.pipeline_metrics import archive_families
from queuelake.admin.queue_metrics import queue_families
from queuelake.admin.sdv_metrics import sdv_families
from queuelake.admin.services import Services
from queuelake.control import Histogram, MetricsSnapshot

# The field of MetricsSnapshot, which is also the name of the metric, and what it is.
GAUGES = {
    "ready": "1 when clients can be served; GET /readyz says why not",
    "connections": "Clients connected now",
    "sessions": "Sessions, connected or not",
    "sessions_persistent": "Sessions which outlive their connection",
    "subscriptions": "Subscriptions of all sessions to topics; those to queues are consumers",
    "retained_messages": "Topics with a retained message",
    "queues": "Durable queues",
    "store_bytes": "Bytes of the store in use",
    "store_free_bytes": "Bytes of those in use which were freed and will be used again",
    "store_map_bytes": "Bytes the store may use before its map grows",
    "store_bytes_max": "The limit storage.map_size_bytes_max",
    "disk_free_bytes": "Bytes free on the disk of the data directory",
    "resident_memory_bytes": "Resident memory of the broker process",
    "open_files": "Open files and sockets of the broker process",
    "open_files_max": "Files and sockets the broker process may open",
}
COUNTERS = {
    "bytes_received": "Bytes received from clients",
    "bytes_sent": "Bytes sent to clients",
    "publish_refused": "PUBLISH packets answered with a failure reason code",
    "connects": "Connections accepted with CONNACK success",
    "commit_failures": "Group commits which failed; nothing in them was confirmed",
    "audit_entries": "Changes of administrators which were written down",
    "audit_failures": "Changes of administrators which could not be written down",
}
# The field of MetricsSnapshot, the name of the metric, its label, and what it counts.
LABELLED = (
    ("messages_received_by_qos", "messages_received", "qos", "PUBLISH packets from clients"),
    ("messages_sent_by_qos", "messages_sent", "qos", "PUBLISH packets sent to clients"),
    ("messages_dropped_by_reason", "messages_dropped", "reason", "Messages a session did not get"),
    ("disconnects_by_reason", "disconnects", "reason", "Connections ended"),
    ("logins_refused_by_reason", "logins_refused", "reason", "Connections refused at CONNECT"),
    ("denied_by_action", "denied", "action", "What clients asked and an access rule forbids"),
    ("child_restarts", "child_restarts", "child", "Child processes started again"),
    ("spans_by_result", "otel_spans", "result", "Spans of traces"),
    ("webhook_alerts_by_result", "webhook_alerts", "result", "Alerts about dead letters"),
)


def add_metrics_route(app: FastAPI, services: Services) -> None:
    @app.get("/metrics", tags=["metrics"], response_class=Response, responses=_RESPONSES)
    async def metrics(request: Request) -> Response:
        """All metrics, in the Prometheus text format or, when asked for, OpenMetrics."""
        snapshot = await services.metrics()
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        collector = SnapshotCollector(snapshot, services.gate.refused)
        # In a thread: a thousand queues are 30,000 lines, and others wait for this process too.
        text = await asyncio.to_thread(encode, collector)
        return Response(text, media_type=content_type)


_RESPONSES: dict[int | str, dict[str, object]] = {
    200: {
        "content": {
            "text/plain": {"schema": {"type": "string"}},
            "application/openmetrics-text": {"schema": {"type": "string"}},
        }
    }
}


class SnapshotCollector(Collector):
    """One answer of the broker as metric families, and what the admin process counted itself."""

    def __init__(self, snapshot: MetricsSnapshot, api_refused: dict[str, int]) -> None:
        self._snapshot = snapshot
        self._api_refused = {code.lower(): count for code, count in api_refused.items()}

    def collect(self) -> Iterator[Metric]:
        yield self._build_info()
        for name, text in GAUGES.items():
            yield GaugeMetricFamily(f"queuelake_{name}", text, value=getattr(self._snapshot, name))
        for name, text in COUNTERS.items():
            value = getattr(self._snapshot, name)
            yield CounterMetricFamily(f"queuelake_{name}", text, value=value)
        yield from self._labelled()
        yield from self._process()
        yield from queue_families(self._snapshot.queue_metrics, self._snapshot.queues_left_out)
        yield from mq_families(self._snapshot.mq)
        yield from ecq_families(self._snapshot.ecq)
        yield from sdv_families(self._snapshot.sdv)
        yield from archive_families(self._snapshot.archive)
        yield from cluster_families(self._snapshot.cluster)

    def _build_info(self) -> Metric:
        compiled = "true" if self._snapshot.compiled else "false"
        labels = {"version": self._snapshot.version, "compiled": compiled}
        return InfoMetricFamily("queuelake_build", "The running build", value=labels)

    def _labelled(self) -> Iterator[Metric]:
        for field, name, label, text in LABELLED:
            found = getattr(self._snapshot, field)
            values = dict(enumerate(found)) if isinstance(found, list) else found
            yield _counter(name, text, label, values)
        text = "Requests to the API without the right key or role"
        yield _counter("api_refused", text, "reason", self._api_refused)

    def _process(self) -> Iterator[Metric]:
        snapshot = self._snapshot
        yield CounterMetricFamily(
            "queuelake_cpu_seconds", "CPU time of the broker process", value=snapshot.cpu_s
        )
        yield GaugeMetricFamily(
            "queuelake_start_time_seconds",
            "When the broker was started, in seconds since 1970",
            value=snapshot.started_at_s,
        )
        yield _histogram(
            "loop_lag_seconds",
            "How late the broker's event loop runs its timers, four times a second",
            snapshot.loop_lags_s,
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
