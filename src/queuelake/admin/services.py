"""What the admin process can do: one function for each thing, for REST, gRPC and the console alike.

The broker decides; these functions ask it over the control socket and return its Structs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from queuelake.apikey import KeyFile
from queuelake.control import (
    ClientInfo,
    ClientPage,
    ControlClient,
    MetricsSnapshot,
    Readiness,
    Status,
)
from queuelake.errors import BrokerDownError, QueuelakeError

CLIENTS_PER_PAGE_MAX = 1000
READINESS_TIMEOUT_S = 2.0
READINESS_AGE_S_MAX = 0.25


class Services:
    """The operations of one broker, and the keys which open them."""

    def __init__(self, control: ControlClient, keys: KeyFile) -> None:
        self.keys = keys
        self._control = control
        self._readiness = Readiness(ready=False)
        self._readiness_at = float("-inf")
        self._asking_readiness = asyncio.Lock()

    async def close(self) -> None:
        await self._control.close()

    async def say_started(self) -> None:
        """The broker says `ready` when it has heard this; one which is down hears nothing."""
        with contextlib.suppress(QueuelakeError):
            await self._control.call("child_started", bool, {"name": "admin"})

    async def status(self) -> Status:
        return await self._control.call("status", Status)

    async def metrics(self) -> MetricsSnapshot:
        return await self._control.call("metrics", MetricsSnapshot)

    async def readiness(self) -> Readiness:
        """Whether the broker serves; a broker that does not answer is a reason, not an error.

        Everybody may ask this, so a flood of questions costs the broker one in READINESS_AGE_S_MAX.
        """
        async with self._asking_readiness:
            if time.monotonic() - self._readiness_at > READINESS_AGE_S_MAX:
                self._readiness = await self._ask_readiness()
                self._readiness_at = time.monotonic()
            return self._readiness

    async def clients(self, limit: int, cursor: str) -> ClientPage:
        return await self._control.call("clients", ClientPage, {"limit": limit, "cursor": cursor})

    async def client(self, client_id: str) -> ClientInfo:
        return await self._control.call("client", ClientInfo, {"client_id": client_id})

    async def disconnect(self, client_id: str) -> None:
        await self._control.call("disconnect", object, {"client_id": client_id})

    async def _ask_readiness(self) -> Readiness:
        try:
            return await self._control.call("readiness", Readiness, timeout_s=READINESS_TIMEOUT_S)
        except BrokerDownError as exc:
            return Readiness(ready=False, reasons=[f"broker does not answer: {exc}"])
