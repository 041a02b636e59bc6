"""What fan-out has done since the start, as plain numbers."""

from __future__ import annotations

from typing import final

from queuelake.broker.fanout.events import FanoutEvents
from queuelake.broker.metrics import Histogram
from queuelake.broker.pipeline.events import Ledger
from queuelake.engine.counters import Latency
from queuelake.engine.kinds.fanout import ACKED, CAUSES, EXPIRED, REJECTED, Row


@final
class FanoutMetrics:
    __slots__ = (
        "dead_lettered",
        "dispatched",
        "events",
        "gc_runs",
        "latency",
        "missing_data",
        "outcomes",
        "rows",
        "time_to_ack",
        "trigger_invalid",
        "triggers",
    )

    def __init__(self, time_to_ack_bounds_s: list[float], ledger: Ledger) -> None:
        self.events: FanoutEvents = FanoutEvents(ledger)  # are told of what is counted here
        self.dispatched: list[int] = [0] * len(CAUSES)
        self.outcomes: list[int] = [0, 0, 0, 0, 0]  # as in `sdv_tables.Progress`
        self.missing_data: int = 0
        self.triggers: int = 0
        self.trigger_invalid: int = 0
        self.dead_lettered: int = 0
        self.gc_runs: int = 0
        self.rows: int = 0  # of triggers
        self.latency: Latency = Latency()  # from trigger to dispatch
        self.time_to_ack: Histogram = Histogram(time_to_ack_bounds_s)

    def sent(self, row: Row, cause: int, now_ms: int) -> None:
        self.dispatched[cause] += 1
        self.latency.observe(now_ms - row.ts_ms)

    def buried(self, row: Row, now_ms: int) -> None:
        self.dead_lettered += 1
        self.events.buried(row, now_ms)

    def settled(self, row: Row, outcome: int, now_ms: int) -> None:
        self.outcomes[outcome] += 1
        self.events.settled(row, outcome, now_ms)
        if outcome == ACKED:
            self.time_to_ack.observe(max(0, now_ms - row.ts_ms) / 1000)

    def acked(self) -> int:
        return self.outcomes[ACKED]

    def rejected(self) -> int:
        return self.outcomes[REJECTED]

    def expired(self) -> int:
        return self.outcomes[EXPIRED]
