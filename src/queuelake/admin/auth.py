"""The API key in front of everything: a path is open only when it is listed here.

Checked before routing, so that a route added later cannot forget it, and so that somebody without
a key does not learn which paths exist. A wrong key is answered late; the waiting costs nobody else
anything, and at most SLOWED_MAX wait at a time: the rest is refused at once.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from queuelake.admin.answers import problem
from queuelake.apikey import KeyFile

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
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
        if header is not None and self._keys.accepts(presented_key(header)):
            await self._app(scope, receive, send)
            return
        refusal = _missing_key() if header is None else await self._wrong_key(scope)
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        await refusal(scope, receive, send)

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
