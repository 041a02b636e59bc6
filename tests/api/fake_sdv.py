"""Vehicle fan-out without vehicles: the real operations over a service which only remembers."""

from __future__ import annotations

from collections.abc import Iterator

from queuelake.broker.fanout_operations import FanoutOperations
from queuelake.control_sdv import (
    SdvCancelled,
    SdvDataUsage,
    SdvFigures,
    SdvInFlight,
    SdvMemoryUsage,
    SdvPending,
    SdvRequest,
    SdvRequestPage,
    SdvStatus,
    SdvVehicle,
)
from queuelake.errors import NotFoundError
from queuelake.sdv_settings import SdvConfig
from tests.api.live import LiveAdmin

VINS = ["V1", "V2", "V3"]
REQUESTS = ["task_ota_1", "a/b", "50%", "ünïcode"]
NOW_MS = 1_790_000_000_000


class FakeFanout:
    """The service, and what a test can see of the calls to it."""

    def __init__(self) -> None:
        self.config = SdvConfig()
        self.collecting = False
        self.waiting: dict[str, set[str]] = {}
        self.commits = 0
        self.restore()

    def restore(self) -> None:
        """Configuration and rows are as at the beginning."""
        self.config = SdvConfig()
        self.waiting = {request_id: set(VINS) for request_id in REQUESTS}

    def status(self) -> SdvStatus:
        rows = sum(len(vins) for vins in self.waiting.values())
        return SdvStatus(rows, 1, SdvMemoryUsage(100 * rows, SdvDataUsage(1000, 24)))

    def inspect(self, vin: str) -> SdvVehicle:
        rows = [
            SdvPending(NOW_MS + index, request_id, "d1", True)
            for index, (request_id, vins) in enumerate(self.waiting.items())
            if vin in vins
        ]
        sent = SdvInFlight(rows[0].ts, rows[0].request_id, "d1", NOW_MS) if rows else None
        return SdvVehicle(vin, bool(rows), bool(rows), sent, rows, False)

    def request(self, request_id: str) -> SdvRequest:
        if request_id not in self.waiting:
            raise NotFoundError(f"there was no request {request_id!r}")
        pending = len(self.waiting[request_id])
        cancelled = len(VINS) - pending
        return SdvRequest(request_id, NOW_MS, len(VINS), pending, 0, 0, 0, 0, cancelled, 0)

    def requests(self, limit: int, cursor: str) -> SdvRequestPage:
        names = sorted(name for name in self.waiting if name > cursor)
        more = names[limit - 1] if len(names) > limit else None
        return SdvRequestPage([self.request(name) for name in names[:limit]], more)

    def cancel(self, request_id: str, vins: list[str]) -> Iterator[SdvCancelled]:
        waiting = self.waiting.get(request_id, set())
        for vin in vins or VINS:
            gone = vin in waiting
            waiting.discard(vin)
            yield SdvCancelled(request_id, int(gone), 0)

    def collect_garbage(self) -> bool:
        return not self.collecting

    def configure(self, config: SdvConfig) -> None:
        self.config = config

    def figures(self) -> SdvFigures:
        counts = [0] * len(SdvFigures().time_to_ack_counts)
        counts[0], counts[2], counts[-1] = 2, 1, 1
        return SdvFigures(
            pending=12,
            inflight=1,
            unique_payloads=1,
            dispatched_by_trigger={"batch": 3, "heartbeat": 1},
            acked=3,
            missing_data=2,
            trigger_invalid=4,
            triggers=5,
            time_to_ack_counts=counts,
            time_to_ack_sum_s=90_000.5,
            requests=[self.request("task_ota_1")],
        )

    async def durable(self) -> None:
        self.commits += 1


def add_fanout(admin: LiveAdmin) -> FakeFanout:
    """Let the fake broker of an admin process have vehicle fan-out."""
    fake = FakeFanout()
    admin.broker.operations.update(FanoutOperations(fake, fake.durable).table())
    return fake
