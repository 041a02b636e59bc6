"""The API key in front of everything: a path is open only when it is listed here.

Checked before routing, so that a route added later cannot forget it, and so that somebody without
a key does not learn which paths exist. A wrong key is answered late; the waiting costs nobody else
anything, and at most SLOWED_MAX wait at a time: the rest is refused at once.

A viewer may read, an operator may change, and what is listed as such takes an admin.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from queuelake.admin.answers import problem
from queuelake.apikey import Caller, KeyFile, Role
from queuelake.control import CALLER

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Who may connect, what the broker is, what others did: to read it and to change it.
ADMIN_PREFIXES = ("/api/v1/users", "/api/v1/acl", "/api/v1/bans", "/api/v1/audit", "/api/v1/backup")
# A job runs the SQL it is given and reads files, as the user who runs the broker.
STARTS_JOBS = ("POST", "/api/v1/jobs")
WRONG_KEY_DELAY_S = 0.5
SLOWED_MAX = 64
CHALLENGE = {"WWW-Authenticate": 'Basic realm="queuelake"'}

log = logging.getLogger(__name__)


class RequireKey:
    """ASGI middleware: lets a request pass when it presents the key, or its path is open."""

    def __init__(self, app: ASGIApp, keys: KeyFile) -> None:
        self._app = app
        self._keys = keys
        self._slowed = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        header = _authorization(scope)
        caller = self._keys.identify(presented_key(header)) if header is not None else None
        if caller is not None:
            needed = needed_role(str(scope.get("method", "GET")), str(scope["path"]))
            if caller.may(needed):
                await self._pass(caller, scope, receive, send)
                return
            refusal = _too_low(caller, needed)
        else:
            refusal = _missing_key() if header is None else await self._wrong_key(scope)
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        await refusal(scope, receive, send)

    async def _pass(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["caller"] = caller
        token = CALLER.set(caller.name)  # what the broker is asked for from here is asked by them
        try:
            await self._app(scope, receive, send)
        finally:
            CALLER.reset(token)

    async def _wrong_key(self, scope: Scope) -> Response:
        if self._slowed >= SLOWED_MAX:
            message = f"{self._slowed} requests with a wrong API key are waiting; come later"
            return problem(429, "TOO_MANY_REQUESTS", message, {"Retry-After": "1"})
        client = scope.get("client")
        log.warning("wrong API key from %s", client[0] if client else "an unknown address")
        self._slowed += 1
        try:
            await asyncio.sleep(WRONG_KEY_DELAY_S)
        finally:
            self._slowed -= 1
        return problem(401, "BAD_API_KEY", "the API key is wrong", CHALLENGE)


def needed_role(method: str, path: str) -> Role:
    """What somebody must be to ask this."""
    if path.startswith(ADMIN_PREFIXES) or (method, path) == STARTS_JOBS:
        return "admin"
    return "viewer" if method in READING_METHODS else "operator"


def _too_low(caller: Caller, needed: Role) -> Response:
    words = f"API key {caller.name!r} has the role {caller.role}; this needs {needed}"
    return problem(403, "FORBIDDEN", words)


def _missing_key() -> Response:
    message = "an API key is needed: basic authentication, or Authorization: Bearer key:secret"
    return problem(401, "API_KEY_MISSING", message, CHALLENGE)


def _authorization(scope: Scope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"authorization":
            assert isinstance(value, bytes)
            return value
    return None


def presented_key(header: bytes) -> bytes:
    """Return the `key:secret` of an Authorization header, or nothing when there is none in it."""
    scheme, _, credentials = header.strip().partition(b" ")
    credentials = credentials.strip()
    if scheme.lower() == b"bearer":
        return credentials
    if scheme.lower() == b"basic":
        try:
            return base64.b64decode(credentials, validate=True)
        except binascii.Error:
            return b""
    return b""
