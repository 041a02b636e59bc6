"""REST, version 1: thin routes over the services. Paths and fields in /api/v1 only ever grow."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Path, Query
from starlette.responses import Response

from queuelake.admin.answers import answer
from queuelake.admin.openapi import returns
from queuelake.admin.paths import SEGMENT
from queuelake.admin.services import CLIENTS_PER_PAGE_MAX, Services
from queuelake.control import ClientInfo, ClientPage, Status
from queuelake.control_audit import ENTRIES_PER_PAGE_MAX, AuditPage

CLIENT = f"/api/v1/clients/{{client_id:{SEGMENT}}}"

# No longest id or cursor here: the HTTP server bounds the whole request line.
ClientId = Annotated[
    str, Path(min_length=1, description="The MQTT client id, percent-encoded; a slash is %2F.")
]
Limit = Annotated[
    int, Query(ge=1, le=CLIENTS_PER_PAGE_MAX, description="At most so many items in the answer.")
]
Cursor = Annotated[
    str, Query(description="`next_cursor` of the page before; empty for the first page.")
]
Search = Annotated[
    str, Query(description="Only clients with this in their id, user or address; empty: all.")
]
Entries = Annotated[
    int, Query(ge=1, le=ENTRIES_PER_PAGE_MAX, description="At most so many entries in the answer.")
]
AuditCursor = Annotated[
    str, Query(description="`next` of the page before; empty for the first page.")
]
Only = Annotated[str, Query(description="Only entries with this; empty: all.")]


def add_v1_routes(app: FastAPI, services: Services) -> None:
    @app.get("/api/v1/status", tags=["broker"], responses=returns(Status))
    async def status() -> Response:
        """Version, uptime, addresses and counts of the broker."""
        return answer(await services.status())

    @app.get("/api/v1/clients", tags=["clients"], responses=returns(ClientPage))
    async def clients(limit: Limit = 100, cursor: Cursor = "", search: Search = "") -> Response:
        """Clients which are connected or have a session, sorted by client id, page by page."""
        return answer(await services.clients(limit, cursor, search))

    @app.get(CLIENT, tags=["clients"], responses=returns(ClientInfo))
    async def client(client_id: ClientId) -> Response:
        """One client; 404 when it is neither connected nor has a session."""
        return answer(await services.client(client_id))

    @app.delete(CLIENT, tags=["clients"], status_code=204)
    async def disconnect(client_id: ClientId) -> Response:
        """Disconnect a client; its session lives on as it asked for. 404 when it is not there."""
        await services.disconnect(client_id)
        return Response(status_code=204)

    @app.get("/api/v1/audit", tags=["broker"], responses=returns(AuditPage))
    async def audit(
        limit: Entries = 100,
        cursor: AuditCursor = "",
        caller: Only = "",
        operation: Only = "",
        target: Only = "",
    ) -> Response:
        """Who changed what, the newest first, page by page; for admins."""
        return answer(
            await services.audit(limit, cursor, caller=caller, operation=operation, target=target)
        )
