"""The bodies of requests: read up to a limit, and described in the document by their Struct.

What is in a body is mostly for the broker to judge: it goes there as it came.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from fastapi import Request

from queuelake.admin.openapi import returns
from queuelake.errors import RefusedError

T = TypeVar("T", bound=msgspec.Struct)
B = TypeVar("B", bytes, bytearray)

SETTINGS_BYTES_MAX = 64 * 1024
MESSAGE_BYTES_MAX = 8 * 1024 * 1024  # a control frame has a limit


class BodyTooLargeError(RefusedError):
    """The body is longer than any good one is."""

    http_status = 413
    code = "CONTENT_TOO_LARGE"


async def read_body(request: Request, bytes_max: int) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        within(body, bytes_max)
    return bytes(body)


def read_struct(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(f"the body is no {kind.__name__}: {error}") from error


def within(body: B, bytes_max: int) -> B:
    """The body, or a refusal."""
    if len(body) > bytes_max:
        raise BodyTooLargeError(f"the body is longer than the limit of {bytes_max} bytes")
    return body


def takes(kind: type[msgspec.Struct], *, required: bool = True) -> dict[str, Any]:
    """What a route takes, for the `openapi_extra` argument of its decorator."""
    # `returns` also puts the Struct into the document.
    content = returns(kind)[200]["content"]
    return {"requestBody": {"required": required, "content": content}}
