"""A node of a simulated cluster: a store which outlives its processes, and one process at a time.

What a process does besides running the real modules is little: it follows, takes over when
ownership says so, runs a broker while it is the owner, and copies a store when the log does not
reach back far enough.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import Counter, deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from queuelake.cluster.committer import ReplicatedCommitter
from queuelake.cluster.follower import Follower, Stuck
from queuelake.cluster.founding import Behind
from queuelake.cluster.ownership import Ownership
from queuelake.cluster.replica import Position, Replica
from queuelake.cluster.taking_over import take_over
from queuelake.errors import QueuelakeError
from queuelake.storage.api import Batch
from queuelake.storage.memory import MemoryStore, MemoryView
from tests.simulation.cluster_engine import Center, NodeEngine
from tests.simulation.cluster_loop import NodeLoop, Time
from tests.simulation.cluster_record import Tables

T = TypeVar("T")

LEASE_S = 3.0
PATIENCE_S = 4.0
UNDONE_MAX = 3  # commits a crash of the machine may take back
COPY_S = 0.3
NEWS = "log"


class Working(Protocol):
    """A broker of the owner."""

    async def stop(self) -> None:
        """Thrown away with all it had collected; its committer is closed when this returns."""
        ...

    def vanish(self) -> None:
        """Its process is gone: so are its connections."""
        ...


W = TypeVar("W", bound=Working)


class Stage(Protocol[W]):
    """What a process needs of the world."""

    time: Time
    center: Center
    broken: list[str]
    tally: Counter[str]  # of what happened

    def begin(self, process: Process[W], committer: ReplicatedCommitter, epoch: int) -> W:
        """The broker of a new owner."""
        ...

    def peer_to_copy(self, node: Node[W]) -> Node[W] | None: ...


class ReplicatedStore(MemoryStore):
    """Remembers its last commits, because a crash of the machine may undo them."""

    def __init__(self) -> None:
        super().__init__()
        self.before: deque[Tables] = deque(maxlen=UNDONE_MAX)
        self.before_read: Callable[[], None] | None = None

    def view(self) -> MemoryView:
        if self.before_read is not None:
            self.before_read()
        return super().view()

    def commit_all(self, batches: list[Batch]) -> None:
        before = [dict(table) for table in self.tables]
        super().commit_all(batches)
        self.before.append(before)

    def commit(self, batch: Batch) -> None:
        self.commit_all([batch])

    def reborn(self, undone: int) -> ReplicatedStore:
        """What a new process finds; the old one may do to its own what it likes."""
        store = ReplicatedStore()
        states = [*self.before, self.tables]
        keep = max(0, len(states) - 1 - undone)
        store.tables = [dict(table) for table in states[keep]]
        store.before.extend(states[:keep])
        return store

    def position(self) -> Position:
        return Position.read(MemoryView(self.tables))

    def safe_position(self) -> int:
        """How far it will be after the worst of crashes."""
        worst = MemoryStore()
        worst.tables = [*self.before, self.tables][0]
        return Position.read(worst.view()).position


class Node(Generic[W]):
    def __init__(self, stage: Stage[W], name: str, rate: float) -> None:
        self.stage = stage
        self.name = name
        self.rate = rate
        self.store = ReplicatedStore()
        self.process: Process[W] | None = None

    def start(self) -> None:
        assert self.process is None
        self.process = Process(self)

    def crash(self, undone: int) -> None:
        process, self.process = self.process, None
        assert process is not None
        self.store = self.store.reborn(undone)
        process.die()


class Process(Generic[W]):
    """One life of a node."""

    def __init__(self, node: Node[W]) -> None:
        self.node = node
        self.stage = node.stage
        time = self.stage.time
        self.loop = time.new_loop(node.rate)
        self.engine = NodeEngine(self.stage.center, node.name, self.loop)
        self.store = node.store
        self.fit = True
        self.broker: W | None = None
        self._stopping: list[W] = []
        self._committer: ReplicatedCommitter | None = None
        self._prepare()
        self.ownership = Ownership(
            self.engine.leases,
            self.engine,
            node.name,
            LEASE_S,
            self.loop.time,
            time.dice,
            fit=lambda: self.fit and not self._copying,
            take_over=self._take_over,
            lost=self._lease_lost,
        )
        self._changing = asyncio.Lock()  # between following and owning
        self._following: asyncio.Task[None] | None = None
        self._copying = False
        self._follow()
        self.loop.create_task(self.engine.receive(NEWS, self._on_news))
        self._owning = self.loop.create_task(self.ownership.run())

    def die(self) -> None:
        """As by SIGKILL."""
        self.engine.vanish()
        for broker in [*self._stopping, self.broker]:
            if broker is not None:
                broker.vanish()
        self.stage.time.end(self.loop)

    def transfer(self, heir: str) -> None:
        """Leave in an orderly way."""
        self._step_down(heir)

    def mistakes(self) -> list[str]:
        return self.loop.errors + ([repr(self._owning)] if self._owning.done() else [])

    # As a replica

    def _prepare(self) -> None:
        self.replica = Replica(Position())
        self.follower = Follower(self.engine, self.store, self.replica, self._in_thread)

    def _on_news(self, data: bytes) -> None:
        self.follower.notify(int(data))

    def _follow(self) -> None:
        if self._following is None:
            self._following = self.loop.create_task(self._keep_following())

    async def _stop_following(self) -> None:
        following, self._following = self._following, None  # at once: this may be cancelled too
        if following is not None:
            following.cancel()
            await asyncio.wait([following])

    async def _keep_following(self) -> None:
        while True:
            try:
                await self.follower.run()
            except Behind:
                await self._copy()
            except Stuck:
                self.stage.tally["stuck"] += 1
                await asyncio.sleep(1.0)
            except QueuelakeError as error:  # nothing here may bring that about
                self.stage.broken.append(f"{self.node.name}: {error!r}")
                return

    async def _copy(self) -> None:
        """The store of a peer, with the position in it."""
        self._copying = True
        try:
            peer = self.stage.peer_to_copy(self.node)
            copied = None if peer is None else peer.store.reborn(0)
            await asyncio.sleep(COPY_S)  # it is old when it arrives
            if copied is None:
                return
            copied.before.clear()
            self.stage.tally["copied"] += 1
            self.store = self.node.store = copied
            self._prepare()
        finally:
            self._copying = False

    # As the owner

    async def _take_over(self, epoch: int) -> bool:
        async with self._changing:
            taken = False
            try:
                await self._stop_following()
                taken = await take_over(self.engine, self.follower, self.replica, epoch, PATIENCE_S)
            finally:
                if not taken:
                    self._follow()
            if taken:
                self._committer = self._new_committer(epoch)
                self.broker = self.stage.begin(self, self._committer, epoch)
            self.stage.tally["taken over" if taken else "not taken over"] += 1
            return taken

    def _new_committer(self, epoch: int) -> ReplicatedCommitter:
        return ReplicatedCommitter(
            self.engine,
            self.replica,
            LateCommitter(self.stage.time, self.loop, self.store),
            epoch,
            self.loop.as_loop(),
            self._committer_lost,
            lambda position: self.engine.send(NEWS, str(position).encode()),
            patience_s=PATIENCE_S,
        )

    def _lease_lost(self, reason: str) -> None:
        self.stage.tally["lease lost"] += 1
        self._step_down("")

    def _committer_lost(self, reason: str) -> None:
        assert self._committer is not None
        self.stage.tally["fenced" if self._committer.is_fenced else "append lost"] += 1
        self._step_down("")

    def _step_down(self, heir: str) -> None:
        broker, self.broker = self.broker, None
        if broker is not None:
            self._stopping.append(broker)
            self.loop.create_task(self._abandon(broker, heir))

    async def _abandon(self, broker: W, heir: str) -> None:
        async with self._changing:
            await broker.stop()
            self._stopping.remove(broker)
            await self.ownership.release(heir)
            self._follow()

    # Threads

    def _in_thread(self, work: Callable[[], T], /) -> Future[T]:
        result: Future[T] = self.loop.create_future()

        def run() -> None:
            if not self.engine.alive:
                return
            try:
                value = work()
            except QueuelakeError as error:
                if not result.done():
                    result.set_exception(error)
            else:
                if not result.done():
                    result.set_result(value)

        self.stage.time.after(self.stage.time.dice.random() * 0.02, run)
        return result


class LateCommitter:
    """Commits to the own store a little later, as a thread does; who reads waits for it."""

    def __init__(self, time: Time, loop: NodeLoop, store: ReplicatedStore) -> None:
        self._time = time
        self._loop = loop
        self._store = store
        self._task: tuple[Batch, Callable[[str], None]] | None = None
        store.before_read = self._commit

    def submit(self, batch: Batch, done: Callable[[str], None]) -> bool:
        assert self._task is None, "one commit at a time"
        self._task = (batch, done)
        self._time.after(self._time.dice.random() * 0.02, self._commit)
        return not batch.replaces and self._time.dice.random() < 0.9

    def close(self) -> None:
        """A thread ends with what it has."""
        self._commit()
        self._store.before_read = None

    def _commit(self) -> None:
        if self._task is None:
            return
        (batch, done), self._task = self._task, None
        failure = ""
        try:
            self._store.commit(batch)
        except QueuelakeError as error:
            failure = str(error)
        self._loop.call_soon(done, failure)
