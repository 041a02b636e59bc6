"""The life of one shard at one node: it follows the log, owns it for a while, and follows again.

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
from typing import TYPE_CHECKING, Final, TypeVar, cast

from queuelake.broker.connection import Connection
from queuelake.broker.node import choosing, forwarding
from queuelake.broker.node.following import AGAIN_S, Following
from queuelake.broker.node.heart import Heart
from queuelake.broker.node.late_commits import LateCommits
from queuelake.broker.node.news import News
from queuelake.broker.node.roster import Report, Roster
from queuelake.broker.node.shard_operations import ShardOperations
from queuelake.broker.operation import Operation, perform
from queuelake.broker.serving import Serving
from queuelake.cluster.committer import ReplicatedCommitter
from queuelake.cluster.copying import StoreCopies
from queuelake.cluster.engine import Log
from queuelake.cluster.follower import Follower
from queuelake.cluster.ownership import Ownership
from queuelake.cluster.replica import Position, Replica
from queuelake.cluster.shard_messenger import messenger_of
from queuelake.cluster.taking_over import take_over
from queuelake.errors import NotFoundError
from queuelake.storage.lmdb_store import LmdbStore
from queuelake.storage.shards import directory_of

if TYPE_CHECKING:
    from queuelake.broker.node.node import Node

THREADS: Final = 4
T = TypeVar("T")


class Member:
    """One shard at this node."""

    def __init__(self, node: Node, shard: int, shard_log: Log) -> None:
        place = node.place
        self.node = node
        self.shard = shard
        self.place = place
        self.directory = directory_of(place.data_dir, shard)
        self.store = store = self._open_store()
        self.engine = node.engine
        self.tunnels = node.tunnels
        self.messenger = messenger_of(node.engine.messenger, shard)
        self.log = shard_log
        self.config = node.config
        self.name = node.name
        self.logger = logging.getLogger(node.log_name("node", shard))
        self.serving: Serving | None = None
        self.committer: ReplicatedCommitter | None = None
        self.failovers = 0
        self.fenced = 0
        self.heir = ""  # to whom it was handed over, until there is an owner again
        self.heart = Heart(self)
        self.roster = Roster(self.messenger, time.monotonic, self._owner_changed, node.met)
        self.news = News(self.messenger)
        self.operations = ShardOperations(self)
        self._threads = ThreadPoolExecutor(THREADS, f"shard-{shard}")
        self.following = Following(self)
        with store.view() as view:
            self.replica = Replica(Position.read(view))
        self.follower = self._new_follower()
        self.store_copies = StoreCopies(self.directory, self.free_dead_readers)
        self.forwarding = forwarding.Forwarding(self.tunnels, self.owner, shard)
        self.ownership: Ownership | None = None
        self._owner_news = asyncio.Event()  # another one each time
        self._leaving: Serving | None = None  # the broker which is being stopped
        self._changing = asyncio.Lock()  # between following and owning
        self._tasks: list[asyncio.Task[None]] = []
        self._background: set[asyncio.Task[None]] = set()

    def _open_store(self) -> LmdbStore:
        return LmdbStore(self.directory, self.place.settings.storage, replicated=True)

    @property
    def draining(self) -> bool:
        return self.node.draining

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
        leases = await self.engine.leases(self.shard)
        await self.roster.start()
        await self.news.hear(self._told)
        await self.operations.start()
        self.ownership = Ownership(
            leases,
            self.messenger,
            self.name,
            self.config.lease_ms / 1000,
            time.monotonic,
            random.Random(),
            fit=self._is_fit,
            take_over=self._take_over,
            lost=self._lost_lease,
            give_way_s=self._give_way_s,
            logger=logging.getLogger(self.node.log_name("ownership", self.shard)),
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
                self.logger.exception("%s", name)
                self._lost_log(f"internal error of {name}: {error!r}")
            await asyncio.sleep(AGAIN_S)

    async def leave(self) -> None:
        """The owner hands on what it has; nothing is read or written any more."""
        if self.serving is None:
            await self._end_tasks()  # it may be taking over: not any more
        await self.hand_over("")
        await self._end_tasks()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.following.stop()
        await self.follower.close()

    async def close(self) -> None:
        """After `leave`: everything but the store, which is closed last of all."""
        await self.store_copies.close()
        self.news.close()
        await self.forwarding.close()
        self._threads.shutdown(wait=True)

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def free_dead_readers(self) -> None:
        self.store.free_dead_readers()

    def store_replaced(self) -> None:
        """There is another store in the place of ours, which is closed."""
        self.store = self._open_store()
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
                await self._release(heir or self.best_heir())
            finally:
                self._leaving = None
                self._follow_again()

    async def _release(self, heir: str) -> None:
        assert self.ownership is not None
        self.heir = heir
        await self.ownership.release(heir)

    def best_heir(self) -> str:
        return choosing.best_heir(self.heirs(), self.node.load)

    def heirs(self) -> list[Report]:
        """The other nodes which could be the owner now."""
        return [one for one in choosing.able(self.roster.alive()) if one.node != self.name]

    def _give_way_s(self, former: str) -> float:
        if self.node.shards == 1:
            return 0.0
        others = [one.node for one in self.heirs()]
        return choosing.give_way_s(self.shard, self.name, others, former)

    def _told(self, position: int) -> None:
        self.follower.notify(position)

    # Owning

    def _is_fit(self) -> bool:
        is_well = not self.following.problem and not self.following.is_copying
        return not self.draining and is_well and self.engine.connected and self.node.has_listened()

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
            LateCommits(self.store, loop),
            epoch,
            loop,
            self._lost_log,
            self.news.tell,
            refusal=self.store.refusal,
            checks=self.follower.checks,
        )
        try:
            serving = Serving(self.place, self.store, committer, self.shard)
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
        position = self.replica.accepted.position
        self.logger.info("owner since epoch %d, at position %d", epoch, position)

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
            self.logger.warning("not the owner any more: %s", reason)
            serving.fail(reason)
            self.spawn(self._abandon(serving, is_ours_to_release))

    async def _abandon(self, serving: Serving, is_ours_to_release: bool) -> None:
        async with self._changing:
            try:
                ends = [serving.stop()]
                if is_ours_to_release and self.ownership is not None:
                    ends.append(self._release(self.best_heir()))
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
            self.logger.error("in the background", exc_info=task.exception())

    # Clients and operations

    def owner(self) -> str:
        """The node whose broker serves everybody; empty: nobody knows of one."""
        return self.name if self.serving is not None else self.roster.owner()

    def _owner_changed(self, former: str, owner: str) -> None:
        self.logger.info("owner is %s, before it was %s", owner or "nobody", former or "nobody")
        self._owner_news.set()
        self._owner_news = asyncio.Event()
        if owner:
            self.heir = ""
        self.node.owner_changed()
        if not (former and owner):
            return  # who steps down says so, and ends its connections itself
        if former == self.name:
            self._lost_lease(f"node {owner} is the owner")
        else:
            self.node.lose_tunnels(self.shard, former)

    async def owner_after(self, former: str) -> None:
        """Wait until another node is the owner."""
        while self.owner() in ("", former):
            await self._owner_news.wait()

    def accept_client(self, info: Mapping[str, object]) -> asyncio.Protocol | None:
        if self.serving is None:
            return None
        return Connection(self.serving.broker, str(info["listener"]))  # type: ignore[return-value]

    def accept_control(self) -> asyncio.Protocol | None:
        if self.serving is None:
            return None
        return forwarding.answering(self.place.data_dir, forwarding.Owners(self.owners_table))

    async def ask(self, name: str, args: dict[str, object], kind: type[T]) -> T:
        """An operation of its broker, wherever that is."""
        table = self.owners_table()
        if table is None:
            return await self.forwarding.ask(name, args, kind)
        if name not in table:
            raise NotFoundError(f"there is no control operation {name!r}")
        return cast(T, await perform(table[name], args))

    def owners_table(self) -> Mapping[str, Operation] | None:
        """What the owner does; None: this node is not the owner."""
        if self.serving is None:
            return None
        return {**self.serving.operations, **self.operations.table()}

    def epoch(self) -> int:
        lease = None if self.ownership is None else self.ownership.lease
        return 0 if lease is None else lease.epoch

    def lease_age_s(self) -> float:
        return 0.0 if self.ownership is None else self.ownership.age_s
