"""What each node of a cluster answers itself: about the cluster, and about its process."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from queuelake import __version__
from queuelake import control_cluster as ops
from queuelake.broker.compiled import is_compiled
from queuelake.broker.node import choosing, overview
from queuelake.broker.node.member import Member
from queuelake.broker.node.roster import ALIVE_S
from queuelake.broker.node.shard_operations import NO_HEIR
from queuelake.broker.operation import Operation
from queuelake.broker.operations import by_listener
from queuelake.broker.process_figures import read_process_figures
from queuelake.cluster.engine import EngineError
from queuelake.control import MetricsSnapshot, Readiness, Status
from queuelake.control_cluster import (
    Checked,
    ClusterFigures,
    ClusterInfo,
    Drained,
    Rebalanced,
    ShardInfo,
    Transferred,
)
from queuelake.errors import ConflictError, NotFoundError, QueuelakeError, RefusedError

if TYPE_CHECKING:
    from queuelake.broker.node.node import Node

STATUS_TIMEOUT_S: Final = 2.0  # less than whoever asks waits for
GONE: Final = "gone"  # subject: a node which was removed

T = TypeVar("T")


class NodeOperations:
    def __init__(self, node: Node) -> None:
        self._node = node

    async def start(self) -> None:
        await self._node.engine.messenger.receive(GONE, self._gone_heard)

    def table(self) -> dict[str, Operation]:
        return {
            "readiness": self.readiness,
            "status": self.status,
            "metrics": self.metrics,
            ops.CLUSTER: self.cluster,
            ops.CLUSTER_TRANSFER: self.transfer,
            ops.CLUSTER_REBALANCE: self.rebalance,
            ops.CLUSTER_DRAIN: self.drain,
            ops.CLUSTER_REMOVE: self.remove,
            ops.CLUSTER_CHECK: self.check,
        }

    # How it is

    async def readiness(self, args: dict[str, object]) -> Readiness:
        """Whether clients should come here: brokers which serve, or a way to them."""
        node = self._node
        problems: list[str] = []
        if not node.engine.connected:
            problems.append("cluster: no connection to NATS")
        if node.draining:
            problems.append("cluster: this node is being drained")
        for member in node.members:
            of_shard = "" if node.shards == 1 else f" of shard {member.shard}"
            if member.serving is not None:
                problems += (await member.ask("readiness", args, Readiness)).reasons
            elif not member.owner():
                problems.append(f"cluster: there is no owner{of_shard} at the moment")
            if member.following.problem:
                problems.append(f"cluster{of_shard}: {member.following.problem}")
        return Readiness(not problems, list(dict.fromkeys(problems)))

    async def status(self, args: dict[str, object]) -> Status:
        """The addresses and the age of this node, with what the owners count, if they answer."""
        node = self._node
        if node.shards == 1 and node.members[0].serving is not None:
            return await node.ask(0, "status", args, Status)
        now_s = time.time()
        own = Status(
            version=__version__,
            compiled=is_compiled(),
            started_at_ms=int(node.started_at_s * 1000),
            uptime_s=now_s - node.started_at_s,
            addresses=by_listener(node.place.addresses),
        )
        try:
            async with asyncio.timeout(STATUS_TIMEOUT_S):
                asked = [member.ask("status", args, Status) for member in node.members]
                found = _total(await asyncio.gather(*asked))
        except (QueuelakeError, TimeoutError):
            return own
        counted = ("connections", "sessions", "subscriptions", "retained_messages")
        return msgspec.structs.replace(own, **{name: getattr(found, name) for name in counted})

    async def metrics(self, args: dict[str, object]) -> MetricsSnapshot:
        """Of the shards this node owns, and of its process: what is elsewhere is told there."""
        node = self._node
        owned = [member for member in node.members if member.serving is not None]
        if owned:
            asked = [member.ask("metrics", args, MetricsSnapshot) for member in owned]
            snapshot = _total(await asyncio.gather(*asked))
        else:
            snapshot = await self._replica_metrics()
        if node.shards > 1:
            ready = (await self.readiness({})).ready
            fullest = await asyncio.to_thread(self._fullest_store)
            snapshot = msgspec.structs.replace(snapshot, ready=ready, **fullest)
            snapshot = self._clients_once(snapshot)
        return msgspec.structs.replace(snapshot, cluster=self.figures())

    def _clients_once(self, snapshot: MetricsSnapshot) -> MetricsSnapshot:
        """Every client is known in every shard: told are those connected to this node, and what the
        owner of the first shard knows of all, so that sums over nodes are right."""
        counts: dict[str, Any] = {"connections": self._node.clients_here()}
        if self._node.members[0].serving is None:
            counts |= dict.fromkeys(("sessions", "sessions_persistent", "subscriptions"), 0)
            counts |= {"connects": 0, "disconnects_by_reason": {}, "logins_refused_by_reason": {}}
        return msgspec.structs.replace(snapshot, **counts)

    def _fullest_store(self) -> dict[str, int]:
        """Each shard has a store with the same limit: what counts is who is nearest to it."""
        stores = [member.store for member in self._node.members]
        sizes = [(*store.size_bytes(), store.free_bytes()) for store in stores]
        used, mapped, free = max(sizes, key=lambda size: size[0] - size[2])
        return {
            "store_bytes": used,
            "store_map_bytes": mapped,
            "store_free_bytes": free,
            "store_bytes_max": self._node.place.settings.storage.map_size_bytes_max,
        }

    async def _replica_metrics(self) -> MetricsSnapshot:
        node = self._node
        place = node.place
        store = node.members[0].store
        process = await asyncio.to_thread(read_process_figures, str(place.data_dir), store)
        used, mapped = store.size_bytes()
        return MetricsSnapshot(
            version=__version__,
            compiled=is_compiled(),
            ready=(await self.readiness({})).ready,
            started_at_s=node.started_at_s,
            store_bytes=used,
            store_map_bytes=mapped,
            store_free_bytes=process.store_free_bytes,
            store_bytes_max=place.settings.storage.map_size_bytes_max,
            disk_free_bytes=process.disk_free_bytes,
            resident_memory_bytes=process.resident_bytes,
            cpu_s=process.cpu_s,
            open_files=process.open_files,
            open_files_max=process.open_files_max,
            child_restarts=dict(place.child_restarts),
        )

    def figures(self) -> list[ClusterFigures]:
        return [_figures(member) for member in self._node.members]

    async def cluster(self, _: dict[str, object]) -> ClusterInfo:
        node = self._node
        return ClusterInfo(
            node.config.name,
            node.name,
            node.engine.connected,
            overview.members([member.roster.all() for member in node.members]),
            await asyncio.gather(*[_shard(member) for member in node.members]),
        )

    # What can be done

    async def transfer(self, args: dict[str, object]) -> Transferred:
        """Make another node the owner of a shard; answers when it is."""
        return await self._transfer(self._shard_of(args), str(args.get("node", "")))

    async def _transfer(self, shard: int, node: str) -> Transferred:
        return await self._node.ask(shard, ops.CLUSTER_TRANSFER, {"node": node}, Transferred)

    def _shard_of(self, args: dict[str, object]) -> int:
        shards = self._node.shards
        shard = args.get("shard")
        if shard is None and shards == 1:
            return 0
        if not isinstance(shard, int) or not 0 <= shard < shards:
            raise RefusedError(f"shard is {shard!r}, may be 0 to {shards - 1}")
        return shard

    async def rebalance(self, _: dict[str, object]) -> Rebalanced:
        """Give each node as many shards as the others, all at once: clients are cut once."""
        node = self._node
        owners = [member.owner() for member in node.members]
        able = [set(choosing.fit(member.roster.alive())) for member in node.members]
        wanted = choosing.moves(owners, set.intersection(*able))
        moves = [self._transfer(shard, heir) for shard, heir in wanted]
        ended = await asyncio.gather(*moves, return_exceptions=True)
        for one in ended:
            if isinstance(one, BaseException):
                raise one
        return Rebalanced([one for one in ended if isinstance(one, Transferred)])

    async def drain(self, args: dict[str, object]) -> Drained:
        """Let this node not be the owner of anything; `draining` false ends that."""
        node = self._node
        wanted = args.get("draining", True)
        if not isinstance(wanted, bool):
            raise RefusedError(f"draining is {wanted!r}, may be true or false")
        owned = [member for member in node.members if member.serving is not None]
        if wanted and not all([member.best_heir() for member in owned]):
            raise ConflictError(NO_HEIR)
        node.draining = wanted
        for member in node.members:
            member.heart.tell()  # now: nobody shall hand over to it, or count on it
        if wanted:
            await asyncio.gather(*[member.hand_over("") for member in node.members])
        return Drained(node.name, wanted)

    def remove(self, args: dict[str, object]) -> bool:
        """Forget a node which will not come back, at all nodes: the logs are not kept for it."""
        gone = str(args.get("node", ""))
        if self._is_alive(gone):
            raise ConflictError(f"node {gone!r} was heard within {ALIVE_S:g} s; stop it first")
        if not self._forget(gone):
            raise NotFoundError(f"there is no node {gone!r}")
        self._node.engine.messenger.send(GONE, gone.encode())
        return True

    def _gone_heard(self, data: bytes) -> None:
        gone = data.decode()
        if not self._is_alive(gone):  # it came back meanwhile
            self._forget(gone)

    def _is_alive(self, node: str) -> bool:
        return any([member.roster.is_alive(node) for member in self._node.members])

    def _forget(self, node: str) -> bool:
        return any([member.roster.forget(node) for member in self._node.members])

    async def check(self, args: dict[str, object]) -> Checked:
        """Compare the stores of all nodes, those of each shard at one position of its log."""
        asked = [member.ask(ops.CLUSTER_CHECK, args, Checked) for member in self._node.members]
        return overview.checked(await asyncio.gather(*asked))


def _total(parts: list[T]) -> T:
    if len(parts) == 1:
        return parts[0]
    from queuelake.broker.node.summing import total

    return total(parts)


def _figures(member: Member) -> ClusterFigures:
    reports = member.roster.alive()
    furthest = max([one.position for one in reports], default=0)
    return ClusterFigures(
        shard=member.shard,
        is_owner=member.serving is not None,
        epoch=member.replica.applied.epoch,
        position=member.replica.applied.position,
        lag_by_node={one.node: furthest - one.position for one in reports},
        lease_age_s=member.lease_age_s(),
        failovers=member.failovers,
        fenced=member.fenced,
        copies=member.following.copies,
    )


async def _shard(member: Member) -> ShardInfo:
    try:
        first, last = await member.log.ends()
        size = await member.log.size_bytes()
    except EngineError:
        first, last, size = 0, 0, 0
    owner, epoch = member.owner(), member.epoch()
    return ShardInfo(member.shard, owner, epoch, member.lease_age_s(), first, last, size)
