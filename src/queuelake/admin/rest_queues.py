"""REST of the queues: thin routes over the services. Paths and fields in /api/v1 only ever grow.

A queue is named in a path as `tasks%2Fimage`, `%24queue%2Ftasks%2Fimage` or `$queue$tasks$image`.
Its settings go to the broker as they came: what can be wrong with them is known there, and the
same answer goes to those who publish them to `$config`.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, FastAPI, Path, Query, Request
from starlette.responses import Response

from queuelake.admin.answers import answer
from queuelake.admin.bodies import MESSAGE_BYTES_MAX, SETTINGS_BYTES_MAX, read_body, takes
from queuelake.admin.openapi import reference, returns
from queuelake.admin.paths import SEGMENT
from queuelake.admin.services import Services
from queuelake.control_queues import (
    ITEMS_PER_PAGE_MAX,
    OFFSET_MAX,
    ConsumerPage,
    DeadLetterPage,
    LetterChoice,
    LettersDone,
    MessagePage,
    NewMessage,
    Purged,
    QueueDeleted,
    QueueInfo,
    QueuePage,
    QueueStats,
    Redriven,
)
from queuelake.names import queue_name_from_path
from queuelake.queue_settings import QueueSettings, QueueType

PARTITIONS_MAX = 1000
QUEUE_PATH = f"/api/v1/queues/{{name:{SEGMENT}}}"
LETTER_PATH = f"{QUEUE_PATH}/dlq/{{message_id:{SEGMENT}}}"
GROUP_PATH = f"{QUEUE_PATH}/groups/{{group:{SEGMENT}}}"
TAGS: list[Any] = ["queues"]


async def queue_name(
    name: Annotated[
        str,
        Path(min_length=1, description="The queue, percent-encoded; `$queue$a$b` is `$queue/a/b`."),
    ],
) -> str:
    return queue_name_from_path(name)


Name = Annotated[str, Depends(queue_name)]
MessageId = Annotated[
    str, Path(min_length=1, description="`id` of the dead letter, percent-encoded.")
]
Group = Annotated[str, Path(min_length=1, description="The consumer group, percent-encoded.")]
Limit = Annotated[
    int, Query(ge=1, le=ITEMS_PER_PAGE_MAX, description="At most so many items in the answer.")
]
Cursor = Annotated[str, Query(description="`next` of the page before; empty for the first page.")]
Prefix = Annotated[str, Query(description="Only names which begin so.")]
Type = Annotated[QueueType | None, Query(alias="type", description="Only queues of this type.")]
From = Annotated[
    int,
    Query(
        alias="from", ge=0, le=OFFSET_MAX, description="The offset to begin with, each partition."
    ),
]
Partition = Annotated[
    int | None, Query(ge=0, lt=PARTITIONS_MAX, description="Only this one; else all.")
]

SETTINGS_BODY = {
    "requestBody": {
        "required": True,
        "description": "The settings to change, as in the configuration file; the rest stays.",
        "content": {
            "application/json": {
                "schema": reference(QueueSettings),
                "example": {"partitions": 4, "retry_policy": {"max_retries": 5}},
            }
        },
    }
}


def add_queue_routes(app: FastAPI, services: Services) -> None:
    _add_settings_routes(app, services)
    _add_state_routes(app, services)
    _add_message_routes(app, services)
    _add_letter_routes(app, services)


def _add_settings_routes(app: FastAPI, services: Services) -> None:
    @app.get("/api/v1/queues", tags=TAGS, responses=returns(QueuePage))
    async def queues(
        limit: Limit = 100, cursor: Cursor = "", prefix: Prefix = "", only: Type = None
    ) -> Response:
        """Every durable queue, sorted by name, page by page; a page of one type may be short."""
        return answer(await services.queues(limit, cursor, prefix=prefix, type=only or ""))

    @app.put(
        QUEUE_PATH, tags=TAGS, responses=returns(QueueInfo, 200, 201), openapi_extra=SETTINGS_BODY
    )
    async def configure(name: Name, request: Request) -> Response:
        """Change settings of a queue: 200; a queue which is not there is created: 201."""
        done = await services.configure_queue(name, await read_body(request, SETTINGS_BYTES_MAX))
        return answer(done.queue, 201 if done.created else 200)

    @app.get(QUEUE_PATH, tags=TAGS, responses=returns(QueueInfo))
    async def queue(name: Name) -> Response:
        """The settings of a queue: all that are in force, and those set for it."""
        return answer(await services.queue(name))

    @app.delete(QUEUE_PATH, tags=TAGS, status_code=204, responses=returns(QueueDeleted))
    async def delete(name: Name) -> Response:
        """Delete a queue with its messages and groups; its dead letters stay. 200 says how many
        messages of an archived queue the lake will never have; else 204."""
        deleted = await services.delete_queue(name)
        return answer(deleted) if deleted.unarchived else Response(status_code=204)


def _add_state_routes(app: FastAPI, services: Services) -> None:
    @app.get(f"{QUEUE_PATH}/stats", tags=TAGS, responses=returns(QueueStats))
    async def stats(name: Name) -> Response:
        """Depth, partitions, groups, rates, totals and latency of a queue."""
        return answer(await services.queue_stats(name))

    @app.get(f"{QUEUE_PATH}/consumers", tags=TAGS, responses=returns(ConsumerPage))
    async def consumers(name: Name, limit: Limit = 100, cursor: Cursor = "") -> Response:
        """Who consumes, in which group, and which partitions."""
        return answer(await services.queue_consumers(name, limit, cursor))

    @app.delete(GROUP_PATH, tags=TAGS, status_code=204)
    async def delete_group(name: Name, group: Group) -> Response:
        """Forget a consumer group: messages which waited only for it are deleted."""
        await services.delete_group(name, group)
        return Response(status_code=204)


def _add_message_routes(app: FastAPI, services: Services) -> None:
    @app.get(f"{QUEUE_PATH}/messages", tags=TAGS, responses=returns(MessagePage))
    async def messages(
        name: Name,
        start: From = 0,
        limit: Limit = 100,
        partition: Partition = None,
        cursor: Cursor = "",
    ) -> Response:
        """Look at stored messages; nothing changes, and nobody is delivered anything."""
        return answer(await services.queue_messages(name, start, limit, partition, cursor))

    @app.post(f"{QUEUE_PATH}/purge", tags=TAGS, responses=returns(Purged))
    async def purge(name: Name) -> Response:
        """Delete every message of a queue which no consumer has in hand, for all groups."""
        return answer(await services.purge_queue(name))

    @app.post(f"{QUEUE_PATH}/messages", tags=TAGS, status_code=202, openapi_extra=takes(NewMessage))
    async def publish(name: Name, request: Request) -> Response:
        """Publish a message, as a client would; 202 when it is stored."""
        await services.publish_message(name, await read_body(request, MESSAGE_BYTES_MAX))
        return Response(status_code=202)


def _add_letter_routes(app: FastAPI, services: Services) -> None:
    @app.get(f"{QUEUE_PATH}/dlq", tags=TAGS, responses=returns(DeadLetterPage))
    async def dead_letters(name: Name, limit: Limit = 100, cursor: Cursor = "") -> Response:
        """The dead letters of a queue, the oldest first."""
        return answer(await services.dead_letters(name, limit, cursor))

    @app.post(f"{LETTER_PATH}/retry", tags=TAGS, status_code=202, responses=returns(Redriven, 202))
    async def retry(name: Name, message_id: MessageId) -> Response:
        """Put a dead letter back at the end of its original partition, as if it were new."""
        return answer(await services.retry_dead_letter(name, message_id), 202)

    @app.delete(LETTER_PATH, tags=TAGS, status_code=204)
    async def discard(name: Name, message_id: MessageId) -> Response:
        """Delete a dead letter."""
        await services.discard_dead_letter(name, message_id)
        return Response(status_code=204)

    @app.post(
        f"{QUEUE_PATH}/dlq/retry",
        tags=TAGS,
        responses=returns(LettersDone),
        openapi_extra=takes(LetterChoice, required=False),
    )
    async def retry_many(name: Name, request: Request) -> Response:
        """Put back all dead letters which are meant, the oldest first."""
        choice = await read_body(request, SETTINGS_BYTES_MAX)
        return answer(await services.retry_dead_letters(name, choice))

    @app.post(
        f"{QUEUE_PATH}/dlq/discard",
        tags=TAGS,
        responses=returns(LettersDone),
        openapi_extra=takes(LetterChoice, required=False),
    )
    async def discard_many(name: Name, request: Request) -> Response:
        """Delete all dead letters which are meant, the oldest first."""
        choice = await read_body(request, SETTINGS_BYTES_MAX)
        return answer(await services.discard_dead_letters(name, choice))
