"""A node of a cluster with several shards, and another one, in this process and without NATS.

The brokers and their stores are real, and so is the export process. What is not is replication: the
broker of a shard which the other node owns has a data directory of its own, and its store is here.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from queuelake import control_pipeline as ops
from queuelake.apikey import ensure_api_key
from queuelake.broker.audit import Audit
from queuelake.broker.control import ControlServer
from queuelake.broker.operation import Operation
from queuelake.broker.pipeline.passing import commit_stage
from queuelake.broker.serving import Place, Serving
from queuelake.control import CHILD_STARTED, ExportStart
from queuelake.errors import BrokerDownError
from queuelake.placing import Placing
from queuelake.settings import Settings
from queuelake.storage.lmdb_store import LmdbStore
from queuelake.storage.shards import directory_of

T = TypeVar("T")
START_TIMEOUT_S = 30.0


class ShardedNode:
    """`elsewhere` are the shards of the other node. It has what tests ask of a `BrokerProcess`."""

    name = "here"

    def __init__(self, directory: Path, shards: int = 3, elsewhere: tuple[int, ...] = (2,)) -> None:
        self.data_dir = directory / "here"
        self.other_dir = directory / "there"
        self.placing = Placing(shards)
        self.urls: list[str] = []
        self.asked: list[tuple[int, str]] = []
        # What is done before an operation at the broker of a shard.
        self.before: Callable[[int, str], None] = lambda _shard, _name: None
        self.unowned: set[int] = set()  # no batch is committed there
        self._shards = shards
        self._elsewhere = elsewhere
        self._serving: list[Serving] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stop: list[Callable[[], Any]] = []
        self._started = threading.Event()

    def __enter__(self) -> ShardedNode:
        self.data_dir.mkdir()
        self.other_dir.mkdir()
        ensure_api_key(self.data_dir)
        self._thread.start()
        self.run(self._serve())
        self._export()
        return self

    def __exit__(self, *error: object) -> None:
        self._child.stdin.close()  # type: ignore[union-attr]
        self._child.wait(START_TIMEOUT_S)
        self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_TIMEOUT_S)

    # The brokers

    async def _serve(self) -> None:
        for shard in range(self._shards):
            here = directory_of(self.data_dir, shard)
            here.mkdir(parents=True, exist_ok=True)
            home = self.other_dir if shard in self._elsewhere else self.data_dir
            settings = Settings(data_dir=str(home))
            store = LmdbStore(here, settings.storage)
            audit = Audit(here, lambda: 0)
            place = Place(settings, {}, home, [], {}, audit, lambda: None)
            serving = Serving(place, store)
            await serving.start()
            self._serving.append(serving)
            self._stop += [serving.stop, store.close, audit.close]
        names = self._serving[0].operations
        table: dict[str, Operation] = {name: self._operation(name) for name in names}
        table[ops.COMMIT_STAGE] = lambda args: commit_stage(self, self.data_dir, args)
        table[CHILD_STARTED] = lambda _: self._started.set()
        control = ControlServer(self.data_dir, table)
        await control.start()
        self._stop.insert(0, control.close)

    async def _end(self) -> None:
        for stop in self._stop:
            result = stop()
            if inspect.isawaitable(result):
                await result

    def _operation(self, name: str) -> Operation:
        async def ask(args: dict[str, object]) -> object:
            return await self.ask(msgspec.convert(args.get("shard", 0), int), name, args, object)

        return ask

    def owner(self, shard: int) -> str:
        if shard in self.unowned:
            return ""
        return "there" if shard in self._elsewhere else "here"

    async def ask(self, shard: int, name: str, args: dict[str, object], kind: type[T]) -> T:
        """Through bytes, as it would be between nodes."""
        self.asked.append((shard, name))
        self.before(shard, name)
        if name == ops.COMMIT_STAGE and shard in self.unowned:
            raise BrokerDownError("there is no owner")
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode(args))
        result = self._serving[shard].operations[name](sent)
        answer = await result if inspect.isawaitable(result) else result
        return msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=kind)

    def call(self, shard: int, operation: str, /, **args: object) -> Any:
        return self.run(self.ask(shard, operation, args, object))

    # The export process

    def _export(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        start = ExportStart(str(self.data_dir), "127.0.0.1", port, stores=self._shards)
        argv = [sys.executable, "-m", "queuelake.export"]
        self._child = subprocess.Popen(argv, stdin=subprocess.PIPE)
        assert self._child.stdin is not None
        self._child.stdin.write(msgspec.json.encode(start) + b"\n")
        self._child.stdin.flush()
        assert self._started.wait(START_TIMEOUT_S)
        self.urls.append(f"flight://127.0.0.1:{port}")

    # Names

    def queue_in(self, shard: int, stem: str = "q") -> str:
        """The name of a durable queue which is in this shard."""
        candidates = (f"{stem}{number}" for number in range(1000))
        return next(name for name in candidates if self.placing.of_queue(name) == shard)
