"""Events of fan-out: rows which did not reach their vehicle.

To the table all vehicles are one queue: the consumer of an event is the vehicle, its partition the
shard of the vehicle, its group the request, and its message the time of the trigger.
"""

from __future__ import annotations

from typing import Final, final

from queuelake.broker.pipeline.events import EventLog, Ledger
from queuelake.engine import events as e
from queuelake.engine.events import Events
from queuelake.engine.kinds.fanout import ACKED, Row
from queuelake.storage.api import Batch
from queuelake.storage.log_tables import shard_of
from queuelake.tables import SDV_QUEUE_ID

# By outcome, in the order of `sdv_tables.Progress`.
STEPS: Final = (e.ACKED, e.REJECTED, e.EXPIRED, e.DROPPED, e.DROPPED)
REASONS: Final = ("", "", "", "cancelled", "replaced")


@final
class FanoutEvents:
    """Those of the group being collected, and of the one being committed."""

    __slots__ = ("_collected", "_log", "_sealed")

    def __init__(self, ledger: Ledger) -> None:
        self._log: EventLog = EventLog(ledger, SDV_QUEUE_ID)
        self._collected: Events = Events()
        self._sealed: Events = Events()

    def settled(self, row: Row, outcome: int, now_ms: int) -> None:
        """A row has come to its end."""
        if outcome != ACKED:
            self._note(STEPS[outcome], row, now_ms, REASONS[outcome])

    def buried(self, row: Row, now_ms: int) -> None:
        self._note(e.DEAD_LETTERED, row, now_ms, "rejected")

    def _note(self, step: int, row: Row, now_ms: int, reason: str) -> None:
        shard = shard_of(row.key)
        self._collected.add(step, now_ms, shard, row.ts_ms, row.request_id, row.vin, 0, reason)

    def write(self, batch: Batch) -> None:
        if len(self._collected):
            self._log.write(batch, self._collected)
            self._sealed, self._collected = self._collected, Events()

    def stored(self) -> None:
        if len(self._sealed):
            self._sealed = Events()

    def rolled_back(self) -> None:
        """What was decided stays decided, and is told of with the next commit."""
        self._sealed.extend(self._collected)
        self._collected, self._sealed = self._sealed, Events()
