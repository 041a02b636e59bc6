"""The admin application: health, metrics and REST in one FastAPI app, all over `Services`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from fastapi import FastAPI
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from queuelake import __version__
from queuelake.admin.answers import add_problem_handlers, problem
from queuelake.admin.auth import RequireKey
from queuelake.admin.console.mount import ConsoleGate, Site
from queuelake.admin.health import add_health_routes
from queuelake.admin.metrics import add_metrics_route
from queuelake.admin.openapi import add_openapi_routes
from queuelake.admin.paths import RawPath
from queuelake.admin.rest_access import add_access_routes
from queuelake.admin.rest_admin import add_admin_routes
from queuelake.admin.rest_backup import add_backup_routes
from queuelake.admin.rest_cluster import add_cluster_routes
from queuelake.admin.rest_ecq import add_ecq_routes
from queuelake.admin.rest_pipeline import add_pipeline_routes
from queuelake.admin.rest_queues import add_queue_routes
from queuelake.admin.rest_sdv import add_sdv_routes
from queuelake.admin.rest_v1 import add_v1_routes
from queuelake.admin.rest_v5 import add_v5_routes
from queuelake.admin.services import Services
from queuelake.settings import Console as ConsoleSettings

REQUESTS_MAX = 256
DEFAULT_CONSOLE = ConsoleSettings()


def create_app(
    services: Services,
    console: ConsoleSettings = DEFAULT_CONSOLE,
    beside: AbstractAsyncContextManager[None] | None = None,
) -> FastAPI:
    """`beside` is served as long as the application is: gRPC."""
    site = Site(services, console)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with beside or nullcontext():
            await services.say_started()
            yield
        await site.close()
        await services.close()

    app = FastAPI(
        title="Queuelake",
        version=__version__,
        description="Every path but /healthz and /readyz needs the API key.",
        lifespan=lifespan,
        # Own routes serve the document and a page which needs no network.
        openapi_url=None,
        redirect_slashes=False,
        default_response_class=Response,
    )
    add_problem_handlers(app)
    add_health_routes(app, services)
    add_metrics_route(app, services)
    add_v1_routes(app, services)
    add_admin_routes(app, services)
    add_access_routes(app, services)
    add_backup_routes(app, services)
    add_queue_routes(app, services)
    add_v5_routes(app, services)
    add_ecq_routes(app, services)
    add_sdv_routes(app, services)
    add_pipeline_routes(app, services)
    add_cluster_routes(app, services)
    add_openapi_routes(app)
    # The last one added is the first to see a request.
    app.add_middleware(RequireKey, gate=services.gate)
    app.add_middleware(RawPath)
    app.add_middleware(LimitRequests)
    # A tab of the console is open for hours: it counts as none of those requests.
    app.add_middleware(ConsoleGate, site=site)
    return app


class LimitRequests:
    """ASGI middleware: at most REQUESTS_MAX requests at a time; more are told to come later."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._running >= REQUESTS_MAX:
            message = f"{self._running} requests are running, the limit is {REQUESTS_MAX}"
            refusal = problem(503, "SERVICE_UNAVAILABLE", message, {"Retry-After": "1"})
            await refusal(scope, receive, send)
            return
        self._running += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._running -= 1
