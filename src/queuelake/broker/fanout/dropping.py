"""What a new row pushes out: an older one of the same request, or the oldest over the limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from queuelake.broker.fanout.dispatch import Dispatcher
from queuelake.broker.fanout.register import Register
from queuelake.broker.fanout.vehicles import Vehicles
from queuelake.engine.kinds.fanout import DROPPED, Row
from queuelake.storage import sdv_tables as t

ROWS_PER_SLICE: Final = 1_000


@final
class Dropping:
    """For the rows of one trigger."""

    __slots__ = (
        "_dispatcher",
        "_register",
        "_request_id",
        "_ts_ms",
        "pending_max",
        "replaces",
    )

    def __init__(
        self, register: Register, dispatcher: Dispatcher, request_id: str, ts_ms: int
    ) -> None:
        self._register: Register = register
        self._dispatcher: Dispatcher = dispatcher
        self._request_id: str = request_id
        self._ts_ms: int = ts_ms
        self.replaces: bool = False
        self.pending_max: int = 0  # of a vehicle; 0: any number

    def drop_for(self, vehicles: Vehicles, now_ms: int) -> Iterator[bool]:
        """Vehicle by vehicle, in slices of so many rows."""
        left = ROWS_PER_SLICE
        for number in range(vehicles.parts()):
            for vin in vehicles.names(number):
                vehicle = t.digest(vin)
                rows = self._register.rows_after(vehicle, b"", ROWS_PER_SLICE)
                left -= len(rows) + 1
                more = len(rows) == ROWS_PER_SLICE
                while left <= 0:
                    yield True
                    left = ROWS_PER_SLICE
                    if more:
                        part = self._register.rows_after(vehicle, rows[-1].key, ROWS_PER_SLICE)
                        rows += part
                        left -= len(part) + 1
                        more = len(part) == ROWS_PER_SLICE
                for row in self._surplus(rows):
                    # Some of them were read a while ago.
                    if not self._dispatcher.is_in_flight(row) and self._register.row(row.key):
                        self._dispatcher.settle(row, DROPPED, now_ms)

    def _surplus(self, rows: list[Row]) -> list[Row]:
        """The rows of one vehicle which are replaced, or over the limit."""
        surplus: list[Row] = []
        kept: list[Row] = []
        for row in rows:
            is_older = row.request_id == self._request_id and row.ts_ms < self._ts_ms
            if self.replaces and is_older and not self._dispatcher.is_in_flight(row):
                surplus.append(row)
            else:
                kept.append(row)
        over = len(kept) - self.pending_max if self.pending_max else 0
        task = task_type(self._request_id)
        for row in kept:
            if over <= 0:
                break
            if task_type(row.request_id) == task and not self._dispatcher.is_in_flight(row):
                surplus.append(row)
                over -= 1
        return surplus


def task_type(request_id: str) -> str:
    """Of `task_{type}_{number}`: all but the number."""
    return request_id.rpartition("_")[0] or request_id
