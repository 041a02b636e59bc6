"""How operators' commands reach a broker: its REST API, on this machine or another.

`--url` and `--key` (or QUEUELAKE_URL, QUEUELAKE_KEY) name any broker. Without them it is the one of
the data directory, given here or in the file which QUEUELAKE_CONFIG names: its key is a file there,
and it says itself where it listens.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode, urlsplit

import typer

from queuelake.cli.options import Values, shared, with_options
from queuelake.cli.reading import CONFIG_VARIABLE, read_settings
from queuelake.errors import AnswerError, BrokerDownError, QueuelakeError, RefusedError

TIMEOUT_S = 310.0  # the longest operations are answered within five minutes
PAGE = 1000
HOST = re.compile(r"[^\s\x00-\x20/?#@]+")

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="QUEUELAKE_URL",
        help="REST of the broker.",
        rich_help_panel="Where",
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY:SECRET",
        envvar="QUEUELAKE_KEY",
        help="An API key; else that of the data directory.",
        rich_help_panel="Where",
    ),
]
Directory = Annotated[
    str | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        envvar="QUEUELAKE__DATA_DIR",
        help="The broker of this directory, without --url.",
        rich_help_panel="Where",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


class Rest:
    """The API of one broker. Paths are made with `path("queues", name, "stats")`."""

    def __init__(self, url: str | None, key: str | None, data_dir: str | None) -> None:
        self.url = url or _local_url(_directory(data_dir))
        self._scheme, self._host, self._port, self._prefix = _address(self.url)
        self._authorization = f"Basic {_encoded(key or _local_key(_directory(data_dir)))}"

    def get(self, path: str, **query: object) -> Any:
        return self.call("GET", path, query=query)

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        query: dict[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The JSON of the answer; None when there is none.

        Raises:
            AnswerError: the broker said no, in its own words.
            BrokerDownError: nobody answers there.
        """
        target = self._prefix + path
        if query:
            target += "?" + urlencode(query)
        sent = {"Authorization": self._authorization, **(headers or {})}
        data = None if body is None else json.dumps(body).encode()
        from http.client import HTTPConnection, HTTPException, HTTPSConnection

        kind = HTTPSConnection if self._scheme == "https" else HTTPConnection
        connection = kind(self._host, self._port, timeout=TIMEOUT_S)
        try:
            connection.request(method, target, data, sent)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, HTTPException) as error:
            raise BrokerDownError(f"{self.url} does not answer: {error}") from error
        finally:
            connection.close()
        return _read(self.url, answer.status, content)

    def pages(self, path: str, items: str, limit: int = 0, **query: object) -> Iterator[Any]:
        """The items of a list, page by page, up to `limit`; 0: all."""
        cursor: str | None = ""
        seen = 0
        while cursor is not None:
            size = min(PAGE, limit - seen) if limit else PAGE
            page = self.get(path, cursor=cursor, limit=size, **query)
            for item in page[items]:
                yield item
                seen += 1
                if seen == limit:
                    return
            cursor = page.get("next", page.get("next_cursor"))


def _where(url: Url = None, key: Key = None, data_dir: Directory = None) -> None:
    """The options which every command over REST has."""


WHERE = shared(_where)


def over_rest(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function whose first argument is the broker: the options which say
    where it is come behind its own."""

    def run(own: Values, where: Values) -> None:
        try:
            function(Rest(**where), **own)
        except UnicodeEncodeError as error:
            raise RefusedError(f"{error.object!r} is not UTF-8") from error

    return with_options(function, WHERE, run, leave_out=1)


def path(*segments: str) -> str:
    """Below /api/v1, each segment encoded whole."""
    return "/api/v1/" + "/".join(quote(segment, safe="") for segment in segments)


def queue_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """For the completion of a shell: the queues there are, if the broker can be asked."""
    where = {name: ctx.params.get(name) for name in WHERE}
    try:
        found = Rest(**where).get(path("queues"), limit=PAGE, prefix=incomplete)["queues"]
    except (QueuelakeError, OSError, UnicodeError):
        return []
    names = [one["name"] for one in found]
    if not incomplete.startswith("$"):
        names = [name.removeprefix("$queue/") for name in names]
    return [name for name in names if name.startswith(incomplete)]


def confirm(question: str, yes: bool) -> None:
    """Ask before something which cannot be undone.

    Raises:
        typer.Abort: the answer was no.
    """
    if not yes and not typer.confirm(question, err=True):
        raise typer.Abort


def _read(url: str, status: int, content: bytes) -> Any:
    try:
        found = json.loads(content) if content else None
    except ValueError:
        raise BrokerDownError(f"{url} does not speak as a broker does: HTTP {status}") from None
    if status < 400:
        return found
    problem = found if isinstance(found, dict) else {}
    words = str(problem.get("message", f"HTTP {status}"))
    raise AnswerError(str(problem.get("code", "INTERNAL_ERROR")), words, status)


def _address(url: str) -> tuple[str, str, int | None, str]:
    """Scheme, host, port and what stands before every path."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        host.encode("idna")
        if parts.scheme in ("http", "https") and HOST.fullmatch(host):
            return parts.scheme, host, parts.port, parts.path.rstrip("/")
    except ValueError:  # which says less than the line below
        pass
    raise RefusedError(f"--url {url!r}: not http://host:port")


def _directory(data_dir: str | None) -> Path:
    config = os.environ.get(CONFIG_VARIABLE) or None
    return Path(read_settings(config, data_dir, None).data_dir).expanduser()


def _local_url(directory: Path) -> str:
    from queuelake.control_client import call

    status = call(directory, "status", {}, 5.0)
    assert isinstance(status, dict)
    url = status["addresses"].get("http")
    if url is None:
        raise RefusedError("this broker serves no HTTP (http.enabled = false); name one with --url")
    return str(url)


def _local_key(directory: Path) -> str:
    from queuelake.apikey import read_api_key

    return read_api_key(directory)


def _encoded(key: str) -> str:
    return base64.b64encode(key.encode()).decode()
