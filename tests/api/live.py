"""The admin application and a fake broker on real sockets, in a thread of the test process."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from queuelake.admin.__main__ import grpc_beside
from queuelake.admin.app import create_app
from queuelake.admin.server import make_server
from queuelake.admin.services import Services
from queuelake.apikey import KeyFile, ensure_api_key, read_api_key
from queuelake.broker.children import bind_http
from queuelake.broker.control import ControlServer
from queuelake.control import GrpcStart
from queuelake.control_client import ControlClient
from queuelake.settings import Http, Settings
from tests.api.fake_broker import FakeBroker


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def fetch(
    port: int,
    path: str,
    *,
    method: str = "GET",
    authorization: str | None = None,
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
) -> Answer:
    """One request with exactly this path; HTTP libraries would tidy it up."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=15)
    try:
        sent = dict(headers or {})
        if authorization is not None:
            sent["Authorization"] = authorization
        connection.request(method, path, body, sent)
        response = connection.getresponse()
        lowered = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, lowered, response.read())
    finally:
        connection.close()


def basic(key: str) -> str:
    return "Basic " + base64.b64encode(key.encode()).decode()


def wait_until(condition: Callable[[], bool], timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not so after {timeout_s} s"
        time.sleep(0.02)


class LiveAdmin:
    """`fetch` asks with the right key; `broker_down` and `broker_up` play a restart."""

    def __init__(self, data_dir: Path, grpc: GrpcStart | None = None) -> None:
        ensure_api_key(data_dir)
        self.data_dir = data_dir
        self.services: Services
        self._grpc = grpc
        self.key = read_api_key(data_dir)
        self.broker = FakeBroker()
        self.app: FastAPI
        self._listening = bind_http(Settings(http=Http(port=0)))
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._loop = asyncio.new_event_loop()
        self._control: ControlServer | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._started.wait(20)
        # It has said so to the broker: a broker which goes down now drops a connection it knows.
        wait_until(lambda: self._server.started)

    def fetch(self, path: str, **fields: Any) -> Answer:
        return fetch(self.port, path, authorization=basic(self.key), **fields)

    def broker_up(self) -> None:
        self._do(self._up())

    def broker_down(self) -> None:
        self._do(self._down())

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        self._listening.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        control = ControlClient(self.data_dir, timeout_s=2.0)
        self.services = Services(control, KeyFile(self.data_dir))
        self.app = create_app(self.services, beside=grpc_beside(self.services, self._grpc))
        self._server = make_server(self.app)
        await self._up()
        self._started.set()
        await self._server.serve(sockets=[self._listening])
        await self._down()

    async def _up(self) -> None:
        self._control = ControlServer(self.data_dir, self.broker.operations)
        await self._control.start()

    async def _down(self) -> None:
        if self._control is not None:
            await self._control.close()
            self._control = None
