"""REST of vehicle fan-out: thin routes over the services.

VINs and request ids are percent-encoded in a path. What can be wrong with settings is known to the
broker, which gets the body as it came.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Path, Query, Request
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.responses import Response

from queuelake.admin.answers import answer
from queuelake.admin.bodies import SETTINGS_BYTES_MAX, read_body, takes
from queuelake.admin.openapi import returns
from queuelake.admin.paths import SEGMENT
from queuelake.admin.services import Services
from queuelake.control_sdv import (
    REQUESTS_PER_PAGE_MAX,
    VINS_PER_CANCEL_MAX,
    SdvCancelled,
    SdvConfigInfo,
    SdvConfigUpdate,
    SdvGcAnswer,
    SdvRequest,
    SdvRequestPage,
    SdvStatus,
    SdvVehicle,
)
from queuelake.errors import RefusedError

CANCEL_BYTES_MAX = 8 * 1024 * 1024  # room for VINS_PER_CANCEL_MAX ids of 80 bytes
SDV_PATH = "/api/v1/sdv"
VEHICLE_PATH = f"{SDV_PATH}/vehicles/{{vin:{SEGMENT}}}"
REQUEST_PATH = f"{SDV_PATH}/requests/{{request_id:{SEGMENT}}}"
TAGS: list[Any] = ["vehicle fan-out"]

Vin = Annotated[
    str, Path(min_length=1, description="The vehicle, which is its client id, percent-encoded.")
]
RequestId = Annotated[str, Path(min_length=1, description="The request, percent-encoded.")]
Limit = Annotated[
    int, Query(ge=1, le=REQUESTS_PER_PAGE_MAX, description="At most so many items in the answer.")
]
Cursor = Annotated[str, Query(description="`cursor` of the page before; empty for the first page.")]


class SdvCancel(Struct, frozen=True, forbid_unknown_fields=True):
    """Whose rows to cancel. An empty list is refused: it would be a mistake more often than not.
    So is any other key, for which every vehicle would be meant."""

    vins: (
        Annotated[
            list[Annotated[str, Meta(min_length=1)]],
            Meta(
                min_length=1,
                max_length=VINS_PER_CANCEL_MAX,
                description="only of these; without it, of every vehicle",
            ),
        ]
        | UnsetType
    ) = UNSET


def add_sdv_routes(app: FastAPI, services: Services) -> None:
    _add_shared_routes(app, services)
    _add_request_routes(app, services)


def _add_shared_routes(app: FastAPI, services: Services) -> None:
    @app.get(f"{SDV_PATH}/status", tags=TAGS, responses=returns(SdvStatus))
    async def status() -> Response:
        """How much waits for vehicles, and what it takes of the store."""
        return answer(await services.sdv_status())

    @app.post(f"{SDV_PATH}/gc", tags=TAGS, status_code=202, responses=returns(SdvGcAnswer, 202))
    async def collect_garbage() -> Response:
        """Begin to delete what is too old; `started` is false when that goes on already."""
        return answer(await services.collect_fanout_garbage(), 202)

    @app.get(f"{SDV_PATH}/config", tags=TAGS, responses=returns(SdvConfigInfo))
    async def config() -> Response:
        """The settings of vehicle fan-out, as they were written and as they are understood."""
        return answer(await services.sdv_config())

    @app.put(
        f"{SDV_PATH}/config",
        tags=TAGS,
        responses=returns(SdvConfigInfo),
        openapi_extra=takes(SdvConfigUpdate),
    )
    async def configure(request: Request) -> Response:
        """Change settings of vehicle fan-out; what the body does not say stays as it is."""
        body = await read_body(request, SETTINGS_BYTES_MAX)
        return answer(await services.configure_sdv(body))

    @app.get(VEHICLE_PATH, tags=TAGS, responses=returns(SdvVehicle))
    async def vehicle(vin: Vin) -> Response:
        """What waits for a vehicle, oldest first, and what is on its way to it."""
        return answer(await services.inspect_vehicle(vin))


def _add_request_routes(app: FastAPI, services: Services) -> None:
    @app.get(f"{SDV_PATH}/requests", tags=TAGS, responses=returns(SdvRequestPage))
    async def requests(limit: Limit = 100, cursor: Cursor = "") -> Response:
        """Every request and how far it has come, page by page, in no particular order."""
        return answer(await services.fanout_requests(limit, cursor))

    @app.get(REQUEST_PATH, tags=TAGS, responses=returns(SdvRequest))
    async def progress(request_id: RequestId) -> Response:
        """How far a request has come; 404 when there was no such trigger."""
        return answer(await services.fanout_request(request_id))

    @app.post(
        f"{REQUEST_PATH}/cancel",
        tags=TAGS,
        responses=returns(SdvCancelled),
        openapi_extra=takes(SdvCancel, required=False),
    )
    async def cancel(request_id: RequestId, request: Request) -> Response:
        """Cancel a request for every vehicle, or for some, which was not sent yet."""
        vins = _vins(await read_body(request, CANCEL_BYTES_MAX))
        return answer(await services.cancel_fanout_request(request_id, vins))


def _vins(body: bytes) -> list[str]:
    """The vehicles a body names; none when it names none, which means every vehicle."""
    if not body:
        return []
    try:
        chosen = msgspec.json.decode(body, type=SdvCancel, strict=True)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        problem = f'the body is nothing, or {{"vins": [...]}} with 1 to {VINS_PER_CANCEL_MAX} VINs'
        raise RefusedError(f"{problem}: {error}") from error
    return [] if chosen.vins is UNSET else list(chosen.vins)
