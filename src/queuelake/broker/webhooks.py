"""Alerts about dead letters: a POST to the URL which a queue names, never in the queue's way.

`alert` only puts the alert into a bounded backlog. One task for each URL which has a backlog sends
it, oldest first: TRIES_MAX tries with growing pauses between them. A URL which failed
BREAKER_FAILURES tries in a row is left alone for BREAKER_OPEN_S; its alerts are dropped meanwhile,
and then one try decides whether the breaker closes. An alert is news, not data: the message itself
is safe in the dead-letter queue, so alerts are not kept over a restart.

Redirects are not followed: the URL an administrator wrote is the only one which is called.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

if TYPE_CHECKING:
    from aiohttp import ClientSession

BACKLOG_MAX = 1000
# A receiver which hangs may not fill the whole backlog and so silence the others.
BACKLOG_PER_URL_MAX = 500
URLS_MAX = 1000
TRIES_MAX = 3
TIMEOUT_S = 5.0
PAUSE_S = 1.0
PAUSE_FACTOR = 2.0
PAUSE_S_MAX = 30.0
BREAKER_FAILURES = 5
BREAKER_OPEN_S = 60.0

log = logging.getLogger("queuelake.webhooks")

Sleep = Callable[[float], Awaitable[None]]


class DeadLetterAlert(msgspec.Struct, frozen=True):
    """The JSON body, field by field; times are RFC 3339, the duration is text such as `12.5s`."""

    queue_name: str
    dlq_topic: str
    message_id: str
    failure_reason: str
    retry_count: int
    first_attempt: str
    moved_to_dlq_at: str
    total_duration: str


class Webhooks:
    """Sends alerts from the event loop it is used in; every alert ends in one of the counters."""

    def __init__(
        self, sleep: Sleep = asyncio.sleep, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.sent = 0
        self.failed = 0
        self.dropped = 0
        self._sleep = sleep
        self._monotonic_s = monotonic_s
        self._receivers: dict[str, _Receiver] = {}
        self._waiting = 0
        self._session: ClientSession | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    def alert(self, url: str, alert: DeadLetterAlert) -> None:
        """Send this alert soon, or count it as dropped; returns at once."""
        receiver = self._receiver(url)
        if receiver is None or not self._has_room(receiver):
            self.dropped += 1
            return
        receiver.backlog.append(alert)
        self._waiting += 1
        if receiver.sending is None:
            receiver.sending = asyncio.get_running_loop().create_task(self._send_backlog(receiver))

    async def close(self) -> None:
        """Stop sending; what has not left yet is dropped."""
        self._closed = True
        sending = [one.sending for one in self._receivers.values() if one.sending is not None]
        for task in sending:
            task.cancel()
        if sending:
            await asyncio.wait(sending)
        for receiver in self._receivers.values():
            self.dropped += len(receiver.backlog)
            receiver.backlog.clear()
        if self._session is not None:
            await self._session.close()

    def _receiver(self, url: str) -> _Receiver | None:
        receiver = self._receivers.get(url)
        if receiver is None:
            if len(self._receivers) >= URLS_MAX and not self._forget_one():
                return None
            receiver = self._receivers[url] = _Receiver(url)
        return receiver

    def _forget_one(self) -> bool:
        for url, receiver in self._receivers.items():
            if receiver.sending is None:
                del self._receivers[url]
                return True
        return False

    def _has_room(self, receiver: _Receiver) -> bool:
        return (
            not self._closed
            and self._waiting < BACKLOG_MAX
            and len(receiver.backlog) < BACKLOG_PER_URL_MAX
            and not receiver.is_open(self._monotonic_s())
        )

    async def _send_backlog(self, receiver: _Receiver) -> None:
        try:
            while receiver.backlog:
                await self._send(receiver, receiver.backlog[0])
                receiver.backlog.popleft()
                self._waiting -= 1
        finally:
            receiver.sending = None

    async def _send(self, receiver: _Receiver, alert: DeadLetterAlert) -> None:
        if receiver.is_open(self._monotonic_s()):
            self.dropped += 1
            return
        pause_s = PAUSE_S
        for tries in range(1, TRIES_MAX + 1):
            problem = await self._post(receiver.url, alert)
            if not problem:
                receiver.failures = 0
                self.sent += 1
                return
            if receiver.fail(self._monotonic_s()) or tries == TRIES_MAX:
                break
            await self._sleep(pause_s)
            pause_s = min(pause_s * PAUSE_FACTOR, PAUSE_S_MAX)
        self.failed += 1
        log.warning(
            "alert about %s to %s failed after %d tries: %s",
            alert.message_id,
            _shown(receiver.url),
            tries,
            problem,
        )

    async def _post(self, url: str, alert: DeadLetterAlert) -> str:
        """Why this try failed, or "" when the receiver took the alert."""
        headers = {"Content-Type": "application/json"}
        try:
            session = await self._open_session()
            async with (
                asyncio.timeout(TIMEOUT_S),
                session.post(
                    url, data=msgspec.json.encode(alert), headers=headers, allow_redirects=False
                ) as response,
            ):
                return "" if 200 <= response.status < 300 else f"HTTP status {response.status}"
        except TimeoutError:
            return f"no answer within {TIMEOUT_S:g} s"
        except OSError as exc:
            return exc.strerror or type(exc).__name__
        except Exception as exc:  # what a URL or a server can do to a client; the text has the URL
            return type(exc).__name__

    async def _open_session(self) -> ClientSession:
        async with self._opening:
            if self._session is None:
                # It takes a while to import: in a thread, and only for those who use webhooks.
                aiohttp = await asyncio.to_thread(importlib.import_module, "aiohttp")
                self._session = aiohttp.ClientSession()
        return self._session


class _Receiver:
    """One URL: what waits for it, and how it did lately."""

    __slots__ = ("backlog", "failures", "open_until_s", "sending", "url")

    def __init__(self, url: str) -> None:
        self.url = url
        self.backlog: deque[DeadLetterAlert] = deque()
        self.sending: asyncio.Task[None] | None = None
        self.failures = 0
        self.open_until_s = float("-inf")

    def is_open(self, now_s: float) -> bool:
        return now_s < self.open_until_s

    def fail(self, now_s: float) -> bool:
        """Count a failed try; says whether the breaker is open now."""
        self.failures += 1
        if self.failures < BREAKER_FAILURES:
            return False
        self.open_until_s = now_s + BREAKER_OPEN_S
        return True


def _shown(url: str) -> str:
    """A URL without what may be secret in it: many receivers carry their key in the path."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname}"
    except ValueError:
        return "a URL which is none"
