"""What the admin process and the CLI may ask of a running broker."""

from __future__ import annotations

import asyncio
import bisect
import os
from collections.abc import Mapping
from pathlib import Path

from queuelake import __version__
from queuelake.broker import metrics as broker_metrics
from queuelake.broker.access_operations import AccessOperations
from queuelake.broker.admin_operations import AdminOperations
from queuelake.broker.backups import Backups
from queuelake.broker.connection import Connection
from queuelake.broker.core import Broker
from queuelake.broker.ecq_operations import EcqOperations
from queuelake.broker.fanout_operations import FanoutOperations
from queuelake.broker.letter_operations import LetterOperations
from queuelake.broker.message_queue_operations import MessageQueueOperations
from queuelake.broker.operation import Operation
from queuelake.broker.pipeline.jobs import Jobs
from queuelake.broker.pipeline.lease import Leases
from queuelake.broker.pipeline.operations import PipelineOperations
from queuelake.broker.queue_census import QueueCensus
from queuelake.broker.queue_operations import QueueOperations
from queuelake.broker.session import Session
from queuelake.control import (
    ClientInfo,
    ClientPage,
    Histogram,
    MetricsSnapshot,
    Readiness,
    Status,
)
from queuelake.errors import NotFoundError, RefusedError
from queuelake.protocol import reasons
from queuelake.protocol import wire as hot_module

PAGE_ITEMS_MAX = 10_000


def is_compiled() -> bool:
    """Whether the hot path is a compiled extension."""
    return not str(hot_module.__file__).endswith(".py")


class Operations:
    """Each method answers one named request; they run on the loop and stay short."""

    def __init__(
        self,
        broker: Broker,
        addresses: list[str],
        child_restarts: Mapping[str, int],
        origins: Mapping[str, str],
    ) -> None:
        self._broker = broker
        self._addresses = addresses
        self._child_restarts = child_restarts
        self._queue_operations = QueueOperations(broker.queues)
        self._mq_operations = MessageQueueOperations(
            broker.message_queues, self._queue_operations.durable
        )
        self._ecq_operations = EcqOperations(broker.mailboxes, self._queue_operations.durable)
        self._fanout_operations = FanoutOperations(broker.fanout, self._queue_operations.durable)
        self._admin_operations = AdminOperations(broker, self._queue_operations.durable, origins)
        self._access_operations = AccessOperations(broker)
        self.backups = Backups(Path(broker.settings.data_dir).expanduser(), broker.store)
        self._letter_operations = LetterOperations(broker.queues, self._queue_operations.durable)
        self._pipeline_operations = PipelineOperations(
            broker.store,
            broker.queues.archive,
            Leases(broker.store, broker.runner, broker.clock),
            Jobs(broker.store, broker.runner, broker.clock),
            self._queue_operations.durable,
        )
        self._census = QueueCensus(broker.queues)
        self.started = {name: asyncio.Event() for name in child_restarts}

    def table(self) -> dict[str, Operation]:
        return {
            "metrics": self.metrics,
            "readiness": self.readiness,
            "status": self.status,
            "clients": self.clients,
            "client": self.client,
            "disconnect": self.disconnect,
            "child_started": self.child_started,
            **self._admin_operations.table(),
            **self._access_operations.table(),
            **self.backups.table(),
            **self._queue_operations.table(),
            **self._letter_operations.table(),
            **self._mq_operations.table(),
            **self._fanout_operations.table(),
            **self._ecq_operations.table(),
            **self._broker.staging.table(),
            **self._pipeline_operations.table(),
        }

    def child_started(self, args: dict[str, object]) -> bool:
        started = self.started.get(str(args.get("name")))
        if started is not None:
            started.set()
        return True

    def readiness(self, _: dict[str, object]) -> Readiness:
        broker = self._broker
        problems = []
        if broker.runner.failure:
            problems.append(f"store: {broker.runner.failure}")
            problems.append("sdv: tables_not_ready")
        if broker.stopping:
            problems.append("broker is shutting down")
        return Readiness(not problems, problems)

    def status(self, _: dict[str, object]) -> Status:
        broker = self._broker
        now_ms = broker.clock.now_ms()
        return Status(
            version=__version__,
            compiled=is_compiled(),
            started_at_ms=broker.clock.started_ms,
            uptime_s=(now_ms - broker.clock.started_ms) / 1000,
            addresses={_listener(url): url for url in self._addresses},
            connections=broker.metrics.connections,
            sessions=len(broker.sessions.by_client),
            subscriptions=broker.router.count,
            retained_messages=len(broker.retained),
        )

    def metrics(self, _: dict[str, object]) -> MetricsSnapshot:
        broker = self._broker
        metrics = broker.metrics
        used, mapped = broker.store.size_bytes()
        sessions = broker.sessions.by_client.values()
        return MetricsSnapshot(
            version=__version__,
            compiled=is_compiled(),
            connections=metrics.connections,
            sessions=len(sessions),
            sessions_persistent=sum(session.persistent for session in sessions),
            subscriptions=broker.router.count,
            retained_messages=len(broker.retained),
            messages_received_by_qos=list(metrics.received),
            messages_sent_by_qos=list(metrics.sent),
            messages_dropped_by_reason=dict(metrics.dropped),
            bytes_received=metrics.bytes_received,
            bytes_sent=metrics.bytes_sent,
            publish_refused=metrics.publish_refused,
            connects=metrics.connects,
            disconnects_by_reason=dict(metrics.disconnects),
            commit_duration_s=_histogram(metrics.commit_latency),
            commit_group_messages=_histogram(metrics.commit_group),
            commit_failures=metrics.commit_failures,
            loop_lag_s=metrics.loop_lag_s,
            store_bytes=used,
            store_map_bytes=mapped,
            resident_memory_bytes=_resident_bytes(),
            child_restarts=dict(self._child_restarts),
            queues=self._census.count(),
            queue_metrics=self._census.metrics(),
            webhook_alerts_by_result=self._alerts(),
            mq=self._mq_operations.figures(),
            ecq=self._ecq_operations.figures(),
            sdv=self._fanout_operations.figures(),
            archive=self._pipeline_operations.figures(),
        )

    def _alerts(self) -> dict[str, int]:
        alerts = self._broker.queues.alerts
        if alerts is None:
            return {}
        return {"sent": alerts.sent, "failed": alerts.failed, "dropped": alerts.dropped}

    def clients(self, args: dict[str, object]) -> ClientPage:
        limit, cursor = args.get("limit", 100), args.get("cursor", "")
        if not isinstance(limit, int) or not 1 <= limit <= PAGE_ITEMS_MAX:
            raise RefusedError(f"limit is {limit!r}, may be 1 to {PAGE_ITEMS_MAX}")
        by_client = self._broker.sessions.by_client
        wanted = str(args.get("search", "")).casefold()
        names = sorted(
            name for name, session in by_client.items() if not wanted or _fits(session, wanted)
        )
        start = bisect.bisect_right(names, str(cursor)) if cursor else 0
        page = names[start : start + limit]
        more = start + limit < len(names)
        return ClientPage([_client(by_client[name]) for name in page], page[-1] if more else None)

    def client(self, args: dict[str, object]) -> ClientInfo:
        return _client(self._session(args))

    def disconnect(self, args: dict[str, object]) -> bool:
        """Close the client's connection; its session stays if it is persistent."""
        connection = self._session(args).connection
        if connection is None:
            return False
        connection.close(reasons.ADMINISTRATIVE_ACTION, "disconnected by an administrator")
        return True

    def _session(self, args: dict[str, object]) -> Session:
        client_id = str(args.get("client_id", ""))
        session = self._broker.sessions.by_client.get(client_id)
        if session is None:
            raise NotFoundError(f"client {client_id!r} is not known")
        return session


