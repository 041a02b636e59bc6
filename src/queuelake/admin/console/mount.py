"""The door of the console: what is under /console passes here, and nothing without a session.

The login page is served from here, without NiceGUI. Everything else, assets too, needs the cookie
of a session. Whatever could change something (a WebSocket, and any method but GET) must come from
our own pages as well: browsers say in `Origin` whose page it was. Answers carry headers which keep
pages out of frames and the browser on this host.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import re
from urllib.parse import parse_qs, quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from queuelake.admin.auth import is_own_page
from queuelake.admin.bodies import read_body
from queuelake.admin.console.directory import Directory
from queuelake.admin.console.login import login_page, missing_page
from queuelake.admin.console.sampler import Sampler
from queuelake.admin.console.session import COOKIE, Session, Sessions
from queuelake.admin.console.visit import Visit
from queuelake.admin.services import Services
from queuelake.errors import QueuelakeError
from queuelake.settings import Console

PREFIX = "/console"
LOGIN = f"{PREFIX}/login"
SOCKET = f"{PREFIX}/_nicegui_ws/"
TABS_MAX = 200
FORM_BYTES_MAX = 16 * 1024
STATE = "console_visit"
HOST_NAME = re.compile(r"[A-Za-z0-9.-]+")

# NiceGUI compiles templates in the browser and has its scripts in the page: hence the unsafe ones.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
    "connect-src 'self' {sockets}; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Site:
    """The pages of one admin process, loaded when the first one is asked for."""

    def __init__(self, services: Services, settings: Console) -> None:
        self.enabled = settings.enabled
        self.gate = services.gate
        self.tabs = 0
        self.sampler = Sampler(services)
        self.directory = Directory(services, self.sampler)
        self._services = services
        self._settings = settings
        self._sessions: Sessions | None = None
        self._starting = asyncio.Lock()
        self._pages: ASGIApp | None = None

    @property
    def installed(self) -> bool:
        return importlib.util.find_spec("nicegui") is not None

    @property
    def sessions(self) -> Sessions:
        if self._sessions is None:
            self._sessions = Sessions(self._services, self._settings)
        return self._sessions

    def visit(self, session: Session) -> Visit:
        return Visit(self._services, self.sessions, session, self.sampler, self.directory)

    async def pages(self) -> ASGIApp:
        async with self._starting:
            if self._pages is None:
                # In a thread: others are served while a second of imports goes by.
                name = "queuelake.admin.console.site"
                site = await asyncio.to_thread(importlib.import_module, name)
                self._pages = await site.start(PREFIX)
            return self._pages

    async def sockets(self, host: str) -> str:
        """Where the page which tries things out may connect to: our WebSocket listeners."""
        name = host.partition(":")[0]
        if not HOST_NAME.fullmatch(name):
            return ""
        try:
            addresses = (await self._services.status()).addresses
        except QueuelakeError:
            return ""
        found = [urlsplit(addresses[scheme]) for scheme in ("ws", "wss") if scheme in addresses]
        return " ".join(f"{url.scheme}://{name}:{url.port}" for url in found)

    async def close(self) -> None:
        await self.sampler.close()
        if self._pages is not None:
            site = importlib.import_module("queuelake.admin.console.site")
            await site.stop()


class ConsoleGate:
    """ASGI middleware: takes what is under /console, and leaves the rest to the application."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app = app
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if not self._site.enabled or not (path == PREFIX or path.startswith(f"{PREFIX}/")):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._take_socket(scope, receive, send)
        else:
            request = Request(scope, receive)
            is_page = "text/html" in request.headers.get("accept", "")
            sockets = await self._site.sockets(request.headers.get("host", "")) if is_page else ""
            await self._take_request(request, _with_headers(send, sockets))

    async def _take_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = await self._session(scope)
        welcome = scope["path"].startswith(SOCKET) and is_own_page(Headers(scope=scope))
        if session is None or not welcome or self._site.tabs >= TABS_MAX:
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        self._site.tabs += 1
        try:
            await (await self._site.pages())(scope, receive, send)
        finally:
            self._site.tabs -= 1

    async def _take_request(self, request: Request, send: Send) -> None:
        scope, receive = request.scope, request.receive
        session = await self._session(scope)
        answer: Response | None = None
        if not self._site.installed:
            answer = HTMLResponse(missing_page(), 501)
        elif scope["path"] == PREFIX:
            answer = RedirectResponse("console/", 307)
        elif request.method not in ("GET", "HEAD") and not is_own_page(request.headers):
            answer = PlainTextResponse("this came from another site's page", 403)
        elif scope["path"] == LOGIN:
            answer = await self._login(request, session)
        elif session is None:
            answer = self._to_login(request)
        elif scope["path"].startswith(SOCKET):
            answer = PlainTextResponse("the console needs a WebSocket", 400)
        if answer is not None:
            await answer(scope, receive, send)
            return
        assert session is not None
        self._site.sessions.used(session)
        scope.setdefault("state", {})[STATE] = self._site.visit(session)
        if renewed := self._site.sessions.renewed(session):
            send = self._setting_cookie(send, renewed, request)
        await (await self._site.pages())(scope, receive, send)

    async def _session(self, scope: Scope) -> Session | None:
        token = Request({**scope, "type": "http"}).cookies.get(COOKIE, "")
        session = self._site.sessions.read(token) if token else None
        if session is None or not await self._site.visit(session).stands():
            return None
        return session

    async def _login(self, request: Request, session: Session | None) -> Response:
        target = _safe_target(request.query_params.get("next", ""))
        if request.method == "POST":
            return await self._log_in(request, target)
        if session is not None:
            return RedirectResponse(target, 303)
        answer = _login_answer("")
        answer.delete_cookie(COOKIE, path=PREFIX)
        return answer

    async def _log_in(self, request: Request, target: str) -> Response:
        address = request.client.host if request.client else "an unknown address"
        name = ""
        try:
            form = parse_qs((await read_body(request, FORM_BYTES_MAX)).decode(errors="replace"))
            name, secret = (form.get(key, [""])[0].strip() for key in ("name", "secret"))
            session = await self._site.sessions.open(name, secret, address)
        except QueuelakeError as exc:
            return _login_answer(str(exc), exc.http_status, name)
        if session is None:
            error = await self._site.gate.refusal(b"", None, "viewer", address)
            return _login_answer(str(error), error.http_status, name)
        answer = RedirectResponse(target, 303)
        self._set_cookie(answer, session, request)
        return answer

    def _to_login(self, request: Request) -> Response:
        if "text/html" not in request.headers.get("accept", ""):
            return PlainTextResponse("log in first", 401)
        wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"{LOGIN}?next={quote(wanted)}", 303)

    def _set_cookie(self, answer: Response, session: Session, request: Request) -> None:
        # Behind a proxy with TLS only the browser knows the scheme, and says it in Origin.
        secure = request.headers.get("origin", "").startswith("https:")
        answer.set_cookie(
            COOKIE,
            self._site.sessions.token(session),
            path=PREFIX,
            secure=secure or request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )

    def _setting_cookie(self, send: Send, session: Session, request: Request) -> Send:
        holder = Response()
        self._set_cookie(holder, session, request)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).append("set-cookie", holder.headers["set-cookie"])
            await send(message)

        return sending


def _login_answer(mistake: str, status: int = 200, name: str = "") -> Response:
    # Without a referrer browsers would say `Origin: null` when the form is sent.
    headers = {"Referrer-Policy": "same-origin", "Cache-Control": "no-store"}
    return HTMLResponse(login_page(mistake, name), status, headers)


def _safe_target(wanted: str) -> str:
    """Where to go after the login: a page of ours, never another host."""
    parts = urlsplit(wanted)
    ours = not parts.scheme and not parts.netloc and parts.path.startswith(f"{PREFIX}/")
    return wanted if ours and parts.path != LOGIN and "\\" not in wanted else f"{PREFIX}/"


def _with_headers(send: Send, sockets: str) -> Send:
    policy = POLICY.format(sockets=sockets)

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Content-Security-Policy"] = policy
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
