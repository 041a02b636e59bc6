"""The life of a node in a cluster: it follows the log, owns it for a while, and follows again.

    following --- the lease is ours, the log is read to its end ---> owning
    owning ------ the lease is lost, an append is not ours ---------> following
    following --- the log does not reach back so far --------------> copying ---> following

Only one of the follower, the copier and the broker's committer writes to the store at a time: each
has ended before the next one begins.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from queuelake.broker.committer import CommitThread
from queuelake.broker.connection import Connection
from queuelake.broker.listener import ClientProtocol
from queuelake.broker.node import forwarding
from queuelake.broker.node.following import AGAIN_S, Following
from queuelake.broker.node.heart import Heart
from queuelake.broker.node.news import News
from queuelake.broker.node.operations import NodeOperations
from queuelake.broker.node.roster import Roster
from queuelake.broker.node.unserved import last_words
from queuelake.broker.operation import Operation
from queuelake.broker.serving import Place, Serving
from queuelake.cluster.committer import ReplicatedCommitter
from queuelake.cluster.copying import KIND as STORE
from queuelake.cluster.copying import StoreCopies
from queuelake.cluster.engine import Log
from queuelake.cluster.follower import Follower
from queuelake.cluster.nats_engine import NatsEngine
from queuelake.cluster.ownership import Ownership
from queuelake.cluster.relay import KIND as CLIENT
from queuelake.cluster.relay import Relays
from queuelake.cluster.replica import Position, Replica
from queuelake.cluster.taking_over import take_over
from queuelake.cluster.tunnels import Tunnels
from queuelake.storage.lmdb_store import LmdbStore

log = logging.getLogger("queuelake.node")

SHARD: Final = 0
THREADS: Final = 4

T = TypeVar("T")


class Member:
    """One node. Make it with `join`."""

    def __init__(
        self, place: Place, open_store: Callable[[], LmdbStore], engine: NatsEngine, shard_log: Log
    ) -> None:
        self.place = place
        self.open_store = open_store
        self.store = store = open_store()
        self.engine = engine
        self.log = shard_log
        self.config = place.settings.cluster
        self.name = self.config.node_name
        self.started_at_s = time.time()
        self.serving: Serving | None = None
        self.committer: ReplicatedCommitter | None = None
        self.draining = False
        self.failovers = 0
        self.fenced = 0
        self.heart = Heart(self)
        self.roster = Roster(engine.messenger, time.monotonic, self._owner_changed, self._met)
        self.news = News(engine.messenger)
        self.operations = NodeOperations(self)
        self._threads = ThreadPoolExecutor(THREADS, "node")
        self.following = Following(self)
        with store.view() as view:
            self.replica = Replica(Position.read(view))
        self.follower = self._new_follower()
        self.store_copies = StoreCopies(place.data_dir, self._free_dead_readers)
        self.tunnels = Tunnels(
            engine.messenger,
            {
                CLIENT: self._accept_client,
                forwarding.KIND: self._accept_control,
                STORE: self.store_copies.accept,
            },
        )
        self.relays = Relays(self.tunnels, self.owner, last_words=last_words)
        self.forwarding = forwarding.Forwarding(self.tunnels, self.owner)
        self.ownership: Ownership | None = None
        self._owner_news = asyncio.Event()  # another one each time
        self._leaving: Serving | None = None  # the broker which is being stopped
        self._changing = asyncio.Lock()  # between following and owning
        self._tasks: list[asyncio.Task[None]] = []
        self._background: set[asyncio.Task[None]] = set()

    def _new_follower(self) -> Follower:
        return Follower(
            self.log,
            self.store,
            self.replica,
            self.in_thread,
            on_check=self.operations.hashed,
        )

    def in_thread(self, work: Callable[[], T], /) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, work)

    # Beginning and end

    async def start(self) -> None:
        leases = await self.engine.leases(SHARD)
        messenger = self.engine.messenger
        await self.tunnels.start()
        await self.roster.start()
        await self.news.hear(self._told)
        await self.operations.start()
        self.ownership = Ownership(
            leases,
            messenger,
            self.name,
            self.config.lease_ms / 1000,
            time.monotonic,
            random.Random(),
            fit=self._is_fit,
            take_over=self._take_over,
            lost=self._lost_lease,
        )
        self.following.start()
        self._tasks = [
            asyncio.create_task(self._for_ever("ownership", self.ownership.run)),
            asyncio.create_task(self._for_ever("the heart of this node", self.heart.beat)),
        ]

    async def _for_ever(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """What must not end: when it failed, this node says so and gives up what it owns."""
        while True:
            try:
                await work()
            except Exception as error:
                log.exception("%s", name)
                self._lost_log(f"internal error of {name}: {error!r}")
            await asyncio.sleep(AGAIN_S)

    async def stop(self) -> None:
        """Leave: the owner hands on what it has first."""
        self.draining = True
        if self.serving is None:
            await self._end_tasks()  # it may be taking over: not any more
        await self.hand_over("")
        await self._end_tasks()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.following.stop()
        await self.follower.close()
        self.relays.close()
        await self.store_copies.close()
        self.tunnels.close()
        self.news.close()
        await self.forwarding.close()
        await self.engine.close()
        self._threads.shutdown(wait=True)

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def close_store(self) -> None:
        self.store.close()

    def _free_dead_readers(self) -> None:
        self.store.free_dead_readers()

    def store_replaced(self) -> None:
        """There is another store in the place of ours, which is closed."""
        self.store = self.open_store()
        with self.store.view() as view:
            self.replica = Replica(Position.read(view))
        self.follower = self._new_follower()
        self.place.restart_readers()

    async def hand_over(self, heir: str) -> None:
        """Stop being the owner in an orderly way, if this node is; the furthest node is next."""
        async with self._changing:
            serving = self._leaving = self._no_longer_serving()
            if serving is None:
                return
            try:
                await serving.stop()
                assert self.ownership is not None
                await self.ownership.release(heir or self.best_heir())
            finally:
                self._leaving = None
                self._follow_again()

    def best_heir(self) -> str:
        """The node which has most of the log, of those which can be the owner; empty: none."""
        others = [
            one
            for one in self.roster.alive()
            if one.node != self.name and one.role == "replica" and not one.draining
        ]
        return max(others, key=lambda one: one.position).node if others else ""

    def _told(self, position: int) -> None:
        self.follower.notify(position)

    # Owning

    def _is_fit(self) -> bool:
        is_well = not self.following.problem and not self.following.is_copying
        return not self.draining and is_well and self.engine.connected

    async def _take_over(self, epoch: int) -> bool:
        async with self._changing:
            try:
                await self.following.stop()
                if await take_over(self.log, self.follower, self.replica, epoch):
                    await self._serve(epoch)
            finally:  # also when the lease was lost meanwhile, or the log did not answer
                if self.serving is None:
                    await self.following.stop()
                    self.following.start()
            return self.serving is not None

    async def _serve(self, epoch: int) -> None:
        loop = asyncio.get_running_loop()
        committer = ReplicatedCommitter(
            self.log,
            self.replica,
            CommitThread(self.store, loop),
            epoch,
            loop,
            self._lost_log,
            self.news.tell,
            refusal=self.store.refusal,
            checks=self.follower.checks,
        )
        try:
            serving = Serving(self.place, self.store, committer)
        except BaseException:
            committer.close()
            raise
        try:
            await serving.start()
        except BaseException as error:
            serving.fail(f"not started: {error!r}")
            await serving.stop()
            raise
        self.committer, self.serving = committer, serving
        self.failovers += 1
        self.heart.tell()
        log.info("owner since epoch %d, at position %d", epoch, self.replica.accepted.position)

    def _no_longer_serving(self) -> Serving | None:
        """Everybody hears of it at once; what is left of the broker is for the caller to end."""
        serving, self.serving, self.committer = self.serving, None, None
        if serving is not None:
            self.heart.tell()
        return serving

    def _lost_lease(self, reason: str) -> None:
        self._lose(reason, is_ours_to_release=False)

    def _lost_log(self, reason: str) -> None:
        """What could not be appended, or stored, must be settled before this node owns again."""
        if self.committer is not None and not self.committer.is_fenced:
            self.following.note_problem(reason)
        self._lose(reason, is_ours_to_release=True)

    def _lose(self, reason: str, is_ours_to_release: bool) -> None:
        """What was not committed is not ours to commit any more."""
        if self._leaving is not None:
            self._leaving.fail(reason)
        serving = self._no_longer_serving()
        if serving is not None:
            self.fenced += 1
            log.warning("not the owner any more: %s", reason)
            serving.fail(reason)
            self.spawn(self._abandon(serving, is_ours_to_release))

    async def _abandon(self, serving: Serving, is_ours_to_release: bool) -> None:
        async with self._changing:
            try:
                ends = [serving.stop()]
                if is_ours_to_release and self.ownership is not None:
                    ends.append(self.ownership.release(self.best_heir()))
                await asyncio.gather(*ends)
            finally:
                self._follow_again()

    def _follow_again(self) -> None:
        self.following.start()
        # A broker is full of cycles, and the one this process began with is frozen.
        gc.unfreeze()
        asyncio.get_running_loop().call_soon(gc.collect)

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Something which takes its time, and ends before the node does."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("in the background", exc_info=task.exception())

    # Clients and operations

    def owner(self) -> str:
        """The node whose broker serves everybody; empty: nobody knows of one."""
        return self.name if self.serving is not None else self.roster.owner()

    def _owner_changed(self, former: str, owner: str) -> None:
        log.info("owner is %s, before it was %s", owner or "nobody", former or "nobody")
        self._owner_news.set()
        self._owner_news = asyncio.Event()
        self.relays.owner_changed()
        if not (former and owner):
            return  # who steps down says so, and ends its connections itself
        if former == self.name:
            self._lost_lease(f"node {owner} is the owner")
        else:
            self.tunnels.lose(former, f"node {former} is not the owner any more")

    def _met(self, node: str) -> None:
        self.tunnels.greet(node)

    async def owner_after(self, former: str) -> None:
        """Wait until another node is the owner."""
        while self.owner() in ("", former):
            await self._owner_news.wait()

    def protocol(self, listener: str) -> ClientProtocol:
        """For a client which has just connected to this node."""
        if self.serving is not None:
            return self.serving.protocol(listener)
        return self.relays.relay(listener)

    def _accept_client(self, info: dict[str, object]) -> asyncio.Protocol | None:
        if self.serving is None:
            return None
        return Connection(self.serving.broker, str(info["listener"]))  # type: ignore[return-value]

    def _accept_control(self, _: dict[str, object]) -> asyncio.Protocol | None:
        if self.serving is None:
            return None
        return forwarding.answering(self.place.data_dir, forwarding.Owners(self._owners_table))

    def table(self, own: Mapping[str, Operation]) -> Mapping[str, Operation]:
        """All operations, wherever they are done; `own` are those of this process."""
        return forwarding.Table(
            {**own, **self.operations.own()}, self._owners_table, self.forwarding
        )

    def _owners_table(self) -> Mapping[str, Operation] | None:
        if self.serving is None:
            return None
        return {**self.serving.operations, **self.operations.owners()}

    def epoch(self) -> int:
        lease = None if self.ownership is None else self.ownership.lease
        return 0 if lease is None else lease.epoch

    def lease_age_s(self) -> float:
        return 0.0 if self.ownership is None else self.ownership.age_s

    def reload(self) -> None:
        if self.serving is not None:
            self.serving.reload()
