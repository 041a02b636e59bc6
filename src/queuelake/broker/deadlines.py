"""When a connection is closed because time has passed: no login, no sign of life, an old token.

The timers of a connection which is over are cancelled: a keep-alive may be a day long, and a timer
holds on to everything its connection refers to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from queuelake.broker.clock import Timer
from queuelake.protocol import reasons

if TYPE_CHECKING:
    from queuelake.broker.connection import Connection


@final
class Deadlines:
    """The timers of one connection."""

    __slots__ = ("_connection", "_timer", "_token_timer")

    def __init__(self, connection: Connection) -> None:
        self._connection: Connection = connection
        self._timer: Timer | None = None  # for the login, then for the keep-alive
        self._token_timer: Timer | None = None

    def await_login(self, due_ms: int) -> None:
        self._timer = self._connection.broker.timers.arm(due_ms, self._check_login)

    def logged_in(self, now_ms: int, token_ends_at: float | None) -> None:
        """Watch a client which is online; `token_ends_at` in seconds since the epoch."""
        self.cancel()
        if self._connection.keepalive_s:
            self._await_packet(now_ms)
        if token_ends_at is not None:
            due_ms = int(token_ends_at * 1000)
            self._token_timer = self._connection.broker.timers.arm(due_ms, self._end_token)

    def cancel(self) -> None:
        for timer in (self._timer, self._token_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._token_timer = None

    def _await_packet(self, since_ms: int) -> None:
        due_ms = since_ms + self._connection.keepalive_s * 1500
        self._timer = self._connection.broker.timers.arm(due_ms, self._check_keepalive)

    def _check_login(self, now_ms: int) -> None:
        if self._connection.waits_for_login():
            self._connection.close(reasons.UNSPECIFIED_ERROR, "no CONNECT in time")

    def _check_keepalive(self, now_ms: int) -> None:
        connection = self._connection
        limit_ms = connection.keepalive_s * 1500
        if connection.throttle.is_paused():
            self._await_packet(now_ms)
        elif now_ms - connection.seen_ms < limit_ms:
            self._await_packet(connection.seen_ms)
        else:
            problem = f"nothing heard for {limit_ms / 1000} s"
            connection.close(reasons.KEEP_ALIVE_TIMEOUT, problem)

    def _end_token(self, now_ms: int) -> None:
        self._connection.close(reasons.NOT_AUTHORIZED, "the token has expired")
