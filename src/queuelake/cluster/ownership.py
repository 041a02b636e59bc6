"""Who owns a shard: a record which is renewed by its owner and taken by whoever misses that.

Rule 1. The record changes by compare-and-set only, and each claim has the next epoch, so no epoch
        has two owners, whatever any clock says.
Rule 2. Clocks decide when somebody tries, never who is right. That a deposed owner is not heard is
        the work of the log: see `Log.append` and `replica`.
Rule 3. An owner counts its lease from before it asked for it, everybody else from when they saw
        it. So the owner stops first, unless its clock runs much slower than that of the others.
Rule 4. A write whose outcome is unknown is never taken for done or for not done: the record is
        read until it tells, or until the lease is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar, final

from queuelake.cluster.engine import (
    ConflictingWriteError,
    EngineError,
    Lease,
    Leases,
    Messenger,
)

log = logging.getLogger("queuelake.ownership")

# All as parts of the lease.
LOOK_EVERY = 1 / 5
RENEW_EVERY = 1 / 3
RETRY_EVERY = 1 / 15  # when the engine did not tell
CALL_MAX = 1 / 5  # how long one call of the engine may take
PATIENCE_MAX = 1 / 5  # so that not all claim a lost lease in the same moment
JITTER_MAX = 1 / 20  # the same for one which was given up: there the wait is lost time

WATCH_S_MIN = 0.001

T = TypeVar("T")


@final
class Tenure:
    """One claim of ours that succeeded, until it ends."""

    __slots__ = ("epoch", "renewed_at", "revision", "taken_over", "unsure_at")

    def __init__(self, epoch: int, revision: int, renewed_at: float) -> None:
        self.epoch = epoch
        self.revision = revision  # of the record as we know it
        self.renewed_at = renewed_at
        self.unsure_at: float | None = None  # when the first write of unknown outcome was sent
        self.taken_over = False


@final
class Ownership:
    """One node's part in the question who owns a shard.

    - `fit` tells whether this node may become the owner now.
    - `take_over(epoch)` is called when the record is ours; True makes us the owner. It is cancelled
      when the record is lost meanwhile. After False or an error the record is given up.
    - `lost(reason)` is called once for each `take_over` which returned True, unless `release` was
      called since: this node is not the owner any more.
    - `give_way_s(former)` tells how long other nodes may go first when `former` is gone, or when
      nobody had it ("").
    """

    def __init__(
        self,
        leases: Leases,
        messenger: Messenger,
        node: str,
        lease_s: float,
        clock: Callable[[], float],
        dice: random.Random,
        *,
        fit: Callable[[], bool],
        take_over: Callable[[int], Awaitable[bool]],
        lost: Callable[[str], None],
        give_way_s: Callable[[str], float] = lambda former: 0.0,
        subject: str = "lease",
        logger: logging.Logger = log,
    ) -> None:
        self._leases = leases
        self._messenger = messenger
        self._node = node
        self._lease_s = lease_s
        self._clock = clock
        self._dice = dice
        self._fit = fit
        self._take_over = take_over
        self._lost = lost
        self._give_way_s = give_way_s
        self._logger = logger
        self._subject = subject  # where the others hear that the record was given up
        self.lease: Lease | None = None  # last seen
        self._revision = -1  # of it; below that of no record at all
        self._seen_at = clock()  # when this revision was first seen
        self._patience_s = 0.0
        self._may_go_at: float | None = None  # after others which go first, if nobody owns it
        self._tenure: Tenure | None = None
        self._record = asyncio.Lock()  # one of us at a time reads and writes it
        self._woken = asyncio.Event()

    @property
    def is_owner(self) -> bool:
        """Took over, and its lease is not over: true at once also after a pause of the process."""
        tenure = self._tenure
        return tenure is not None and tenure.taken_over and self._left_s(tenure) > 0

    @property
    def age_s(self) -> float:
        """Since the record was renewed, as far as this node knows."""
        tenure = self._tenure
        return self._clock() - (self._seen_at if tenure is None else tenure.renewed_at)

    async def run(self) -> None:
        """Follow or own, for ever."""
        await self._messenger.receive(self._subject, lambda data: self.wake())
        while True:
            tenure = await self._follow()
            if tenure is None:
                await self._pause(self._until_look_s())
            else:
                await self._reign(tenure)

    def wake(self) -> None:
        """Something may have changed: look at the record now."""
        self._woken.set()

    async def release(self, heir: str = "") -> None:
        """Give the record up, to `heir` if named. The caller has stopped what the owner does.

        Takes no longer than a lease: who does not hear of it may claim the record by then.
        """
        tenure, self._tenure = self._tenure, None  # from here on nothing of it is lost any more
        self.wake()
        async with self._record:
            tenure, self._tenure = tenure or self._tenure, None
            if tenure is None:
                return
            if await self._give_up(tenure, heir):
                self._logger.info(
                    "epoch %d ends: given up, next is %s", tenure.epoch, heir or "anybody"
                )
                self._messenger.send(self._subject, heir.encode())

    # As one of the others

    async def _follow(self) -> Tenure | None:
        """Look at the record, claim it if that may be."""
        async with self._record:
            if not await self._look() or not self._fit() or not await self._may_claim():
                return None
            return await self._claim()

    def _until_look_s(self) -> float:
        left_s = 0.0 if self._may_go_at is None else self._may_go_at - self._clock()
        often_s = self._lease_s * LOOK_EVERY
        return left_s if 0 < left_s < often_s else often_s

    async def _look(self) -> bool:
        try:
            lease, revision = await self._call(self._leases.read())
        except (EngineError, TimeoutError) as error:
            self._logger.debug("cannot read the lease: %s", error)
            return False
        if revision > self._revision:  # else it is what we know, or older: from one who is behind
            self._revision = revision
            self.lease = lease
            self._seen_at = self._clock()
            self._may_go_at = None
            self._patience_s = self._dice.uniform(0, self._lease_s * PATIENCE_MAX)
        return True

    async def _may_claim(self) -> bool:
        lease = self.lease
        if lease is None or not (lease.node or lease.heir):
            await asyncio.sleep(self._dice.uniform(0, self._lease_s * JITTER_MAX))
            return self._has_given_way("")
        first = lease.node or lease.heir
        if first == self._node:  # as the heir, or what was ours in a life before
            return True
        if self._clock() - self._seen_at >= self._lease_s + self._patience_s:
            return True
        try:
            is_there = await self._call(self._messenger.is_there(first))
        except (EngineError, TimeoutError):
            return False
        if is_there:
            self._may_go_at = None
            return False
        return self._has_given_way(first)

    def _has_given_way(self, former: str) -> bool:
        """Another node may be a better place: it looks now, and has a moment to be first."""
        if self._may_go_at is None:
            wait_s = self._give_way_s(former)
            self._may_go_at = self._clock() + wait_s
            if wait_s:
                self._messenger.send(self._subject, b"")
        return self._clock() >= self._may_go_at

    async def _claim(self) -> Tenure | None:
        """A claim of unknown outcome needs no care: if it was done, the record names us next time,
        and is claimed again."""
        before = "" if self.lease is None else self.lease.node
        lease = Lease(1 if self.lease is None else self.lease.epoch + 1, self._node)
        sent_at = self._clock()
        try:
            revision = await self._call(self._leases.write(lease, max(0, self._revision)))
        except (EngineError, TimeoutError) as error:
            self._logger.info("epoch %d is not ours: %s", lease.epoch, error or "no answer")
            return None
        self._logger.info("epoch %d is ours, after %s", lease.epoch, before or "nobody")
        self.lease, self._revision, self._seen_at = lease, revision, self._clock()
        self._tenure = Tenure(lease.epoch, revision, sent_at)
        return self._tenure

    # As the one the record names

    async def _reign(self, tenure: Tenure) -> None:
        """Take over and renew, until it is lost or given up."""
        taking = asyncio.create_task(self._take(tenure))
        taking.add_done_callback(lambda done: self.wake())
        self._watch(tenure)
        try:
            while self._tenure is tenure:
                await self._pause(self._until_renewal_s(tenure))
                if taking.done() and not tenure.taken_over:
                    await self.release()
                    await asyncio.sleep(self._lease_s * LOOK_EVERY)  # others may do better
                    return
                async with self._record:
                    problem = await self._renew(tenure)
                if problem:
                    self._end(tenure, problem)
        finally:
            taking.cancel()
            await asyncio.wait([taking])

    def _watch(self, tenure: Tenure) -> None:
        """End it when the lease is over. A timer and no task: when a process goes on after a pause,
        this comes before anything it has to say to its clients."""
        if self._tenure is tenure:
            left_s = self._left_s(tenure)
            if left_s > 0:
                loop = asyncio.get_running_loop()
                loop.call_later(max(left_s, WATCH_S_MIN), self._watch, tenure)
            else:
                self._end(tenure, f"the lease of {self._lease_s:g} s was not renewed in time")

    def _end(self, tenure: Tenure, problem: str) -> None:
        if self._tenure is tenure:
            self._tenure = None
            self.wake()
            self._logger.warning("epoch %d ends: %s", tenure.epoch, problem)
            if tenure.taken_over:
                self._lost(problem)

    async def _take(self, tenure: Tenure) -> None:
        try:
            tenure.taken_over = await self._take_over(tenure.epoch)
        except EngineError as error:
            self._logger.warning("cannot take over in epoch %d: %s", tenure.epoch, error)
        except Exception:
            self._logger.exception("taking over in epoch %d", tenure.epoch)
        if tenure.taken_over and self._tenure is not tenure:
            self._lost("the lease was over before this node had taken over")

    def _until_renewal_s(self, tenure: Tenure) -> float:
        if tenure.unsure_at is not None:
            return self._lease_s * RETRY_EVERY
        return tenure.renewed_at + self._lease_s * RENEW_EVERY - self._clock()

    def _left_s(self, tenure: Tenure) -> float:
        return tenure.renewed_at + self._lease_s - self._clock()

    async def _renew(self, tenure: Tenure) -> str:
        """One try; tells why it is over, or nothing."""
        if self._tenure is not tenure:
            return ""
        return await self._find_out(tenure) or await self._try_to_renew(tenure)

    async def _try_to_renew(self, tenure: Tenure) -> str:
        sure = tenure.unsure_at is None
        sent_at = self._clock()
        if sure:
            tenure.unsure_at = sent_at  # until there is an answer
        try:
            lease = Lease(tenure.epoch, self._node)
            revision = await self._call(self._leases.write(lease, tenure.revision))
        except ConflictingWriteError:
            # After one of unknown outcome it may be that write of ours which was done.
            return "another node has the lease" if sure else ""
        except (EngineError, TimeoutError):
            return ""
        self._renewed(tenure, revision, sent_at)
        return ""

    def _renewed(self, tenure: Tenure, revision: int, sent_at: float) -> None:
        # What was written against an older revision and did not answer is settled by this.
        tenure.revision = self._revision = revision
        tenure.renewed_at = sent_at
        tenure.unsure_at = None

    async def _find_out(self, tenure: Tenure) -> str:
        """After a write of unknown outcome: what does the record say?"""
        if tenure.unsure_at is None:
            return ""
        try:
            lease, revision = await self._call(self._leases.read())
        except (EngineError, TimeoutError):
            return ""
        if revision < tenure.revision:  # from one who is behind
            return ""
        if lease is None or lease.epoch != tenure.epoch or lease.node != self._node:
            self.lease, self._revision = lease, revision
            return f"{'nobody' if lease is None else lease.node or 'nobody'} has the lease"
        if revision > tenure.revision:
            self._renewed(tenure, revision, tenure.unsure_at)
        return ""

    async def _give_up(self, tenure: Tenure, heir: str) -> bool:
        """Write that nobody owns it, until it is known to be so or to be none of our business."""
        free = Lease(tenure.epoch, "", heir)
        until = self._clock() + self._lease_s
        while self._clock() < until:
            if await self._find_out(tenure):
                return True  # it was ours until this very write, or somebody has it already
            try:
                self._revision = await self._call(self._leases.write(free, tenure.revision))
            except ConflictingWriteError:
                if tenure.unsure_at is None:
                    return False
            except (EngineError, TimeoutError):
                tenure.unsure_at = tenure.unsure_at or tenure.renewed_at
            else:
                self.lease = free
                self._seen_at = self._clock()
                return True
            await asyncio.sleep(self._lease_s * RETRY_EVERY)
        return False

    # Waiting

    async def _call(self, call: Awaitable[T]) -> T:
        """Ask the engine. TimeoutError tells as little as `UnknownOutcomeError`."""
        async with asyncio.timeout(self._lease_s * CALL_MAX):
            return await call

    async def _pause(self, seconds: float) -> None:
        """Until the time is over, or somebody called `wake` since the last pause."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._woken.wait()
        self._woken.clear()
