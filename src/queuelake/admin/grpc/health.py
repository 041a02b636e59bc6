"""The health service: SERVING while the broker serves clients, as `/readyz` says it over HTTP.

It is open to everybody, so watching is bounded, and a flood of questions reaches the broker no
more often than `Services.readiness` lets it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import grpc
from grpc_health.v1 import health_pb2 as pb2
from grpc_health.v1 import health_pb2_grpc

from queuelake.admin.grpc.queue_admin import SERVICE
from queuelake.admin.services import Services

KNOWN = ("", SERVICE.full_name)  # "" is the server as a whole
WATCHES_MAX = 64
WATCH_INTERVAL_S = 1.0

Answer = pb2.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """grpc.health.v1.Health."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._closing = asyncio.Event()
        self._watches = 0

    def close(self) -> None:
        """Those who watch are told that it ends, and let go."""
        self._closing.set()

    async def Check(self, request: pb2.HealthCheckRequest, context: Any) -> pb2.HealthCheckResponse:
        if request.service not in KNOWN:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"there is no service {request.service!r}"
            )
        return await self._answer()

    async def List(self, _request: pb2.HealthListRequest, _context: Any) -> pb2.HealthListResponse:
        answer = await self._answer()
        return pb2.HealthListResponse(statuses=dict.fromkeys(KNOWN, answer))

    async def Watch(self, request: pb2.HealthCheckRequest, context: Any) -> None:
        if self._watches >= WATCHES_MAX:
            words = f"{self._watches} calls watch already, the limit is {WATCHES_MAX}"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, words)
        self._watches += 1
        try:
            if request.service not in KNOWN:
                await context.write(Answer(status=Answer.SERVICE_UNKNOWN))
                await self._closing.wait()
            else:
                await self._watch(context)
        finally:
            self._watches -= 1

    async def _watch(self, context: Any) -> None:
        told: pb2.HealthCheckResponse | None = None
        while not self._closing.is_set():
            now = await self._answer()
            if now != told:
                await context.write(now)
                told = now
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WATCH_INTERVAL_S):
                    await self._closing.wait()
        await context.write(Answer(status=Answer.NOT_SERVING))

    async def _answer(self) -> pb2.HealthCheckResponse:
        ready = (await self._services.readiness()).ready and not self._closing.is_set()
        return Answer(status=Answer.SERVING if ready else Answer.NOT_SERVING)
