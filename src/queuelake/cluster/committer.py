"""How the owner commits: append to the log, then to the own store, and tell that it is done.

One entry at a time. An append which somebody else overtook, or whose outcome nobody can tell, ends
it: the owner steps down and nothing is reported, because nothing is known to be done.

What is in the log is done. The own store may come a commit later, if its committer says so, so that
the next append does not wait for a disk. When it fails behind the log the owner steps down as well;
it is behind then, not wrong, and reads on later.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, Future, Task
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from queuelake.cluster.appending import OvertakenError, UnsettledError, append_surely
from queuelake.cluster.checking import Checks
from queuelake.cluster.engine import Log
from queuelake.cluster.entry import BATCH, CHECK, Entry, split
from queuelake.cluster.replica import Position, Replica
from queuelake.errors import StorageError
from queuelake.storage.api import Batch
from queuelake.storage.batch_codec import encode_batch

PATIENCE_S: Final = 10.0

log = logging.getLogger("queuelake.cluster.committer")

Done = Callable[[str], None]
Refusal = Callable[[Batch], str]


class LocalCommitter(Protocol):
    """Commits to the own store: `broker.node.late_commits`."""

    def submit(self, batch: Batch, done: Done) -> bool:
        """Returns whether others may be told now: whoever reads the store waits for it."""
        ...

    def close(self) -> None: ...


class ReplicatedCommitter:
    """The committer of an owner, for one epoch. What it holds when it is lost is thrown away."""

    def __init__(
        self,
        log: Log,
        replica: Replica,
        local: LocalCommitter,
        epoch: int,
        loop: AbstractEventLoop,
        on_lost: Callable[[str], None],
        notify_others: Callable[[int], None],
        *,
        refusal: Refusal = lambda batch: "",  # `Store.refusal`: it must be said before the append
        checks: Checks | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        assert replica.accepted.epoch == epoch, "the barrier comes first"
        self.is_fenced = False  # whether it was lost because somebody else wrote to the log
        self._log = log
        self._replica = replica
        self._local = local
        self._epoch = epoch
        self._loop = loop
        self._on_lost = on_lost
        self._notify_others = notify_others
        self._refusal = refusal
        self._checks = checks
        self._patience_s = patience_s
        self._waiting: deque[tuple[Batch, Done] | bytes] = deque()  # a batch, or the id of a check
        self._worker: Task[None] | None = None
        self._stored: Future[str] | None = None  # the last commit to the own store
        self._over = False

    def submit(self, batch: Batch, done: Done) -> None:
        self._add((batch, done))

    def check(self, check_id: bytes) -> None:
        """Let every replica tell the hash of its store at the same place of the log."""
        self._add(check_id)

    def close(self) -> None:
        """What is being appended may or may not be in the log: the next owner will see."""
        self._over = True
        if self._worker is not None:
            self._worker.cancel()
        self._local.close()

    def _add(self, what: tuple[Batch, Done] | bytes) -> None:
        if self._over:
            return
        self._waiting.append(what)
        if self._worker is None:
            self._worker = self._loop.create_task(self._work())

    async def _work(self) -> None:
        try:
            while self._waiting:
                what = self._waiting.popleft()
                if isinstance(what, bytes):
                    await self._check(what)
                else:
                    await self._commit(*what)
        except OvertakenError as error:
            self.is_fenced = True
            self._lose(f"another node writes to the log: {error}")
        except (UnsettledError, StorageError) as error:
            self._lose(str(error))
        except Exception as error:  # whatever it is, nobody may go on as if it were committed
            log.exception("commit of epoch %d", self._epoch)
            self._lose(f"internal error: {error!r}")
        finally:
            self._worker = None

    async def _commit(self, batch: Batch, done: Done) -> None:
        refusal = self._refusal(batch)
        if not refusal and not await self._append(BATCH, encode_batch(batch), batch):
            await self._until_stored()
        self._loop.call_soon(done, refusal)

    async def _check(self, check_id: bytes) -> None:
        await self._append(CHECK, check_id, Batch())
        await self._until_stored()
        if self._checks is not None:
            self._checks.begin(check_id, self._replica.accepted.position)

    async def _append(self, kind: int, body: bytes, batch: Batch) -> bool:
        """Returns whether others may be told before it is in the own store."""
        accepted = self._replica.accepted
        entry = Entry(self._epoch, accepted.number + 1, kind, body)
        parts = split(entry, self._log.part_bytes_max)
        position = await append_surely(self._log, parts, accepted.position, self._patience_s)
        self._notify_others(position)
        now = accepted.after(entry, position)
        now.put(batch)
        await self._until_stored()
        self._replica.accepted = now
        return self._store(batch, now)

    async def _until_stored(self) -> None:
        """Until the own store has what was appended before."""
        if self._stored is not None:
            failure = await self._stored
            if failure:
                raise StorageError(failure)

    def _store(self, batch: Batch, now: Position) -> bool:
        stored: Future[str] = self._loop.create_future()

        def done(failure: str) -> None:
            if failure:
                failure = f"the store is behind the log at position {now.position}: {failure}"
                self._lose(failure)
            elif not self._over:
                self._replica.applied = now
            if not stored.cancelled():
                stored.set_result(failure)

        self._stored = stored
        return self._local.submit(batch, done)

    def _lose(self, reason: str) -> None:
        if not self._over:
            self._over = True
            self._on_lost(reason)
