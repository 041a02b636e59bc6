"""A broker which answers the admin process with canned values, over a real control socket."""

from __future__ import annotations

from queuelake.control import (
    ClientInfo,
    ClientPage,
    Histogram,
    MetricsSnapshot,
    Readiness,
    Status,
)
from queuelake.control_cluster import ClusterFigures
from queuelake.control_queues import QueueMetrics
from queuelake.errors import NotFoundError
from tests.api.fake_queues import FakeQueues


class FakeBroker:
    """The operations of the broker, and what a test can change about their answers."""

    def __init__(self) -> None:
        self.readiness = Readiness(ready=True)
        self.clients = {name: ClientInfo(name, connected=True) for name in CLIENT_IDS}
        self.snapshot = SNAPSHOT
        self.calls: list[str] = []
        self.queues = FakeQueues()
        self.operations = {
            **self.queues.operations,
            "readiness": self._readiness,
            "status": self._status,
            "metrics": self._metrics,
            "clients": self._clients,
            "client": self._client,
            "disconnect": self._disconnect,
        }

    def _readiness(self, _args: dict[str, object]) -> Readiness:
        self.calls.append("readiness")
        return self.readiness

    async def _status(self, _args: dict[str, object]) -> Status:
        return STATUS

    def _metrics(self, _args: dict[str, object]) -> MetricsSnapshot:
        return self.snapshot

    def _clients(self, args: dict[str, object]) -> ClientPage:
        limit, cursor = args["limit"], args["cursor"]
        assert isinstance(limit, int)
        assert isinstance(cursor, str)
        names = sorted(name for name in self.clients if name > cursor)
        more = names[limit - 1] if len(names) > limit else None
        return ClientPage([self.clients[name] for name in names[:limit]], more)

    def _client(self, args: dict[str, object]) -> ClientInfo:
        found = self.clients.get(str(args["client_id"]))
        if found is None:
            raise NotFoundError(f"there is no client {args['client_id']!r}")
        return found

    def _disconnect(self, args: dict[str, object]) -> None:
        self._client(args)
        del self.clients[str(args["client_id"])]


CLIENT_IDS = ["a", "a/b", "a%2Fb", "50%", "ünïcode", "with space", "c1", "c2", "c3"]
STATUS = Status(
    version="1.2.3",
    compiled=True,
    started_at_ms=1_790_000_000_000,
    uptime_s=12.5,
    addresses={"mqtt": "mqtt://127.0.0.1:1883"},
    connections=9,
)
SNAPSHOT = MetricsSnapshot(
    version="1.2.3",
    compiled=True,
    connections=9,
    sessions=10,
    messages_received_by_qos=[1, 2, 3],
    messages_sent_by_qos=[4, 5, 6],
    messages_dropped_by_reason={"queue_full": 7},
    bytes_received=1 << 40,
    commit_duration_s=Histogram(bounds=[0.001, 0.01], counts=[5, 3, 2], sum=0.5),
    commit_group_messages=Histogram(bounds=[1, 10, 100], counts=[1, 1, 1, 0], sum=42),
    loop_lag_s=0.002,
    child_restarts={"admin": 1},
    queues=2,
    queue_metrics=[
        QueueMetrics(
            queue="$queue/tasks/image",
            depth=5,
            in_flight=2,
            enqueued=100,
            dequeued=97,
            acked=90,
            nacked=4,
            redelivered=6,
            timed_out=2,
            expired=1,
            dropped=3,
            dead_lettered_by_reason={"max_retries": 2, "rejected": 1},
            latency_p50_s=0.002,
            latency_p99_s=0.25,
            consumers_by_group={"workers": 3, "audit": 0},
            ready=3,
            depth_max=100,
            oldest_age_s=1.5,
        ),
        QueueMetrics(queue='$queue/a"b'),
    ],
    webhook_alerts_by_result={"sent": 2},
    cluster=[ClusterFigures(is_owner=True, epoch=3, lag_by_node={"a": 0, "b": 7})],
)
