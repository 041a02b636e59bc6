"""REST of the message queues under /api/v5, as its users know it: thin routes over the services.

Each resource has two paths, because the surface was renamed once. A queue is named in a path by its
name, or by the topic filter of a queue without a name: `t1%2F%23`. Settings go to the broker as
they came: what can be wrong with them is known there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request
from starlette.responses import Response

from queuelake.admin.answers import answer
from queuelake.admin.bodies import SETTINGS_BYTES_MAX, read_body, takes
from queuelake.admin.openapi import returns
from queuelake.admin.paths import SEGMENT
from queuelake.admin.rest_queues import Cursor as MessageCursor
from queuelake.admin.rest_queues import Limit as MessageLimit
from queuelake.admin.services import Services
from queuelake.control_mq import (
    QUEUES_PER_PAGE_MAX,
    MqConfigInfo,
    MqConfigUpdate,
    MqCreate,
    MqInfo,
    MqPage,
    MqStats,
    MqUpdate,
)
from queuelake.control_queues import MessagePage
from queuelake.errors import BrokerDownError
from queuelake.mq_settings import MqUnavailableError

QUEUES_PATH = "/api/v5/message_queues/queues"
QUEUES_PATHS = (QUEUES_PATH, "/api/v5/queues")
QUEUE_PATH = f"{QUEUES_PATH}/{{name:{SEGMENT}}}"
QUEUE_PATHS = (QUEUE_PATH, f"/api/v5/queue/{{name:{SEGMENT}}}")
CONFIG_PATHS = ("/api/v5/message_queues/config", "/api/v5/queues/config")
TAGS: list[Any] = ["message queues"]

Name = Annotated[
    str,
    Path(min_length=1, description="The queue, percent-encoded: its name, or its topic filter."),
]
Limit = Annotated[
    int, Query(ge=1, le=QUEUES_PER_PAGE_MAX, description="At most so many items in the answer.")
]
Cursor = Annotated[
    str, Query(description="`meta.cursor` of the page before; empty for the first page.")
]


def add_v5_routes(app: FastAPI, services: Services) -> None:
    for path in QUEUES_PATHS:
        _add_queues_routes(app, services, path)
    for path in QUEUE_PATHS:
        _add_queue_routes(app, services, path)
    for path in CONFIG_PATHS:
        _add_config_routes(app, services, path)
    _add_extensions(app, services)


def _add_queues_routes(app: FastAPI, services: Services, path: str) -> None:
    @app.get(path, tags=TAGS, responses=returns(MqPage))
    async def queues(limit: Limit = 100, cursor: Cursor = "") -> Response:
        """All message queues by name, page by page."""
        with broker_not_ready():
            return answer(await services.message_queues(limit, cursor))

    @app.post(path, tags=TAGS, responses=returns(MqInfo), openapi_extra=takes(MqCreate))
    async def create(request: Request) -> Response:
        """Make a queue; one without a name is called by its topic filter."""
        settings = await read_body(request, SETTINGS_BYTES_MAX)
        with broker_not_ready():
            return answer(await services.create_message_queue(settings))


def _add_queue_routes(app: FastAPI, services: Services, path: str) -> None:
    @app.get(path, tags=TAGS, responses=returns(MqInfo))
    async def queue(name: Name) -> Response:
        """One message queue."""
        with broker_not_ready():
            return answer(await services.message_queue(name))

    @app.put(path, tags=TAGS, responses=returns(MqInfo), openapi_extra=takes(MqUpdate))
    async def update(name: Name, request: Request) -> Response:
        """Change settings of a queue; what the body does not say stays as it is."""
        settings = await read_body(request, SETTINGS_BYTES_MAX)
        with broker_not_ready():
            return answer(await services.update_message_queue(name, settings))

    @app.delete(path, tags=TAGS, status_code=204)
    async def delete(name: Name) -> Response:
        """Delete a queue with its messages; its subscribers wait for a new one."""
        with broker_not_ready():
            await services.delete_message_queue(name)
        return Response(status_code=204)


def _add_config_routes(app: FastAPI, services: Services, path: str) -> None:
    @app.get(path, tags=TAGS, responses=returns(MqConfigInfo))
    async def config() -> Response:
        """What all message queues share."""
        return answer(await services.message_queue_config())

    @app.put(path, tags=TAGS, status_code=204, openapi_extra=takes(MqConfigUpdate))
    async def configure(request: Request) -> Response:
        """Change what all message queues share; what the body does not say stays as it is."""
        await services.configure_message_queues(await read_body(request, SETTINGS_BYTES_MAX))
        return Response(status_code=204)


def _add_extensions(app: FastAPI, services: Services) -> None:
    @app.get(f"{QUEUE_PATH}/stats", tags=TAGS, responses=returns(MqStats))
    async def stats(name: Name) -> Response:
        """Depth, subscribers, age and counters of a queue."""
        with broker_not_ready():
            return answer(await services.message_queue_stats(name))

    @app.get(f"{QUEUE_PATH}/messages", tags=TAGS, responses=returns(MessagePage))
    async def messages(
        name: Name, limit: MessageLimit = 100, cursor: MessageCursor = ""
    ) -> Response:
        """Look at stored messages; nothing changes, and nobody is delivered anything."""
        with broker_not_ready():
            return answer(await services.message_queue_messages(name, limit, cursor))

    @app.post("/api/v5/message_queues/gc", tags=TAGS, status_code=204)
    async def collect_garbage() -> Response:
        """Delete now what is too old or too much."""
        with broker_not_ready():
            await services.collect_message_queue_garbage()
        return Response(status_code=204)


@contextmanager
def broker_not_ready() -> Iterator[None]:
    """The users of these paths know one answer for a broker which is not there yet."""
    try:
        yield
    except BrokerDownError as exc:
        raise MqUnavailableError("Not ready") from exc
