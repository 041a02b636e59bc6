"""Counters as plain numbers: the hot path adds, the admin process reads at scrape time."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, final

from queuelake.protocol import reasons

LATENCY_BOUNDS_S = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5]
LAG_BOUNDS_S = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5]
GROUP_BOUNDS = [1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 10000.0]

# How refused logins are counted; all others are "other".
LOGIN_REASONS: Final = {
    reasons.BAD_USER_NAME_OR_PASSWORD: "bad_credentials",
    reasons.NOT_AUTHORIZED: "not_authorized",
    reasons.BAD_AUTHENTICATION_METHOD: "bad_method",
    reasons.BANNED: "banned",
    reasons.CLIENT_IDENTIFIER_NOT_VALID: "client_id",
    reasons.QUOTA_EXCEEDED: "connections_max",
    reasons.CONNECTION_RATE_EXCEEDED: "connect_rate",
    reasons.SERVER_UNAVAILABLE: "unavailable",
}

# How the disconnects of the broker are counted; all others are "error".
DISCONNECT_NAMES: Final = {
    reasons.KEEP_ALIVE_TIMEOUT: "keepalive",
    reasons.SESSION_TAKEN_OVER: "taken_over",
    reasons.SERVER_SHUTTING_DOWN: "shutdown",
    reasons.ADMINISTRATIVE_ACTION: "admin",
    reasons.NOT_AUTHORIZED: "not_authorized",
    reasons.UNSPECIFIED_ERROR: "store",
}


@final
class Histogram:
    """Counts by upper bound; the last count is of everything above."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: list[float]) -> None:
        self.bounds: list[float] = bounds
        self.counts: list[int] = [0] * (len(bounds) + 1)
        self.total: float = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_many(self, value: float, count: int) -> None:
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count


@final
class Metrics:
    """What one broker has done since its start."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "commit_failures",
        "commit_group",
        "commit_latency",
        "connections",
        "connects",
        "disconnects",
        "dropped",
        "logins_refused",
        "loop_lag_s",
        "loop_lags",
        "publish_denied",
        "publish_refused",
        "received",
        "sent",
        "subscribe_denied",
    )

    def __init__(self) -> None:
        self.connections: int = 0
        self.connects: int = 0
        self.disconnects: dict[str, int] = {}
        self.logins_refused: dict[str, int] = {}
        self.received: list[int] = [0, 0, 0]
        self.sent: list[int] = [0, 0, 0]
        self.bytes_received: int = 0
        self.bytes_sent: int = 0
        self.dropped: dict[str, int] = {}
        self.publish_refused: int = 0
        self.publish_denied: int = 0  # by an access rule
        self.subscribe_denied: int = 0
        self.commit_latency: Histogram = Histogram(LATENCY_BOUNDS_S)
        self.commit_group: Histogram = Histogram(GROUP_BOUNDS)
        self.commit_failures: int = 0
        self.loop_lag_s: float = 0.0
        self.loop_lags: Histogram = Histogram(LAG_BOUNDS_S)

    def drop(self, reason: str, count: int = 1) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + count
