"""Routing on the path as it was sent: a name in a path may hold any character, also a slash.

ASGI servers decode the path before it is routed, which makes `a%2Fb` two segments. `RawPath` puts
a path back where only `%` and `/` inside a segment are still encoded, and the convertor of
`{name:segment}` decodes those, so that each name arrives exactly as its caller meant it.
"""

from __future__ import annotations

from urllib.parse import unquote, unquote_to_bytes

from starlette.convertors import Convertor, register_url_convertor
from starlette.types import ASGIApp, Receive, Scope, Send

from queuelake.admin.answers import problem

PREFIX = "/api/"
SEGMENT = "segment"


class RawPath:
    """ASGI middleware: normalises the path under /api/, and refuses one that is not UTF-8."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(PREFIX):
            try:
                scope["path"] = normalise(scope["raw_path"])
            except UnicodeDecodeError:
                refusal = problem(400, "BAD_REQUEST", "the path is not UTF-8")
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


def normalise(raw_path: bytes) -> str:
    return "/".join(
        unquote_to_bytes(part).decode("utf-8").replace("%", "%25").replace("/", "%2F")
        for part in raw_path.split(b"/")
    )


class _SegmentConvertor(Convertor[str]):
    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value)

    def to_string(self, value: str) -> str:
        return value.replace("%", "%25").replace("/", "%2F")


register_url_convertor(SEGMENT, _SegmentConvertor())
