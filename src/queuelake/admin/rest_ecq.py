"""REST of the device mailboxes: thin routes over the services.

A mailbox is named in a path by its owner, the client id of the device, percent-encoded. What can
be wrong with settings or with a rewind is known to the broker, which gets the body as it came.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request
from starlette.responses import Response

from queuelake.admin.answers import answer
from queuelake.admin.bodies import SETTINGS_BYTES_MAX, read_body, takes
from queuelake.admin.openapi import returns
from queuelake.admin.paths import SEGMENT
from queuelake.admin.services import Services
from queuelake.control_ecq import (
    ENTRIES_PER_PAGE_MAX,
    OWNERS_PER_PAGE_MAX,
    EcqConfigInfo,
    EcqConfigUpdate,
    EcqEntryPage,
    EcqGcAnswer,
    EcqInspection,
    EcqOwnerPage,
    EcqPosition,
    EcqRewind,
    EcqStatus,
)

ECQ_PATH = "/api/v1/ecq"
# Always with one more level: an owner may be called `status`.
OWNER_PATH = f"{ECQ_PATH}/{{owner:{SEGMENT}}}"
TAGS: list[Any] = ["device mailboxes"]

Owner = Annotated[
    str, Path(min_length=1, description="The client id of the device, percent-encoded.")
]

Owners = Annotated[int, Query(ge=1, le=OWNERS_PER_PAGE_MAX)]
Entries = Annotated[int, Query(ge=1, le=ENTRIES_PER_PAGE_MAX)]
Cursor = Annotated[str, Query(description="`next` of the page before; empty for the first page.")]


def add_ecq_routes(app: FastAPI, services: Services) -> None:
    _add_shared_routes(app, services)
    _add_owner_routes(app, services)


def _add_shared_routes(app: FastAPI, services: Services) -> None:
    @app.get(f"{ECQ_PATH}/status", tags=TAGS, responses=returns(EcqStatus))
    async def status() -> Response:
        """How many mailboxes there are, and the ends of their tables."""
        return answer(await services.ecq_status())

    @app.get(f"{ECQ_PATH}/owners", tags=TAGS, responses=returns(EcqOwnerPage))
    async def owners(limit: Owners = 100, cursor: Cursor = "") -> Response:
        """Who has a mailbox, page by page, in no particular order."""
        return answer(await services.mailbox_owners(limit, cursor))

    @app.post(f"{ECQ_PATH}/gc", tags=TAGS, status_code=202, responses=returns(EcqGcAnswer, 202))
    async def collect_garbage() -> Response:
        """Begin to delete what is too old; `started` is false when that goes on already."""
        return answer(await services.collect_mailbox_garbage(), 202)

    @app.get(f"{ECQ_PATH}/config", tags=TAGS, responses=returns(EcqConfigInfo))
    async def config() -> Response:
        """What all mailboxes share, as it was written and as it is understood."""
        return answer(await services.ecq_config())

    @app.put(
        f"{ECQ_PATH}/config",
        tags=TAGS,
        responses=returns(EcqConfigInfo),
        openapi_extra=takes(EcqConfigUpdate),
    )
    async def configure(request: Request) -> Response:
        """Change what all mailboxes share; what the body does not say stays as it is."""
        body = await read_body(request, SETTINGS_BYTES_MAX)
        return answer(await services.configure_ecq(body))


def _add_owner_routes(app: FastAPI, services: Services) -> None:
    @app.get(f"{OWNER_PATH}/inspect", tags=TAGS, responses=returns(EcqInspection))
    async def inspect(owner: Owner) -> Response:
        """The position of an owner, and what is in its mailbox; one without any is empty."""
        return answer(await services.inspect_mailbox(owner))

    @app.get(f"{OWNER_PATH}/entries", tags=TAGS, responses=returns(EcqEntryPage))
    async def entries(owner: Owner, limit: Entries = 100, cursor: Cursor = "") -> Response:
        """What is in a mailbox, the oldest first, page by page; nothing changes."""
        return answer(await services.mailbox_entries(owner, limit, cursor))

    @app.post(
        f"{OWNER_PATH}/rewind",
        tags=TAGS,
        responses=returns(EcqPosition),
        openapi_extra=takes(EcqRewind),
    )
    async def rewind(owner: Owner, request: Request) -> Response:
        """Let the owner read again what is still in its mailbox."""
        body = await read_body(request, SETTINGS_BYTES_MAX)
        return answer(await services.rewind_mailbox(owner, body))
