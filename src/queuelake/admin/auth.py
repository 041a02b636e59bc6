"""The API key in front of everything: a path is open only when it is listed here.

Checked before routing, so that a route added later cannot forget it, and so that somebody without
a key does not learn which paths exist. A wrong key is answered late; the waiting costs nobody else
anything, and at most SLOWED_MAX wait at a time: the rest is refused at once.

A viewer may read, an operator may change, and what is listed as such takes an admin.

A browser which knows a key by basic authentication sends it along with whatever the page of another
site asks for, so nothing is changed for such a page: `Origin` says whose it is.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from queuelake.admin.answers import problem
from queuelake.apikey import Caller, KeyFile, Role
from queuelake.control import CALLER
from queuelake.errors import RefusedError

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Who may connect, what the broker is, what others did: to read it and to change it.
ADMIN_PREFIXES = ("/api/v1/users", "/api/v1/acl", "/api/v1/bans", "/api/v1/audit", "/api/v1/backup")
# To read it is for everybody, to change it is not.
ADMIN_CHANGES_PREFIX = "/api/v1/cluster"
# A job runs the SQL it is given and reads files, as the user who runs the broker.
STARTS_JOBS = ("POST", "/api/v1/jobs")
WRONG_KEY_DELAY_S = 0.5
SLOWED_MAX = 64
# What an answer says besides, by its status.
HEADERS = {
    401: {"WWW-Authenticate": 'Basic realm="queuelake"'},
    429: {"Retry-After": "1"},
}

log = logging.getLogger(__name__)


class Gate:
    """Whose key it is, and what those without the right one are told; for HTTP and gRPC alike."""

    def __init__(self, keys: KeyFile) -> None:
        self.keys = keys
        self._slowed = 0
        self.refused: dict[str, int] = {}  # how often, by the code of the error

    def identify(self, header: bytes | None) -> Caller | None:
        """Whose key is in this Authorization header."""
        return self.keys.identify(presented_key(header)) if header is not None else None

    async def refusal(
        self, header: bytes | None, caller: Caller | None, needed: Role, address: str
    ) -> RefusedError:
        """Why `caller`, found in `header`, may not pass; waits when the key is wrong."""
        return self.counted(await self._refusal(header, caller, needed, address))

    def counted(self, error: RefusedError) -> RefusedError:
        self.refused[error.code] = self.refused.get(error.code, 0) + 1
        return error

    async def _refusal(
        self, header: bytes | None, caller: Caller | None, needed: Role, address: str
    ) -> RefusedError:
        if caller is not None:
            words = f"API key {caller.name!r} has the role {caller.role}; this needs {needed}"
            return RoleTooLowError(words)
        if header is None:
            return KeyMissingError(
                "an API key is needed: basic authentication, or Authorization: Bearer key:secret"
            )
        if self._slowed >= SLOWED_MAX:
            return TooManyWrongKeysError(
                f"{self._slowed} requests with a wrong API key are waiting; come later"
            )
        log.warning("wrong API key from %s", address)
        self._slowed += 1
        try:
            await asyncio.sleep(WRONG_KEY_DELAY_S)
        finally:
            self._slowed -= 1
        return WrongKeyError("the API key is wrong")


class KeyMissingError(RefusedError):
    """Nobody said who they are: send an API key."""

    http_status = 401
    code = "API_KEY_MISSING"


class WrongKeyError(RefusedError):
    """No such key: `queuelake keys` lists those there are."""

    http_status = 401
    code = "BAD_API_KEY"


class RoleTooLowError(RefusedError):
    """The key is good, but not for this: ask an admin for another one."""

    http_status = 403
    code = "FORBIDDEN"


class AnotherSiteError(RefusedError):
    """A browser asks for the page of another site: use the console, or a program."""

    http_status = 403
    code = "FORBIDDEN"


class TooManyWrongKeysError(RefusedError):
    """Somebody tries keys: come again in a second."""

    http_status = 429
    code = "TOO_MANY_REQUESTS"


class RequireKey:
    """ASGI middleware: lets a request pass when it presents the key, or its path is open."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        header = _authorization(scope)
        caller = self._gate.identify(header)
        method = str(scope.get("method", "GET"))
        needed = needed_role(method, str(scope["path"]))
        if caller is None or not caller.may(needed):
            client = scope.get("client")
            address = str(client[0]) if client else "an unknown address"
            error = await self._gate.refusal(header, caller, needed, address)
        elif method not in READING_METHODS and _is_of_another_site(Headers(scope=scope)):
            words = "this came from another site's page, which may change nothing here"
            error = self._gate.counted(AnotherSiteError(words))
        else:
            await self._pass(caller, scope, receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        refusal = problem(error.http_status, error.code, str(error), HEADERS.get(error.http_status))
        await refusal(scope, receive, send)

    async def _pass(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["caller"] = caller
        token = CALLER.set(caller.name)  # what the broker is asked for from here is asked by them
        try:
            await self._app(scope, receive, send)
        finally:
            CALLER.reset(token)


def needed_role(method: str, path: str) -> Role:
    """What somebody must be to ask this."""
    if path.startswith(ADMIN_PREFIXES) or (method, path) == STARTS_JOBS:
        return "admin"
    if method in READING_METHODS:
        return "viewer"
    return "admin" if path.startswith(ADMIN_CHANGES_PREFIX) else "operator"


def is_own_page(headers: Headers) -> bool:
    """Whether a browser says that a page of this very host asked."""
    _, _, host = headers.get("origin", "").partition("://")
    return bool(host) and host == headers.get("host", "")


def _is_of_another_site(headers: Headers) -> bool:
    """Programs say nothing of a page."""
    return "origin" in headers and not is_own_page(headers)


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
