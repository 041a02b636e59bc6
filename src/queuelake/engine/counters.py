"""What happened to the messages of one queue, as plain numbers."""

from __future__ import annotations

from typing import Final, final

LATENCY_BUCKETS: Final = 32


@final
class Counters:
    """Since the machine was made. They are no part of its state: a restart begins at zero."""

    __slots__ = (
        "acked",
        "dead",
        "delivered",
        "dropped",
        "duplicates",
        "enqueued",
        "expired",
        "latency",
        "nacked",
        "overwritten",
        "redelivered",
        "refused",
        "timed_out",
    )

    def __init__(self) -> None:
        self.enqueued: int = 0
        self.duplicates: int = 0
        self.refused: int = 0
        self.delivered: int = 0
        self.redelivered: int = 0
        self.acked: int = 0
        self.nacked: int = 0
        self.overwritten: int = 0
        self.timed_out: int = 0
        self.expired: int = 0
        self.dropped: int = 0
        self.dead: dict[str, int] = {}
        # First deliveries by how long they had waited: bucket n holds those below 2**n ms.
        self.latency: list[int] = [0] * LATENCY_BUCKETS

    def observe(self, waited_ms: int) -> None:
        bucket = 0
        while waited_ms > 0 and bucket < LATENCY_BUCKETS - 1:
            waited_ms >>= 1
            bucket += 1
        latency = self.latency
        latency[bucket] = latency[bucket] + 1

    def quantile_s(self, share: float) -> float:
        """How long that share of the first deliveries had waited at most, in seconds."""
        total = sum(self.latency)
        if total == 0:
            return 0.0
        rank = share * total
        below = 0
        for bucket, count in enumerate(self.latency):
            if count and below + count >= rank:
                low = 0.0 if bucket == 0 else float(1 << bucket - 1)
                return (low + (float(1 << bucket) - low) * (rank - below) / count) / 1000
            below += count
        return float(1 << LATENCY_BUCKETS) / 1000
