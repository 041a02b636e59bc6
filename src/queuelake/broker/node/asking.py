"""The brokers of all shards, asked one by one, together, or whichever has what is meant."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from queuelake.errors import BrokerDownError, NotFoundError, QueuelakeError
from queuelake.placing import Placing

T = TypeVar("T")
Args = dict[str, object]


class Node(Protocol):
    """What is needed of a node."""

    @property
    def shards(self) -> int: ...
    @property
    def placing(self) -> Placing: ...
    def owner(self, shard: int) -> str: ...
    async def ask(self, shard: int, name: str, args: Args, kind: type[T]) -> T: ...


class Brokers:
    def __init__(self, node: Node) -> None:
        self._node = node
        self.placing = node.placing
        self.shards = range(node.shards)

    async def one(self, shard: int, name: str, args: Args, kind: type[T]) -> T:
        """
        Raises:
            BrokerDownError: nobody owns this shard.
        """
        self._check_owner(shard)
        return await self._node.ask(shard, name, args, kind)

    async def all(self, name: str, args: Args, kind: type[T]) -> list[T]:
        """Every broker; it is an error when one cannot answer."""
        found = await self.some(self.shards, name, args, kind, lambda error: False)
        return list(found.values())

    async def found(self, name: str, args: Args, kind: type[T]) -> dict[int, T]:
        """Those which have what is meant, by shard.

        Raises:
            NotFoundError: none has it, in the words of one.
        """
        found = await self.some(self.shards, name, args, kind, is_missing)
        return found or {0: await self.one(0, name, args, kind)}

    async def change(self, first: int, name: str, args: Args, kind: type[T]) -> list[T]:
        """Have something done everywhere, beginning with one: what it refuses nobody does. Those
        which do not have what is meant do not count, unless it is all of them."""
        self.check_owners()
        others = [shard for shard in self.shards if shard != first]
        done = await self.some([first], name, args, kind, is_missing)
        done |= await self.some(others, name, args, kind, is_missing)
        return list(done.values()) or [await self.one(first, name, args, kind)]

    async def some(
        self,
        shards: Iterable[int],
        name: str,
        args: Args,
        kind: type[T],
        passes: Callable[[QueuelakeError], bool],
    ) -> dict[int, T]:
        """Ask these together; an error which passes is no answer. All are done when this is."""
        asked = {shard: self.one(shard, name, args, kind) for shard in shards}
        answers = await asyncio.gather(*asked.values(), return_exceptions=True)
        found: dict[int, T] = {}
        for shard, answer in zip(asked, answers, strict=True):
            if isinstance(answer, QueuelakeError) and passes(answer):
                continue
            if isinstance(answer, BaseException):
                raise answer
            found[shard] = answer
        return found

    def check_owners(self) -> None:
        """Before something is begun which all have to do."""
        for shard in self.shards:
            self._check_owner(shard)

    def _check_owner(self, shard: int) -> None:
        if not self._node.owner(shard):
            raise BrokerDownError(f"shard {shard} has no owner at the moment; try again")


def is_missing(error: QueuelakeError) -> bool:
    """What is meant is not there, as far as this broker knows."""
    return error.http_status == NotFoundError.http_status
