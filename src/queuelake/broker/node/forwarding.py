"""Operations which only the owner can do, asked for at another node: passed on through a tunnel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar

from queuelake.broker.control import ControlServer
from queuelake.broker.operation import Operation
from queuelake.cluster.tunnels import Tunnels
from queuelake.control_client import Calls, Streams
from queuelake.control_pipeline import COMMIT_STAGE, STAGE_LETTERS, STAGE_TARGET
from queuelake.errors import BrokerDownError, ConflictError

KIND: Final = "control"
TIMEOUT_S: Final = 60.0  # who asked at first has a shorter one
# They are about files in the data directory of the node which was asked.
STAGING: Final = frozenset((STAGE_TARGET, STAGE_LETTERS, COMMIT_STAGE))

T = TypeVar("T")


class Forwarding:
    def __init__(self, tunnels: Tunnels, owner: Callable[[], str], shard: int) -> None:
        self._tunnels = tunnels
        self._owner = owner
        self._shard = shard
        self._calls: dict[str, Calls] = {}

    def operation(self, name: str) -> Operation:
        """What does this operation wherever the owner is."""

        async def ask(args: dict[str, object]) -> object:
            node = self._owner()
            if node and name in STAGING:
                words = f"rows are written at the owner, node {node}; this is another one"
                raise ConflictError(words)
            return await self.ask(name, args, object)

        return ask

    async def ask(self, name: str, args: dict[str, object], kind: type[T]) -> T:
        node = self._owner()
        if not node:
            raise BrokerDownError("the cluster has no owner at the moment; try again")
        return await self._to(node).call(name, kind, args, TIMEOUT_S)

    def _to(self, node: str) -> Calls:
        calls = self._calls.get(node)
        if calls is None:

            async def connect() -> Streams:
                return self._open(node)

            calls = self._calls[node] = Calls(connect, f"owner answers at node {node}", TIMEOUT_S)
        return calls

    def _open(self, node: str) -> Streams:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport = self._tunnels.open(node, KIND, {"shard": self._shard}, protocol)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def close(self) -> None:
        for calls in self._calls.values():
            await calls.close()


def answering(data_dir: Path, table: Mapping[str, Operation]) -> asyncio.Protocol:
    """The owner's side of such a tunnel. What is changed is audited where it was asked for."""
    reader = asyncio.StreamReader()
    return asyncio.StreamReaderProtocol(reader, ControlServer(data_dir, table).serve)


class Owners(Mapping[str, Operation]):
    """What the owner answers to another node, whose tunnel may last longer than a broker: who is
    the owner again by then answers as the broker it is now."""

    def __init__(self, brokers: Callable[[], Mapping[str, Operation] | None]) -> None:
        self._brokers = brokers

    def __getitem__(self, name: str) -> Operation:
        table = self._brokers()
        if table is None:
            raise BrokerDownError("this node is not the owner any more; try again")
        return table[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._brokers() or {})

    def __len__(self) -> int:
        return len(self._brokers() or {})


class Table(Mapping[str, Operation]):
    """The operations of a node: its own, those of its broker while it has one, else the owner's."""

    def __init__(
        self,
        own: Mapping[str, Operation],
        brokers: Callable[[], Mapping[str, Operation] | None],
        forwarding: Forwarding,
    ) -> None:
        self._own = own
        self._brokers = brokers
        self._forwarding = forwarding

    def __getitem__(self, name: str) -> Operation:
        if name in self._own:
            return self._own[name]
        table = self._brokers()
        return self._forwarding.operation(name) if table is None else table[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from self._brokers() or {}

    def __len__(self) -> int:
        return len(list(iter(self)))
