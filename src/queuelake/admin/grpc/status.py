"""Errors over gRPC: a status, one line of text, and the code which REST has in the metadata."""

from __future__ import annotations

from typing import Any, NoReturn

from grpc import StatusCode

from queuelake.errors import QueuelakeError

CODE_KEY = "queuelake-code"
STATUS_BY_HTTP = {
    400: StatusCode.INVALID_ARGUMENT,
    401: StatusCode.UNAUTHENTICATED,
    403: StatusCode.PERMISSION_DENIED,
    404: StatusCode.NOT_FOUND,
    409: StatusCode.FAILED_PRECONDITION,
    410: StatusCode.DATA_LOSS,
    413: StatusCode.RESOURCE_EXHAUSTED,
    429: StatusCode.RESOURCE_EXHAUSTED,
    501: StatusCode.UNIMPLEMENTED,
    503: StatusCode.UNAVAILABLE,
}


async def refuse(context: Any, error: QueuelakeError) -> NoReturn:
    """End a call with this error."""
    status = STATUS_BY_HTTP.get(error.http_status, StatusCode.INTERNAL)
    await context.abort(status, str(error), ((CODE_KEY, error.code),))
    raise AssertionError("abort() raises")
