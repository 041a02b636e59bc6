"""What each node of a cluster answers itself: about the cluster, and about its process."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from typing import TYPE_CHECKING, Final, cast

import msgspec

from queuelake import __version__
from queuelake import control_cluster as ops
from queuelake.broker.compiled import is_compiled
from queuelake.broker.node.roster import ALIVE_S, Report
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
    MemberInfo,
    Rebalanced,
    Role,
    ShardInfo,
    Transferred,
)
from queuelake.errors import (
    BrokerDownError,
    ConflictError,
    NotFoundError,
    QueuelakeError,
    RefusedError,
)

if TYPE_CHECKING:
    from queuelake.broker.node.member import Member

# Less than whoever asks waits for.
CHECK_TIMEOUT_S: Final = 50.0
STATUS_TIMEOUT_S: Final = 2.0
TRANSFER_TIMEOUT_S: Final = 30.0
NO_HEIR: Final = "no other node can be the owner now: none is alive, in order and not draining"
GONE: Final = "gone"  # subject: a node which was removed
HASHES: Final = "hashes"  # subject: check id, node, position, digest


class Hash(msgspec.Struct, frozen=True, array_like=True):
    """What one replica answers to a check."""

    check: bytes
    node: str
    position: int
    digest: bytes


class NodeOperations:
    def __init__(self, member: Member) -> None:
        self._member = member
        self._checks: dict[bytes, dict[str, Hash]] = {}
        self._news = asyncio.Event()  # somebody told its hash

    async def start(self) -> None:
        messenger = self._member.engine.messenger
        await messenger.receive(HASHES, self._hash_heard)
        await messenger.receive(GONE, self._gone_heard)

    def own(self) -> dict[str, Operation]:
        """Answered by every node for itself."""
        return {
            "readiness": self.readiness,
            "status": self.status,
            "metrics": self.metrics,
            ops.CLUSTER: self.cluster,
            ops.CLUSTER_DRAIN: self.drain,
            ops.CLUSTER_REMOVE: self.remove,
        }

    def owners(self) -> dict[str, Operation]:
        """Answered by the owner."""
        return {
            ops.CLUSTER_TRANSFER: self.transfer,
            ops.CLUSTER_REBALANCE: self.rebalance,
            ops.CLUSTER_CHECK: self.check,
        }

    # How it is

    async def readiness(self, args: dict[str, object]) -> object:
        """Whether clients should come here: a broker which serves, or a way to one."""
        member = self._member
        problems: list[str] = []
        if not member.engine.connected:
            problems.append("cluster: no connection to NATS")
        if member.draining:
            problems.append("cluster: this node is being drained")
        if member.serving is not None:
            readiness = cast(Readiness, member.serving.operations["readiness"](args))
            problems += readiness.reasons
        else:
            owner = member.owner()
            if not owner:
                problems.append("cluster: there is no owner at the moment")
            elif not member.roster.is_alive(owner):
                problems.append(f"cluster: the owner {owner} is not heard")
        if member.following.problem:
            problems.append(f"cluster: {member.following.problem}")
        return Readiness(not problems, problems)

    async def status(self, args: dict[str, object]) -> Status:
        """Of a replica its addresses and its age, with what the owner counts, if it answers."""
        member = self._member
        if member.serving is not None:
            return cast(Status, self._brokers("status", args))
        now_s = time.time()
        own = Status(
            version=__version__,
            compiled=is_compiled(),
            started_at_ms=int(member.started_at_s * 1000),
            uptime_s=now_s - member.started_at_s,
            addresses=by_listener(member.place.addresses),
        )
        try:
            async with asyncio.timeout(STATUS_TIMEOUT_S):
                found = await member.forwarding.ask("status", args, Status)
        except (QueuelakeError, TimeoutError):
            return own
        counted = ("connections", "sessions", "subscriptions", "retained_messages")
        return msgspec.structs.replace(own, **{name: getattr(found, name) for name in counted})

    async def metrics(self, args: dict[str, object]) -> MetricsSnapshot:
        """Of a replica only what is its own: the owner tells of queues and clients."""
        member = self._member
        if member.serving is not None:
            snapshot = await cast("asyncio.Future[MetricsSnapshot]", self._brokers("metrics", args))
        else:
            snapshot = await self._replica_metrics()
        return msgspec.structs.replace(snapshot, cluster=self.figures())

    def _brokers(self, name: str, args: dict[str, object]) -> object:
        assert self._member.serving is not None
        return self._member.serving.operations[name](args)

    async def _replica_metrics(self) -> MetricsSnapshot:
        member = self._member
        process = await asyncio.to_thread(
            read_process_figures, str(member.place.data_dir), member.store
        )
        used, mapped = member.store.size_bytes()
        readiness = cast(Readiness, await self.readiness({}))
        return MetricsSnapshot(
            version=__version__,
            compiled=is_compiled(),
            ready=readiness.ready,
            started_at_s=member.started_at_s,
            store_bytes=used,
            store_map_bytes=mapped,
            store_free_bytes=process.store_free_bytes,
            store_bytes_max=member.place.settings.storage.map_size_bytes_max,
            disk_free_bytes=process.disk_free_bytes,
            resident_memory_bytes=process.resident_bytes,
            cpu_s=process.cpu_s,
            open_files=process.open_files,
            open_files_max=process.open_files_max,
            child_restarts=dict(member.place.child_restarts),
        )

    def figures(self) -> ClusterFigures:
        member = self._member
        reports = member.roster.alive()
        furthest = max([one.position for one in reports], default=0)
        return ClusterFigures(
            is_owner=member.serving is not None,
            epoch=member.replica.applied.epoch,
            position=member.replica.applied.position,
            lag_by_node={one.node: furthest - one.position for one in reports},
            lease_age_s=member.lease_age_s(),
            failovers=member.failovers,
            fenced=member.fenced,
            copies=member.following.copies,
        )

    async def cluster(self, _: dict[str, object]) -> ClusterInfo:
        member = self._member
        heard = member.roster.all()
        furthest = max([report.position for report, _ in heard], default=0)
        return ClusterInfo(
            member.config.name,
            member.name,
            member.engine.connected,
            [_member_info(report, ago_s, furthest) for report, ago_s in heard],
            [await self._shard()],
        )

    async def _shard(self) -> ShardInfo:
        member = self._member
        try:
            first, last = await member.log.ends()
            size = await member.log.size_bytes()
        except EngineError:
            first, last, size = 0, 0, 0
        return ShardInfo(0, member.owner(), member.epoch(), member.lease_age_s(), first, last, size)

    # What can be done

    async def transfer(self, args: dict[str, object]) -> Transferred:
        """Make another node the owner; answers when it is."""
        member = self._member
        node = str(args.get("node", ""))
        if node == member.name:
            return Transferred(0, node)
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
        return Transferred(0, member.owner())

    def rebalance(self, _: dict[str, object]) -> Rebalanced:
        """Give each node as many shards as the others: of one shard there is nothing to move."""
        return Rebalanced([])

    async def drain(self, args: dict[str, object]) -> Drained:
        """Let this node not be the owner; `draining` false ends that."""
        member = self._member
        wanted = args.get("draining", True)
        if not isinstance(wanted, bool):
            raise RefusedError(f"draining is {wanted!r}, may be true or false")
        if wanted and member.serving is not None and not member.best_heir():
            raise ConflictError(NO_HEIR)
        member.draining = wanted
        member.heart.tell()  # now: nobody shall hand over to it, or count on it
        if wanted:
            await member.hand_over("")
        return Drained(member.name, wanted)

    def remove(self, args: dict[str, object]) -> bool:
        """Forget a node which will not come back, at all nodes: the log is not kept for it."""
        node = str(args.get("node", ""))
        member = self._member
        if member.roster.is_alive(node):
            raise ConflictError(f"node {node!r} was heard within {ALIVE_S:g} s; stop it first")
        if not member.roster.forget(node):
            raise NotFoundError(f"there is no node {node!r}")
        member.engine.messenger.send(GONE, node.encode())
        return True

    def _gone_heard(self, data: bytes) -> None:
        node = data.decode()
        if not self._member.roster.is_alive(node):  # it came back meanwhile
            self._member.roster.forget(node)

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
        self._member.engine.messenger.send(HASHES, msgspec.msgpack.encode(one))

    def _hash_heard(self, data: bytes) -> None:
        self._note(msgspec.msgpack.decode(data, type=Hash))

    def _note(self, one: Hash) -> None:
        found = self._checks.get(one.check)
        if found is not None:
            found[one.node] = one
            self._news.set()


def _member_info(report: Report, ago_s: float, furthest: int) -> MemberInfo:
    return MemberInfo(
        report.node,
        cast(Role, report.role),
        ago_s < ALIVE_S,
        round(ago_s, 3),
        report.position,
        furthest - report.position,
        report.synced,
        report.version,
        report.addresses,
        report.draining,
        report.problem,
    )
