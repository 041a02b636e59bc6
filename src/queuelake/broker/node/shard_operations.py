"""What the owner of a shard does for all nodes: give it to another one, compare its stores."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import TYPE_CHECKING, Final

import msgspec

from queuelake import control_cluster as ops
from queuelake.broker.operation import Operation
from queuelake.control_cluster import Checked, Transferred
from queuelake.errors import BrokerDownError, ConflictError, NotFoundError

if TYPE_CHECKING:
    from queuelake.broker.node.member import Member

# Less than whoever asks waits for.
CHECK_TIMEOUT_S: Final = 50.0
TRANSFER_TIMEOUT_S: Final = 30.0
NO_HEIR: Final = "no other node can be the owner now: none is alive, in order and not draining"
HASHES: Final = "hashes"  # subject: check id, node, position, digest


class Hash(msgspec.Struct, frozen=True, array_like=True):
    """What one replica answers to a check."""

    check: bytes
    node: str
    position: int
    digest: bytes


class ShardOperations:
    def __init__(self, member: Member) -> None:
        self._member = member
        self._checks: dict[bytes, dict[str, Hash]] = {}
        self._news = asyncio.Event()  # somebody told its hash

    async def start(self) -> None:
        await self._member.messenger.receive(HASHES, self._hash_heard)

    def table(self) -> dict[str, Operation]:
        return {ops.CLUSTER_TRANSFER: self.transfer, ops.CLUSTER_CHECK: self.check}

    async def transfer(self, args: dict[str, object]) -> Transferred:
        """Make another node the owner; answers when it is."""
        member = self._member
        node = str(args.get("node", ""))
        if node == member.name:
            return Transferred(member.shard, node)
        if node:
            heir = next((one for one in member.roster.alive() if one.node == node), None)
            if heir is None:
                raise NotFoundError(f"there is no node {node!r} which is alive")
            if heir.draining or heir.role != "replica":
                state = "draining" if heir.draining else heir.role
                raise ConflictError(f"node {node!r} is {state}: it cannot become the owner")
        elif not member.best_heir():
            raise ConflictError(NO_HEIR)
        member.spawn(member.hand_over(node))
        try:
            async with asyncio.timeout(TRANSFER_TIMEOUT_S):
                await member.owner_after(member.name)
        except TimeoutError:
            words = f"no other node became the owner within {TRANSFER_TIMEOUT_S:g} s"
            raise BrokerDownError(words) from None
        return Transferred(member.shard, member.owner())

    async def check(self, _: dict[str, object]) -> Checked:
        """Compare the stores of all nodes at one position of the log."""
        member = self._member
        if member.committer is None:
            raise ConflictError("this node is not the owner any more; ask again")
        check = secrets.token_bytes(8)
        expected = {one.node for one in member.roster.alive()}
        found = self._checks[check] = {}
        member.committer.check(check)
        news = self._news
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                while not expected <= found.keys():
                    news.clear()
                    await news.wait()
                    expected &= {one.node for one in member.roster.alive()}
        del self._checks[check]
        hashes = {node: one.digest.hex() for node, one in sorted(found.items())}
        position = max([one.position for one in found.values()], default=0)
        equal = bool(hashes) and len(set(hashes.values())) == 1
        return Checked(position, equal, hashes, sorted(expected - found.keys()))

    def hashed(self, check: bytes, position: int, digest: bytes) -> None:
        """This node has computed its own."""
        one = Hash(check, self._member.name, position, digest)
        self._note(one)
        self._member.messenger.send(HASHES, msgspec.msgpack.encode(one))

    def _hash_heard(self, data: bytes) -> None:
        self._note(msgspec.msgpack.decode(data, type=Hash))

    def _note(self, one: Hash) -> None:
        found = self._checks.get(one.check)
        if found is not None:
            found[one.node] = one
            self._news.set()
