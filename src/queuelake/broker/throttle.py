"""When we do not read: the login is being checked, the store is behind, the client too fast, what
it published takes long.

There may be several reasons at once; reading goes on when the last of them is gone. While we do
not read, the client's silence is ours, so its keep-alive does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from queuelake.broker.limits import TokenBucket

if TYPE_CHECKING:
    from queuelake.broker.connection import Connection
    from queuelake.protocol.packets import Publish

LOGIN: Final = 1
STORE: Final = 2
RATE: Final = 4
SERVICE: Final = 8


@final
class Throttle:
    """The reading side of one connection."""

    __slots__ = (
        "_byte_bucket",
        "_bytes",
        "_connection",
        "_message_bucket",
        "_messages",
        "_reasons",
        "_unconfirmed",
        "deferred",
        "limited",
    )

    def __init__(self, connection: Connection) -> None:
        limits = connection.broker.settings.limits
        self._connection: Connection = connection
        self._reasons: int = 0
        self._unconfirmed: int = 0  # bytes of publishes which are not durable
        self._messages: int = 0  # published since the rates were last looked at
        self._bytes: int = 0
        self._message_bucket: TokenBucket | None = _bucket(limits.publish_rate_per_s_max)
        self._byte_bucket: TokenBucket | None = _bucket(limits.publish_bytes_per_s_max)
        # A publish whose answer comes later; no packet behind it is handled before.
        self.deferred: Publish | None = None
        self.limited: bool = self._message_bucket is not None or self._byte_bucket is not None

    def is_paused(self) -> bool:
        return self._reasons != 0

    def published(self, size: int) -> None:
        self._messages += 1
        self._bytes += size

    def pause(self, reason: int) -> None:
        if not self._reasons:
            transport = self._connection.transport
            if transport is not None:
                transport.pause_reading()
        self._reasons |= reason

    def resume(self, reason: int) -> None:
        if not self._reasons & reason:
            return
        self._reasons &= ~reason
        transport = self._connection.transport
        if not self._reasons and transport is not None and not transport.is_closing():
            self._connection.seen_ms = self._connection.broker.clock.coarse_ms
            transport.resume_reading()

    def defer(self, packet: Publish) -> None:
        self.deferred = packet
        self.pause(SERVICE)

    # The store

    def unconfirmed(self, size: int) -> None:
        """A publish waits for its commit group."""
        self._unconfirmed += size

    def check_store(self) -> None:
        """Stop reading when too much waits; the runner tells when it is durable."""
        if not self._unconfirmed:
            return
        connection = self._connection
        runner = connection.runner
        limit = connection.broker.settings.limits.unconfirmed_bytes_per_client_max
        if self._unconfirmed > limit or runner.group.bytes > runner.group_bytes_max:
            connection.hold_place()
            self.pause(STORE)

    def confirmed(self) -> None:
        self._unconfirmed = 0
        self.resume(STORE)

    # The rates

    def check_rates(self, now_ms: int) -> None:
        """Stop reading until what was published is within the rates."""
        wait_s = 0.0
        if self._message_bucket is not None and self._messages:
            wait_s = self._message_bucket.take(self._messages, now_ms / 1000)
        if self._byte_bucket is not None and self._bytes:
            wait_s = max(wait_s, self._byte_bucket.take(self._bytes, now_ms / 1000))
        if wait_s > 0:
            self.pause(RATE)
            due_ms = now_ms + int(wait_s * 1000)
            self._connection.broker.timers.arm(due_ms, self.check_rates)
            return
        self._messages = 0
        self._bytes = 0
        self.resume(RATE)


def _bucket(rate_per_s: int) -> TokenBucket | None:
    return TokenBucket(rate_per_s, rate_per_s) if rate_per_s else None
