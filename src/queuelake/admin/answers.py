"""HTTP answers: a Struct as JSON, and the one shape of every error, `{"code", "message"}`."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from queuelake.control import Problem
from queuelake.errors import QueuelakeError

JSON = "application/json"
VALUE_MAX = 100  # characters of a wrong value which its refusal repeats


def answer(body: msgspec.Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type=JSON)


def problem(
    status: int, code: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(problem_body(code, message), status, headers, media_type=JSON)


def problem_body(code: str, message: str) -> bytes:
    return msgspec.json.encode(Problem(code, message))


def add_problem_handlers(app: FastAPI) -> None:
    """Turn whatever is raised in a request into the one error shape."""
    app.add_exception_handler(QueuelakeError, _on_queuelake_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_mistake)


async def _on_queuelake_error(_request: Request, exc: Exception) -> Response:
    assert isinstance(exc, QueuelakeError)
    return problem(exc.http_status, exc.code, str(exc))


async def _on_validation_error(_request: Request, exc: Exception) -> Response:
    assert isinstance(exc, RequestValidationError)
    return problem(400, "BAD_REQUEST", "; ".join(_mistake(error) for error in exc.errors()))


def _mistake(error: Mapping[str, Any]) -> str:
    """The parameter, its value, and what it may be."""
    place, *names = error["loc"]
    name = ".".join(str(part) for part in names) or place
    value = "" if error["type"] == "missing" else f" = {str(error['input'])[:VALUE_MAX]!r}"
    return f"{name}{value}: {error['msg']}"


async def _on_http_error(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    status = HTTPStatus(exc.status_code)
    headers = dict(exc.headers or {})
    message = exc.detail
    if status == HTTPStatus.NOT_FOUND:
        message = f"there is nothing at {request.url.path}"
    elif status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_methods_allowed(request))
        message = f"{request.url.path} has no {request.method}, only {headers['Allow']}"
    return problem(status, status.name, message, headers)


async def _on_mistake(_request: Request, _exc: Exception) -> Response:
    return problem(500, "INTERNAL_ERROR", "the request failed; see the log of the admin process")


def _methods_allowed(request: Request) -> list[str]:
    # The router knows only the first route of a path; a path has one route for each method.
    methods: set[str] = set()
    for route in request.app.routes:
        match, _ = route.matches(request.scope)
        if match != Match.NONE:
            methods |= getattr(route, "methods", None) or set()
    return sorted(methods)
