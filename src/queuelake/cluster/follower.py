"""A replica which follows the log: read, see what counts, apply it to the own store.

What is applied goes into one transaction with the position it has in the log, so the store alone
says how far a replica is. Whoever begins reads it there; a commit which was under way when `run`
was cancelled is waited for first, because nothing may be applied twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from asyncio import Future
from collections.abc import Iterator
from typing import Final

from queuelake.cluster.checking import Checks, InThread, OnCheck
from queuelake.cluster.engine import EngineError, Log, TruncatedError
from queuelake.cluster.entry import BATCH, CHECK, GENESIS, BadEntryError, Entry, read_part
from queuelake.cluster.founding import Behind, Founding
from queuelake.cluster.replica import Position, Replica, barrier
from queuelake.errors import StorageError
from queuelake.storage.api import Batch, Store
from queuelake.storage.batch_codec import BadBatchError, decode_batch

READ_PARTS: Final = 32
APPLY_BYTES_MAX: Final = 8 * 1024 * 1024  # in one transaction, or little more
LAG_S: Final = 0.05  # until what is known to be in the log is looked for again

log = logging.getLogger("queuelake.cluster.follower")


class Stuck(StorageError):
    """The own store does not take what the log says. Nothing is wrong with what it has."""


class LostLogError(StorageError):
    """The log has not what this replica has applied: it was lost, or is another cluster's.

    See `queuelake cluster recover`.
    """


class Follower:
    """`run` and `catch_up` exclude each other, and both exclude an owner's commits."""

    def __init__(
        self,
        log: Log,
        store: Store,
        replica: Replica,
        in_thread: InThread,
        *,
        on_check: OnCheck = lambda check_id, position, digest: None,
        interval_s: float = 1.0,
    ) -> None:
        self.checks = Checks(store, in_thread, on_check)
        self.end = replica.accepted.position  # the last position which was read
        self._log = log
        self._store = store
        self._replica = replica
        self._in_thread = in_thread
        self._interval_s = interval_s
        self._news = asyncio.Event()
        self._told = 0  # how far the log reaches, by hearsay
        self._working = False
        self._commit_under_way: Future[None] | None = None
        with store.view() as view:
            self._founding = Founding(view)

    def notify(self, position: int = 0) -> None:
        """There may be more in the log; a position says how far it reaches at least."""
        self._told = max(self._told, position)
        if position == 0 or position > self.end:
            self._news.set()

    async def run(self) -> None:
        """Follow until cancelled.

        Raises:
            Behind, Stuck, ForeignStoreError, LostLogError, DivergedError
        """
        with self._alone():
            await self._begin()
            is_ours = False
            lag_s = LAG_S
            while True:
                self._news.clear()
                before = self.end
                try:
                    if not is_ours:
                        await self._log_end()
                        is_ours = True
                    await self._read_all()
                except EngineError as error:
                    log.info("log not read behind position %d: %s", self.end, error)
                # What this node was told of may not be in the nearest copy yet: look again soon,
                # and then less and less soon.
                is_waiting = self.end == before and self.end < self._told
                lag_s = 2 * lag_s if is_waiting else LAG_S
                pause_s = lag_s if self.end < self._told else self._interval_s
                # Not by `wait_for`: before Python 3.12 it loses a cancellation which comes together
                # with news, and who takes over would wait for the end of this one for ever.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(pause_s, self._interval_s)):
                        await self._news.wait()

    async def catch_up(self) -> None:
        """Apply everything which is in the log now; `end` is then where the log ends.

        Raises:
            EngineError: it could not be read.
            Behind, Stuck, ForeignStoreError, LostLogError, DivergedError
        """
        with self._alone():
            await self._begin()
            last = await self._log_end()
            while self.end < last:
                if not await self._read_on(last):
                    await asyncio.sleep(LAG_S)

    def beginning(self, epoch: int) -> Entry:
        """With what this node would begin an epoch, behind everything it has applied."""
        accepted = self._replica.accepted
        return barrier(epoch, accepted) if accepted.position else self._founding.genesis(epoch)

    async def before_epoch(self, entry: Entry) -> None:
        """This entry, by `beginning`, is going to be appended."""
        mark = self._founding.mark(entry)
        if not mark.is_empty():
            with self._alone():
                await self._commit([mark], self._replica.accepted)

    async def begin_epoch(self, entry: Entry, position: int) -> None:
        """The beginning of this node's own epoch is in the log, at this position."""
        with self._alone():
            batch = self._founding.founded() if entry.kind == GENESIS else Batch()
            accepted = self._replica.accepted.after(entry, position)
            await self._commit([batch], accepted)
            self._replica.restart(accepted)
            self.end = position

    async def close(self) -> None:
        """After `run` was cancelled: wait for what it left, so that the store can be closed."""
        await self._commit_ended()
        await self.checks.close()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        assert not self._working, "two at a time would apply an entry twice"
        self._working = True
        try:
            yield
        finally:
            self._working = False

    async def _begin(self) -> None:
        """Go on where the store is, whoever wrote it."""
        await self._commit_ended()
        with self._store.view() as view:
            position = Position.read(view)
            self._founding = Founding(view)
        self._replica.restart(position)
        self.end = position.position

    async def _commit_ended(self) -> None:
        if self._commit_under_way is not None:
            await asyncio.wait([self._commit_under_way])
            self._commit_under_way.exception()  # if it failed, the store says what it has

    async def _log_end(self) -> int:
        """The last position of the log, which no replica can be ahead of."""
        last = (await self._log.ends())[1]
        accepted = self._replica.accepted.position
        if last < accepted:
            raise LostLogError(f"the log ends at position {last}, this node has applied {accepted}")
        await self._check_log()
        return last

    async def _check_log(self) -> None:
        """A log which began anew may be longer by now: is the last entry applied still in it?"""
        accepted = self._replica.accepted
        if accepted.position == 0:
            return
        try:
            values = await self._log.read(accepted.position, 1)
        except TruncatedError:
            return  # it is cut behind what all have, which is how it should be
        part = read_part(values[0]) if values else None
        if part is not None and (part.epoch, part.number) != (accepted.epoch, accepted.number):
            raise LostLogError(
                f"position {accepted.position} of the log is entry {part.number} of epoch "
                f"{part.epoch}, this node has applied {accepted.number} of epoch {accepted.epoch}"
            )

    async def _read_all(self) -> None:
        """Up to what this node was told of, and on as long as there is much."""
        while count := await self._read_on(self._told):
            if self.end >= self._told and count < READ_PARTS:
                return

    async def _read_on(self, known: int) -> int:
        """Apply the next few entries; returns how many parts there were.

        Where the log is known to end nothing is asked for behind that: to hear that it is not there
        costs as much as to get it.
        """
        count = min(READ_PARTS, known - self.end) if known > self.end else READ_PARTS
        try:
            values = await self._log.read(self.end + 1, count)
        except TruncatedError as error:
            self._founding.refuse_foreign()
            raise Behind(f"position {self.end + 1} is not in the log: {error}") from None
        try:
            await self._apply(values)
        except (BadEntryError, BadBatchError) as error:
            raise Stuck(f"behind position {self._replica.accepted.position}: {error}") from None
        return len(values)

    async def _apply(self, values: list[bytes]) -> None:
        batches: list[Batch] = []
        size = 0
        for value in values:
            self.end += 1
            entry = self._replica.take(self.end, value)
            if entry is None:
                continue
            batches.append(self._batch_of(entry))
            size += len(entry.body)
            if size >= APPLY_BYTES_MAX or entry.kind == CHECK:
                await self._commit(batches, self._replica.accepted)
                batches, size = [], 0
            if entry.kind == CHECK:
                self.checks.begin(entry.body, self.end)
        if batches:
            await self._commit(batches, self._replica.accepted)

    async def _commit(self, batches: list[Batch], position: Position) -> None:
        position.put(batches[-1])
        self._commit_under_way = self._in_thread(lambda: self._store.commit_all(batches))
        try:
            await asyncio.shield(self._commit_under_way)
        except StorageError as error:
            raise Stuck(str(error)) from None
        self._replica.applied = position

    def _batch_of(self, entry: Entry) -> Batch:
        if entry.kind == GENESIS:
            return self._founding.adopt(entry)
        self._founding.refuse_foreign()
        return decode_batch(entry.body) if entry.kind == BATCH else Batch()
