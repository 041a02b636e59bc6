"""A broker at work in a process, with what is about it: its operations, traces and `$SYS`.

A single node has one of these for its whole life; a node of a cluster, while it is the owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from queuelake import names
from queuelake.broker.audit import Audit
from queuelake.broker.committer import Committer
from queuelake.broker.connection import Connection
from queuelake.broker.core import Broker
from queuelake.broker.listener import ClientProtocol
from queuelake.broker.operation import Operation
from queuelake.broker.operations import Operations
from queuelake.broker.sys_topics import SysTopics
from queuelake.broker.tracing import Tracer
from queuelake.control_cluster import OPERATIONS as OF_CLUSTERS
from queuelake.errors import ConfigError, NotFoundError
from queuelake.placing import Placing
from queuelake.settings import Queues, Settings
from queuelake.storage.lmdb_store import LmdbStore

log = logging.getLogger("queuelake.server")


class Place(NamedTuple):
    """The process a broker works in."""

    settings: Settings
    origins: Mapping[str, str]  # where settings are from
    data_dir: Path
    addresses: list[str]  # as URLs; they are added while the process starts
    child_restarts: Mapping[str, int]
    audit: Audit
    restart_readers: Callable[[], None]  # the store is another one than they have opened


class Node(Protocol):
    """What a process serves: a broker of its own, or a place in a cluster."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def protocol(self, listener: str) -> ClientProtocol:
        """For a client which has just connected."""
        ...

    def table(self, own: Mapping[str, Operation]) -> Mapping[str, Operation]:
        """All operations which can be asked for here; `own` are those of the process."""
        ...

    def reload(self) -> None:
        """Read users, token keys and rules again; what is wrong is kept as it was."""
        ...

    def sync(self) -> None:
        """Write to disk what is committed; called in any thread."""
        ...

    def free_dead_readers(self) -> None:
        """A process which may have read a store has ended."""
        ...


class Serving:
    """The `Node` which is alone."""

    def __init__(
        self, place: Place, store: LmdbStore, committer: Committer | None = None, shard: int = 0
    ) -> None:
        self._place = place
        self._stack = contextlib.ExitStack()
        self._renewing: asyncio.Future[None] | None = None  # only held, so that it lives
        self._is_lost = False
        self.broker = Broker(place.settings, store, asyncio.get_running_loop(), committer)
        placing = place.settings.cluster.placing
        if placing is not None:
            self.broker.queues.placing = placing
            self.broker.queues.settings = of_shard(place.settings.queues, placing, shard)
        self._answers = Operations(
            self.broker, place.addresses, place.child_restarts, place.origins, place.audit
        )
        self._answers.backups.on_end = store.free_dead_readers
        self.operations: Mapping[str, Operation] = self._answers.table()
        self.store = store

    async def start(self) -> None:
        self._trace()
        self.broker.start()
        await self.broker.queues.quorum.wake_deep()
        SysTopics(self.broker, self._place.settings.sys.interval_s).start()

    def _trace(self) -> None:
        settings = self._place.settings.otel
        if not settings.enabled:
            return
        try:
            from queuelake.broker.trace_export import TraceExport
        except ImportError:
            mistake = "otel.enabled: traces need more packages; pip install 'queuelake[otel]'"
            raise ConfigError([mistake]) from None
        export = TraceExport(settings)
        self._stack.callback(export.close)
        tracer = self.broker.queues.tracer = Tracer(export, settings.sample_ratio)
        self._stack.callback(tracer.close)

    def protocol(self, listener: str) -> ClientProtocol:
        return Connection(self.broker, listener)

    def table(self, own: Mapping[str, Operation]) -> Mapping[str, Operation]:
        return {**dict.fromkeys(OF_CLUSTERS, _refuse), **self.operations, **own}

    def reload(self) -> None:
        for name, reload in (
            ("users", self.broker.authenticator.reload),
            ("rules", self.broker.permissions.reload),
        ):
            try:
                reload()
                log.info("%s read again", name)
            except ConfigError as error:
                for mistake in error.mistakes:
                    log.error("%s kept as it was: %s", name, mistake)
        self._renewing = asyncio.ensure_future(self.broker.permissions.renew())

    def sync(self) -> None:
        self.store.sync()

    def free_dead_readers(self) -> None:
        self.store.free_dead_readers()

    async def stop(self) -> None:
        """Tell every client, and write what is left."""
        await self._answers.backups.close()
        timeout_s = self._place.settings.shutdown_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self.broker.stop(is_lost=self._is_lost)
        except TimeoutError:
            log.error("not everything was written within %s s", timeout_s)
        self._stack.close()

    def fail(self, why: str) -> None:
        """Nothing it has can be written any more: `stop` need not wait for that."""
        self._is_lost = True
        self.broker.runner.failure = why


def of_shard(queues: Queues, placing: Placing, shard: int) -> Queues:
    """Of several shards each makes the queues of the configuration which belong to it; dead letters
    may come to be in any."""
    named = {
        name: tree
        for name, tree in queues.named.items()
        if names.is_dead_letter(name) or placing.of_queue(name) == shard
    }
    return msgspec.structs.replace(queues, named=named)


def _refuse(_: dict[str, object]) -> object:
    raise NotFoundError("this broker is not part of a cluster")
