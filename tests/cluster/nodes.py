"""A replica on a store in memory, as a test needs it."""

from __future__ import annotations

import asyncio

from queuelake.broker.committer import Done, commit
from queuelake.cluster.committer import ReplicatedCommitter
from queuelake.cluster.follower import Follower
from queuelake.cluster.hashing import hash_of
from queuelake.cluster.replica import Position, Replica
from queuelake.cluster.taking_over import take_over
from queuelake.storage.api import META, RETAINED, Batch, Store
from queuelake.storage.lmdb_store import STORE_ID
from queuelake.storage.memory import MemoryStore
from tests.cluster.scripted_log import ScriptedLog, inline


class LocalCommits:
    """Commits at once, and says so one turn of the loop later."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop
        self.is_early = False  # whether others may be told before
        self.held: list[tuple[Batch, Done]] | None = None  # those which wait, if they do

    def submit(self, batch: Batch, done: Done) -> bool:
        if self.held is None:
            self._loop.call_soon(done, commit(self._store, batch))
        else:
            self.held.append((batch, done))
        return self.is_early

    def release(self) -> None:
        """Let those go which wait; the next ones wait again."""
        assert self.held is not None
        held, self.held = self.held, []
        for batch, done in held:
            self._loop.call_soon(done, commit(self._store, batch))

    def close(self) -> None:
        """Nothing runs."""


class Node:
    """One node: follows, takes over, commits."""

    def __init__(self, log: ScriptedLog, store: Store | None = None, name: str = "a") -> None:
        self.log = log
        self.store = store or MemoryStore()
        if store is None:
            put(self.store, META, STORE_ID, name.encode())
        self.replica = Replica(self.position)
        self.lost: list[str] = []
        self.notified: list[int] = []
        self.outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.checks: list[tuple[bytes, int, bytes]] = []
        self.follower = Follower(
            log, self.store, self.replica, inline, on_check=self._checked, interval_s=0.01
        )
        self.committer: ReplicatedCommitter | None = None
        self.local = LocalCommits(self.store, asyncio.get_running_loop())

    def _checked(self, check_id: bytes, position: int, digest: bytes) -> None:
        self.checks.append((check_id, position, digest))

    async def own(self, epoch: int, patience_s: float = 0.5) -> bool:
        if not await take_over(self.log, self.follower, self.replica, epoch, patience_s):
            return False
        loop = asyncio.get_running_loop()
        self.committer = ReplicatedCommitter(
            self.log,
            self.replica,
            self.local,
            epoch,
            loop,
            self._was_lost,
            self.notified.append,
            refusal=self.store.refusal,
            checks=self.follower.checks,
            patience_s=patience_s,
        )
        return True

    async def commit(self, *rows: bytes) -> str:
        """The outcome of a commit, or `lost`."""
        batch = Batch()
        for row in rows:
            batch.put(RETAINED, row, row * 3)
        return await self.submit(batch)

    def submit(self, batch: Batch) -> asyncio.Future[str]:
        assert self.committer is not None
        self.outcome = asyncio.get_running_loop().create_future()
        self.committer.submit(batch, self.outcome.set_result)
        return self.outcome

    def _was_lost(self, reason: str) -> None:
        self.lost.append(reason)
        self.outcome.set_result("lost")

    @property
    def position(self) -> Position:
        with self.store.view() as view:
            return Position.read(view)

    @property
    def rows(self) -> list[bytes]:
        with self.store.view() as view:
            return list(view.scan_keys(RETAINED, b"", b"\xff" * 9))

    @property
    def hash(self) -> bytes:
        with self.store.view() as view:
            return hash_of(view)


def put(store: Store, table: int, key: bytes, value: bytes) -> None:
    batch = Batch()
    batch.put(table, key, value)
    store.commit(batch)
