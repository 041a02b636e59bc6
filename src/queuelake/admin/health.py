"""`/healthz` and `/readyz`, for probes: open to everybody, and saying nothing secret.

`/healthz` is about this process alone, so that a probe does not restart what only waits for the
broker; `/readyz` is about the broker, and lists every reason why it does not serve.
"""

from __future__ import annotations

import msgspec
from fastapi import FastAPI
from starlette.responses import Response

from queuelake.admin.answers import answer
from queuelake.admin.openapi import returns
from queuelake.admin.services import Services
from queuelake.control import Readiness


class Health(msgspec.Struct, frozen=True):
    """The admin process runs."""

    alive: bool = True


def add_health_routes(app: FastAPI, services: Services) -> None:
    @app.get("/healthz", tags=["health"], responses=returns(Health))
    async def healthz() -> Response:
        """Say that the admin process is alive, whether or not the broker is."""
        return answer(Health())

    @app.get("/readyz", tags=["health"], responses=returns(Readiness, 200, 503))
    async def readyz() -> Response:
        """Say whether the broker serves clients: 200, or 503 with every reason why not."""
        readiness = await services.readiness()
        return answer(readiness, 200 if readiness.ready else 503)
