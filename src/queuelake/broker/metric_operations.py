"""The `metrics` operation: one snapshot of everything that is counted.

Whoever asks while a snapshot is being taken gets that one. What grows with the number of queues,
sessions or files is done in slices or in a thread: a scrape holds nobody up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from queuelake import __version__
from queuelake.broker import metrics as broker_metrics
from queuelake.broker.audit import Audit
from queuelake.broker.compiled import is_compiled
from queuelake.broker.core import Broker
from queuelake.broker.ecq_operations import EcqOperations
from queuelake.broker.fanout_operations import FanoutOperations
from queuelake.broker.message_queue_census import MessageQueueCensus
from queuelake.broker.operation import Operation
from queuelake.broker.pipeline.operations import PipelineOperations
from queuelake.broker.process_figures import read_process_figures
from queuelake.broker.queue_census import QueueCensus
from queuelake.broker.readiness import problems
from queuelake.broker.sleepers import Sleepers
from queuelake.control import Histogram, MetricsSnapshot

SESSIONS_PER_SLICE = 5_000


class MetricOperations:
    """Answers for one broker."""

    def __init__(
        self,
        broker: Broker,
        ecq: EcqOperations,
        fanout: FanoutOperations,
        pipeline: PipelineOperations,
        child_restarts: Mapping[str, int],
        audit: Audit | None,
    ) -> None:
        self._broker = broker
        self._ecq = ecq
        self._fanout = fanout
        self._pipeline = pipeline
        self._child_restarts = child_restarts
        self._audit = audit
        settings = broker.settings.metrics
        self._queues = QueueCensus(broker.queues, settings)
        queues = broker.message_queues
        self._mq = MessageQueueCensus(queues, Sleepers(broker.queues, queues.names), settings)
        self._data_dir = str(Path(broker.settings.data_dir).expanduser())
        self._running: asyncio.Task[MetricsSnapshot] | None = None

    def table(self) -> dict[str, Operation]:
        return {"metrics": self.metrics}

    async def metrics(self, _: dict[str, object]) -> MetricsSnapshot:
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._take())
        return await asyncio.shield(self._running)

    async def _take(self) -> MetricsSnapshot:
        broker = self._broker
        metrics = broker.metrics
        used, mapped = broker.store.size_bytes()
        process = await asyncio.to_thread(read_process_figures, self._data_dir, broker.store)
        census = await self._queues.take()
        mq = await self._mq.take()
        persistent = await self._persistent_sessions()
        return MetricsSnapshot(
            version=__version__,
            compiled=is_compiled(),
            ready=not problems(broker),
            started_at_s=broker.clock.started_ms / 1000,
            connections=metrics.connections,
            sessions=len(broker.sessions.by_client),
            sessions_persistent=persistent,
            subscriptions=broker.router.count,
            retained_messages=len(broker.retained),
            messages_received_by_qos=list(metrics.received),
            messages_sent_by_qos=list(metrics.sent),
            messages_dropped_by_reason=dict(metrics.dropped),
            bytes_received=metrics.bytes_received,
            bytes_sent=metrics.bytes_sent,
            publish_refused=metrics.publish_refused,
            denied_by_action={
                "publish": metrics.publish_denied,
                "subscribe": metrics.subscribe_denied,
            },
            connects=metrics.connects,
            disconnects_by_reason=dict(metrics.disconnects),
            logins_refused_by_reason=dict(metrics.logins_refused),
            commit_duration_s=_histogram(metrics.commit_latency),
            commit_group_messages=_histogram(metrics.commit_group),
            commit_failures=metrics.commit_failures,
            loop_lag_s=metrics.loop_lag_s,
            loop_lags_s=_histogram(metrics.loop_lags),
            store_bytes=used,
            store_map_bytes=mapped,
            store_free_bytes=process.store_free_bytes,
            store_bytes_max=broker.settings.storage.map_size_bytes_max,
            disk_free_bytes=process.disk_free_bytes,
            resident_memory_bytes=process.resident_bytes,
            cpu_s=process.cpu_s,
            open_files=process.open_files,
            open_files_max=process.open_files_max,
            child_restarts=dict(self._child_restarts),
            audit_entries=self._audit.written if self._audit is not None else 0,
            audit_failures=self._audit.failures if self._audit is not None else 0,
            queues=self._queues.count(),
            queue_metrics=census.queues,
            queues_left_out=census.left_out,
            webhook_alerts_by_result=self._alerts(),
            spans_by_result=self._spans(),
            mq=mq,
            ecq=self._ecq.figures(),
            sdv=self._fanout.figures(),
            archive=self._pipeline.figures(broker.settings.metrics.queues_max),
        )

    async def _persistent_sessions(self) -> int:
        sessions = list(self._broker.sessions.by_client.values())
        count = 0
        for at in range(0, len(sessions), SESSIONS_PER_SLICE):
            count += sum([one.persistent for one in sessions[at : at + SESSIONS_PER_SLICE]])
            await asyncio.sleep(0)
        return count

    def _spans(self) -> dict[str, int]:
        tracer = self._broker.queues.tracer
        return tracer.sink.counts() if tracer is not None else {}

    def _alerts(self) -> dict[str, int]:
        alerts = self._broker.queues.alerts
        if alerts is None:
            return {}
        return {"sent": alerts.sent, "failed": alerts.failed, "dropped": alerts.dropped}


def _histogram(histogram: broker_metrics.Histogram) -> Histogram:
    return Histogram(list(histogram.bounds), list(histogram.counts), histogram.total)
