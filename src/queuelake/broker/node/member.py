"""The life of a node in a cluster: it follows the log, owns it for a while, and follows again.

    following --- the lease is ours, the log is read to its end ---> owning
    owning ------ the lease is lost, an append is not ours ---------> following
    following --- the log does not reach back so far --------------> copying ---> following

Only one of the follower, the copier and the broker's committer writes to the store at a time: each
has ended before the next one begins.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from queuelake.broker.committer import CommitThread
from queuelake.broker.connection import Connection
from queuelake.broker.node import forwarding
from queuelake.broker.node.heart import Heart
from queuelake.broker.node.operations import NodeOperations
from queuelake.broker.node.roster import Roster
from queuelake.broker.node.unserved import last_words
from queuelake.broker.operation import Operation
from queuelake.broker.serving import Place, Serving
from queuelake.broker.websocket import ClientProtocol
from queuelake.cluster.committer import ReplicatedCommitter
from queuelake.cluster.copying import KIND as STORE
from queuelake.cluster.copying import StoreCopies, fetch_copy, install_copy
from queuelake.cluster.engine import Log
from queuelake.cluster.follower import Follower, Stuck
from queuelake.cluster.founding import Behind
from queuelake.cluster.nats_engine import NatsEngine
from queuelake.cluster.ownership import Ownership
from queuelake.cluster.relay import KIND as CLIENT
from queuelake.cluster.relay import Relays
from queuelake.cluster.replica import DivergedError, Position, Replica
from queuelake.cluster.taking_over import take_over
from queuelake.cluster.tunnels import Tunnels
from queuelake.errors import QueuelakeError, StorageError
from queuelake.storage.lmdb_store import LmdbStore

log = logging.getLogger("queuelake.node")

SHARD: Final = 0
AGAIN_S: Final = 1.0  # after a failure of the own store
THREADS: Final = 4
PARTING_S: Final = 1.0
PROBLEM_S: Final = 5.0
NEWS: Final = "log"  # subject: how far the log reaches

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
        self.problem = ""
        self._problem_at = 0.0
        self.failovers = 0
        self.fenced = 0
        self.copies = 0  # of another node's store
        self.is_copying = False
        self.heart = Heart(self)
        self.roster = Roster(engine.messenger, time.monotonic, self._owner_changed)
        self.operations = NodeOperations(self)
        self._threads = ThreadPoolExecutor(THREADS, "node")
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
        self._following: asyncio.Task[None] | None = None
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
        await self.roster.start()
        await messenger.receive(NEWS, self._news)
        await self.tunnels.start()
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
            lost=self._lost,
        )
        self._follow()
        self._tasks = [
            asyncio.create_task(self.ownership.run()),
            asyncio.create_task(self.heart.beat()),
        ]

    async def stop(self) -> None:
        """Leave: the owner hands on what it has first."""
        self.draining = True
        await self.hand_over("")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stop_following()
        await self.follower.close()
        self.relays.close()
        await self.store_copies.close()
        self.tunnels.close()
        await self.forwarding.close()
        await self.engine.close()
        self._threads.shutdown(wait=True)

    def close_store(self) -> None:
        self.store.close()

    def _free_dead_readers(self) -> None:
        self.store.free_dead_readers()

    async def hand_over(self, heir: str) -> None:
        """Stop being the owner in an orderly way, if this node is; the furthest node is next."""
        async with self._changing:
            serving, self.serving = self.serving, None
            if serving is None:
                return
            self.heart.tell()
            await serving.stop()
            assert self.ownership is not None
            await self.ownership.release(heir or self.best_heir())
            self._follow()

    def best_heir(self) -> str:
        """The node which has most of the log, of those which can be the owner; empty: none."""
        others = [
            one
            for one in self.roster.alive()
            if one.node != self.name and one.role == "replica" and not one.draining
        ]
        return max(others, key=lambda one: one.position).node if others else ""

    # Following

    def _follow(self) -> None:
        self._following = asyncio.create_task(self._keep_following())

    async def _keep_following(self) -> None:
        while True:
            try:
                await self.follower.run()
            except (Behind, DivergedError) as error:
                log.warning("%s", error)
                await self._copy()
            except Stuck as error:
                self._note_problem(str(error))
                await asyncio.sleep(AGAIN_S)
            except StorageError as error:  # a store which is not of this cluster, a lost log
                self._note_problem(str(error))
                await asyncio.sleep(AGAIN_S)

    async def _copy(self) -> None:
        """Replace the store by a copy of another node's."""
        owner = self.owner()
        if not owner or owner == self.name:
            self._note_problem("a copy of the store is needed, and there is no owner to ask")
            await asyncio.sleep(AGAIN_S)
            return
        try:
            self.is_copying = True
            await fetch_copy(self.tunnels, owner, self.place.data_dir)
            await self._replace_store()
        except (QueuelakeError, OSError) as error:
            self._note_problem(f"the store of {owner} could not be copied: {error}")
            await asyncio.sleep(AGAIN_S)
            return
        finally:
            self.is_copying = False
        self.copies += 1
        log.info("the store is a copy of that of %s now", owner)
        self.problem = ""

    async def _replace_store(self) -> None:
        """By what was copied; whatever becomes of that, there is a store afterwards."""
        await self.follower.close()
        self.store.close()
        try:
            install_copy(self.place.data_dir)
        finally:
            self.store = self.open_store()
            with self.store.view() as view:
                self.replica = Replica(Position.read(view))
            self.follower = self._new_follower()
            self.place.restart_readers()

    async def _stop_following(self) -> None:
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    def _note_problem(self, problem: str) -> None:
        if problem != self.problem:
            log.error("%s", problem)
        self.problem = problem
        self._problem_at = time.monotonic()

    def forget_problem(self) -> None:
        """Called now and then: one which has not come back for a while is over."""
        if self.problem and time.monotonic() - self._problem_at > PROBLEM_S:
            log.info("no longer: %s", self.problem)
            self.problem = ""

    def _news(self, data: bytes) -> None:
        self.follower.notify(int.from_bytes(data, "big"))

    # Owning

    def _is_fit(self) -> bool:
        is_well = not self.problem and not self.is_copying
        return is_well and not self.draining and self.engine.connected

    async def _take_over(self, epoch: int) -> bool:
        async with self._changing:
            try:
                await self._stop_following()
                is_ours = await take_over(self.log, self.follower, self.replica, epoch)
            except BaseException:  # the lease was lost meanwhile, or the log did not answer
                self._follow()
                raise
            if not is_ours:
                self._follow()
                return False
            loop = asyncio.get_running_loop()
            self.committer = ReplicatedCommitter(
                self.log,
                self.replica,
                CommitThread(self.store, loop),
                epoch,
                loop,
                self._lost,
                self._tell_news,
                refusal=self.store.refusal,
                checks=self.follower.checks,
            )
            serving = Serving(self.place, self.store, self.committer)
            try:
                await serving.start()
            except BaseException as error:  # others may do better with the same store
                await serving.abandon(f"the broker did not start: {error}")
                self._follow()
                raise
            self.serving = serving
            self.failovers += 1
            self.heart.tell()
            log.info("owner since epoch %d, at position %d", epoch, self.replica.accepted.position)
            return True

    def _lost(self, reason: str) -> None:
        """What was not committed is not ours to commit any more."""
        serving, self.serving = self.serving, None
        if serving is not None:
            self.fenced += 1
            self.heart.tell()
            log.warning("not the owner any more: %s", reason)
            self.spawn(self._abandon(serving, reason))

    async def _abandon(self, serving: Serving, reason: str) -> None:
        async with self._changing:
            await serving.abandon(reason)
            assert self.ownership is not None
            await self.ownership.release()
            self._follow()

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Something which takes its time, and ends before the node does."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _tell_news(self, position: int) -> None:
        self.engine.messenger.send(NEWS, position.to_bytes(8, "big"))

    # Clients and operations

    def owner(self) -> str:
        """The node whose broker serves everybody; empty: nobody knows of one."""
        return self.name if self.serving is not None else self.roster.owner()

    def _owner_changed(self, former: str, owner: str) -> None:
        log.info("owner is %s, before it was %s", owner or "nobody", former or "nobody")
        self._owner_news.set()
        self._owner_news = asyncio.Event()
        self.relays.owner_changed()
        if former and owner and former != self.name:  # it has said its last words, or is gone
            asyncio.get_running_loop().call_later(PARTING_S, self._part_from, former)

    def _part_from(self, former: str) -> None:
        if self.owner() != former:
            self.tunnels.lose(former, f"node {former} is not the owner any more")

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
