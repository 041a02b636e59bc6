"""What happened to the messages of one queue, as plain numbers."""

from __future__ import annotations

from typing import Final, final

LATENCY_BUCKETS: Final = 32


@final
class Latency:
    """First deliveries by how long they had waited: bucket n holds those below 2**n ms."""

    __slots__ = ("counts", "max_ms")

    def __init__(self) -> None:
        self.counts: list[int] = [0] * LATENCY_BUCKETS
        self.max_ms: int = 0  # since somebody set it back

    def observe(self, waited_ms: int) -> None:
        if waited_ms > self.max_ms:
            self.max_ms = waited_ms
        bucket = 0
        while waited_ms > 0 and bucket < LATENCY_BUCKETS - 1:
            waited_ms >>= 1
            bucket += 1
        counts = self.counts
        counts[bucket] = counts[bucket] + 1


def quantile_ms(counts: list[int], share: float) -> float:
    """How long that share of the deliveries in these buckets had waited at most."""
    rank = share * sum(counts)
    below = 0
    for bucket, count in enumerate(counts):
        if count and below + count >= rank:
            low = 0.0 if bucket == 0 else float(1 << bucket - 1)
            return low + (float(1 << bucket) - low) * (rank - below) / count
        below += count
    return 0.0


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
        "purged",
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
        self.purged: int = 0
        self.dead: dict[str, int] = {}
        self.latency: Latency = Latency()
