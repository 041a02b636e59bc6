"""What the admin process and the CLI may ask of a running broker."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from pathlib import Path

from queuelake import __version__
from queuelake.broker.access_operations import AccessOperations
from queuelake.broker.admin_operations import AdminOperations
from queuelake.broker.audit import Audit
from queuelake.broker.backups import Backups
from queuelake.broker.compiled import is_compiled
from queuelake.broker.connection import Connection
from queuelake.broker.core import Broker
from queuelake.broker.ecq_operations import EcqOperations
from queuelake.broker.fanout_operations import FanoutOperations
from queuelake.broker.letter_operations import LetterOperations
from queuelake.broker.message_queue_operations import MessageQueueOperations
from queuelake.broker.metric_operations import MetricOperations
from queuelake.broker.operation import Operation
from queuelake.broker.pipeline.jobs import Jobs
from queuelake.broker.pipeline.lease import Leases
from queuelake.broker.pipeline.operations import PipelineOperations
from queuelake.broker.queue_operations import QueueOperations
from queuelake.broker.readiness import problems
from queuelake.broker.session import Session
from queuelake.control import (
    ClientInfo,
    ClientPage,
    Readiness,
    Status,
)
from queuelake.errors import NotFoundError, RefusedError
from queuelake.protocol import reasons

PAGE_ITEMS_MAX = 10_000


class Operations:
    """Each method answers one named request; they run on the loop and stay short."""

    def __init__(
        self,
        broker: Broker,
        addresses: list[str],
        child_restarts: Mapping[str, int],
        origins: Mapping[str, str],
        audit: Audit | None = None,
    ) -> None:
        self._broker = broker
        self._addresses = addresses
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
        self._metric_operations = MetricOperations(
            broker,
            self._ecq_operations,
            self._fanout_operations,
            self._pipeline_operations,
            child_restarts,
            audit,
        )

    def table(self) -> dict[str, Operation]:
        return {
            "readiness": self.readiness,
            "status": self.status,
            "clients": self.clients,
            "client": self.client,
            "disconnect": self.disconnect,
            **self._metric_operations.table(),
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

    def readiness(self, _: dict[str, object]) -> Readiness:
        found = problems(self._broker)
        return Readiness(not found, found)

    def status(self, _: dict[str, object]) -> Status:
        broker = self._broker
        now_ms = broker.clock.now_ms()
        return Status(
            version=__version__,
            compiled=is_compiled(),
            started_at_ms=broker.clock.started_ms,
            uptime_s=(now_ms - broker.clock.started_ms) / 1000,
            addresses=by_listener(self._addresses),
            connections=broker.metrics.connections,
            sessions=len(broker.sessions.by_client),
            subscriptions=broker.router.count,
            retained_messages=len(broker.retained),
        )

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


def by_listener(urls: list[str]) -> dict[str, str]:
    """What serves an address is called as its scheme, with or without TLS for gRPC and Flight."""
    names = {"grpcs": "grpc", "flight+tls": "flight"}
    return {names.get(scheme, scheme): url for url in urls if (scheme := url.partition("://")[0])}