def _fits(session: Session, wanted: str) -> bool:
    """Whether these words are in its client id, its user or its address."""
    connection: Connection | None = session.connection
    if wanted in session.client_id.casefold():
        return True
    if connection is None:
        return False
    return wanted in (connection.username or "").casefold() or wanted in connection.peer_ip


def _client(session: Session) -> ClientInfo:
    connection: Connection | None = session.connection
    online = {}
    if connection is not None:
        address = f"{connection.peer_ip}:{connection.peer_port}" if connection.peer_ip else None
        online = {
            "username": connection.username,
            "address": address,
            "listener": connection.listener,
            "connected_at_ms": connection.connected_ms,
            "keepalive_s": connection.keepalive_s,
        }
    return ClientInfo(
        client_id=session.client_id,
        connected=connection is not None,
        protocol_level=session.version,
        clean_start=not session.persistent,
        session_expiry_s=session.expiry_s,
        subscriptions=len(session.subscriptions),
        inflight_messages=len(session.inflight),
        queued_messages=max(0, session.unsettled - len(session.inflight)),
        queued_bytes=session.queued_bytes + session.storing_bytes,
        **online,  # type: ignore[arg-type]
    )


def _listener(url: str) -> str:
    """The name of what serves this address: its scheme, but for Flight, which has gRPC's."""
    scheme = url.partition("://")[0]
    return "flight" if scheme.startswith("grpc") else scheme


def _histogram(histogram: broker_metrics.Histogram) -> Histogram:
    return Histogram(list(histogram.bounds), list(histogram.counts), histogram.total)


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
