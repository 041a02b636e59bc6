"""What mailboxes have done since the start, as plain numbers."""

from __future__ import annotations

from typing import final

from queuelake.engine.counters import Latency


@final
class Counters:
    __slots__ = (
        "acked",
        "compacted",
        "dead_lettered",
        "delivered",
        "direct_publish_rejected",
        "expired",
        "gc_runs",
        "latency",
        "polls",
        "rejected",
        "rewinds",
        "write_errors",
        "writes",
    )

    def __init__(self) -> None:
        self.writes: int = 0
        self.write_errors: dict[str, int] = {}  # by why
        self.compacted: int = 0
        self.delivered: int = 0
        self.acked: int = 0
        self.rejected: int = 0
        self.dead_lettered: int = 0
        self.expired: int = 0
        self.direct_publish_rejected: int = 0
        self.polls: int = 0
        self.rewinds: int = 0
        self.gc_runs: int = 0
        self.latency: Latency = Latency()

    def refuse(self, why: str) -> None:
        self.write_errors[why] = self.write_errors.get(why, 0) + 1
