"""The service QueueAdmin: each method is a line of `CALLS`, which says who may call it.

Thin functions over the services, as the routes of REST are: what can be wrong with a request is
known to the broker, and its answer becomes a message in `messages.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import grpc
import msgspec
from google.protobuf.message_factory import GetMessageClass

from queuelake.admin.bodies import SETTINGS_BYTES_MAX, within
from queuelake.admin.grpc.messages import fill, read_tree
from queuelake.admin.grpc.status import refuse
from queuelake.admin.services import Services
from queuelake.apikey import Role
from queuelake.control_queues import (
    ConsumerPage,
    DeadLetterPage,
    LetterChoice,
    LettersDone,
    MessagePage,
    NewMessage,
    Purged,
    QueueConfigured,
    QueueDeleted,
    QueueInfo,
    QueuePage,
    QueueStats,
    Redriven,
)
from queuelake.errors import QueuelakeError
from queuelake.names import queue_name_from_path
from queuelake.v1 import queue_admin_pb2 as pb2

SERVICE = pb2.DESCRIPTOR.services_by_name["QueueAdmin"]
PAGE_SIZE = 100  # when none is given

log = logging.getLogger(__name__)


class Call(NamedTuple):
    needed: Role
    do: Callable[[Services, Any], Awaitable[msgspec.Struct | None]]


class CallFailedError(QueuelakeError):
    """Our mistake; the log of the admin process tells more."""


# Queues and their settings


async def list_queues(services: Services, request: pb2.ListQueuesRequest) -> QueuePage:
    return await services.queues(*_page(request), prefix=request.prefix, type=request.type)


async def get_queue(services: Services, request: pb2.GetQueueRequest) -> QueueInfo:
    return await services.queue(_name(request))


async def configure_queue(
    services: Services, request: pb2.ConfigureQueueRequest
) -> QueueConfigured:
    changes = msgspec.json.encode(read_tree(request.settings))
    return await services.configure_queue(_name(request), within(changes, SETTINGS_BYTES_MAX))


async def delete_queue(services: Services, request: pb2.DeleteQueueRequest) -> QueueDeleted:
    return await services.delete_queue(_name(request))


# State


async def get_queue_stats(services: Services, request: pb2.GetQueueStatsRequest) -> QueueStats:
    return await services.queue_stats(_name(request))


async def list_consumers(services: Services, request: pb2.ListConsumersRequest) -> ConsumerPage:
    return await services.queue_consumers(_name(request), *_page(request))


async def delete_group(services: Services, request: pb2.DeleteGroupRequest) -> None:
    await services.delete_group(_name(request), request.group)


# Messages


async def peek_messages(services: Services, request: pb2.PeekMessagesRequest) -> MessagePage:
    limit, cursor = _page(request)
    partition = request.partition if request.HasField("partition") else None
    return await services.queue_messages(
        _name(request), request.from_offset, limit, partition, cursor
    )


async def publish_message(services: Services, request: pb2.PublishMessageRequest) -> None:
    message = NewMessage(
        payload_base64=request.payload,
        key=request.key,
        properties=dict(request.properties),
        content_type=request.content_type,
    )
    await services.publish_message(_name(request), msgspec.json.encode(message))


async def purge_queue(services: Services, request: pb2.PurgeQueueRequest) -> Purged:
    return await services.purge_queue(_name(request))


# Dead letters


async def list_dead_letters(
    services: Services, request: pb2.ListDeadLettersRequest
) -> DeadLetterPage:
    return await services.dead_letters(_name(request), *_page(request))


async def retry_dead_letter(services: Services, request: pb2.RetryDeadLetterRequest) -> Redriven:
    return await services.retry_dead_letter(_name(request), request.id)


async def discard_dead_letter(services: Services, request: pb2.DiscardDeadLetterRequest) -> None:
    await services.discard_dead_letter(_name(request), request.id)


async def retry_dead_letters(
    services: Services, request: pb2.RetryDeadLettersRequest
) -> LettersDone:
    return await services.retry_dead_letters(_name(request), _choice(request))


async def discard_dead_letters(
    services: Services, request: pb2.DiscardDeadLettersRequest
) -> LettersDone:
    return await services.discard_dead_letters(_name(request), _choice(request))


CALLS = {
    "ListQueues": Call("viewer", list_queues),
    "GetQueue": Call("viewer", get_queue),
    "ConfigureQueue": Call("operator", configure_queue),
    "DeleteQueue": Call("operator", delete_queue),
    "GetQueueStats": Call("viewer", get_queue_stats),
    "ListConsumers": Call("viewer", list_consumers),
    "DeleteGroup": Call("operator", delete_group),
    "PeekMessages": Call("viewer", peek_messages),
    "PublishMessage": Call("operator", publish_message),
    "PurgeQueue": Call("operator", purge_queue),
    "ListDeadLetters": Call("viewer", list_dead_letters),
    "RetryDeadLetter": Call("operator", retry_dead_letter),
    "DiscardDeadLetter": Call("operator", discard_dead_letter),
    "RetryDeadLetters": Call("operator", retry_dead_letters),
    "DiscardDeadLetters": Call("operator", discard_dead_letters),
}


def needed_role(method: str) -> Role:
    """What somebody must be to call this; `method` is `/service/name`."""
    service, _, name = method[1:].partition("/")
    return CALLS[name].needed if service == SERVICE.full_name and name in CALLS else "viewer"


def queue_admin_handler(services: Services) -> Any:
    handlers = {
        method.name: grpc.unary_unary_rpc_method_handler(
            _answering(services, CALLS[method.name], GetMessageClass(method.output_type)),
            GetMessageClass(method.input_type).FromString,
            GetMessageClass(method.output_type).SerializeToString,
        )
        for method in SERVICE.methods
    }
    return grpc.method_handlers_generic_handler(SERVICE.full_name, handlers)


def _answering(services: Services, call: Call, kind: Any) -> Callable[[Any, Any], Awaitable[Any]]:
    async def answer(request: Any, context: Any) -> Any:
        try:
            found = await call.do(services, request)
            message = kind()
            if found is not None:
                fill(message, found)
        except QueuelakeError as error:
            await refuse(context, error)
        except Exception:
            log.exception("a call of %s failed", kind.DESCRIPTOR.name)
            words = "the call failed; see the log of the admin process"
            await refuse(context, CallFailedError(words))
        return message

    return answer


def _name(request: Any) -> str:
    return queue_name_from_path(request.name)


def _page(request: Any) -> tuple[int, str]:
    return request.page_size or PAGE_SIZE, request.page_token


def _choice(request: Any) -> bytes:
    """What is given; whether it can be is the broker's to say."""
    given = {field.name: value for field, value in request.choice.ListFields()}
    return msgspec.json.encode(LetterChoice(**given))
