"""Nodes of a cluster on real NATS servers, and what their tests share."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from queuelake.cluster.engine import (
    ConflictingWriteError,
    Log,
    UnavailableError,
    UnknownOutcomeError,
)
from queuelake.cluster.nats_engine import NatsEngine
from queuelake.cluster_settings import ClusterConfig

T = TypeVar("T")

PATIENCE_S = 40.0


def config(urls: list[str], name: str, node: str = "a", **fields: Any) -> ClusterConfig:
    return ClusterConfig(enabled=True, name=name, node=node, urls=urls, **fields)


class Nodes:
    """Engines which are closed at the end of a test: `async with Nodes() as nodes`."""

    def __init__(self) -> None:
        self._engines: list[NatsEngine] = []

    async def __aenter__(self) -> Nodes:
        return self

    async def __aexit__(self, *error: object) -> None:
        for engine in self._engines:
            await engine.close()

    async def join(self, urls: list[str], name: str, node: str = "a", **fields: Any) -> NatsEngine:
        engine = await NatsEngine.connect(config(urls, name, node, **fields))
        self._engines.append(engine)
        return engine


async def patiently(action: Callable[[], Awaitable[T]]) -> T:
    """Try until the servers have what it needs: a leader, or enough of them."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await action()
            except UnavailableError:
                await asyncio.sleep(0.05)


async def read_all(log: Log) -> list[bytes]:
    """Everything up to the end the leader knows, however far behind the nearest copy is."""
    first, last = await patiently(log.ends)
    values: list[bytes] = []
    async with asyncio.timeout(PATIENCE_S):
        while first + len(values) <= last:
            position = first + len(values)
            values += await patiently(functools.partial(log.read, position, 64))
    return values


async def until(happened: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what other processes do, of which nobody tells us."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if await happened():
                return
            await asyncio.sleep(0.01)


async def append_once(log: Log, value: bytes, after: int) -> tuple[int, bool]:
    """Append a value nobody else has, and find out what became of it; True when it was unknown."""
    doubt = False
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await log.append([value], after), doubt
            except UnknownOutcomeError:
                doubt = True
                await asyncio.sleep(0.02)
            except ConflictingWriteError:
                assert doubt, "nobody else appends"
                found = await patiently(lambda: log.read(after + 1, 1))
                if found:
                    assert found == [value]
                    return after + 1, doubt
