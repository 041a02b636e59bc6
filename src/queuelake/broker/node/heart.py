"""What a node does every second: tell the others how it is, sync its store, cut the log."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from queuelake import __version__
from queuelake.broker.node.roster import OWNER, Report
from queuelake.errors import QueuelakeError

if TYPE_CHECKING:
    from queuelake.broker.node.member import Member

log = logging.getLogger("queuelake.node")

BEAT_S: Final = 1.0
SYNC_EVERY_BEATS: Final = 5
# What is kept though every node has it: one which comes back, or is new, need not copy a store.
LOG_BYTES_KEPT: Final = 64 * 1024 * 1024


class Heart:
    def __init__(self, member: Member) -> None:
        self._member = member
        self._tidying = False
        self.synced = 0  # the position this node has whatever happens to its machine
        self.not_syncing = asyncio.Lock()  # who replaces the store holds it

    async def beat(self) -> None:
        """For ever."""
        beats = 0
        while True:
            self.tell()
            if beats % SYNC_EVERY_BEATS == 0 and not self._tidying:
                self._member.spawn(self._tidy())
            beats += 1
            await asyncio.sleep(BEAT_S)

    async def _tidy(self) -> None:
        """Beside the beats: a slow disk or log must not make a node look dead."""
        self._tidying = True
        try:
            await self._sync()
            await self._truncate()
        except QueuelakeError as error:
            log.debug("sync, or cutting the log: %s", error)
        except Exception:  # the next time may be better; nothing hangs on it
            log.exception("sync, or cutting the log")
        finally:
            self._tidying = False

    def tell(self) -> None:
        """Tell the others now: something has changed."""
        self._member.roster.say(self.report())

    def report(self) -> Report:
        member = self._member
        following = member.following
        applied = member.replica.applied
        role = OWNER if member.serving is not None else "stuck" if following.problem else "replica"
        return Report(
            member.name,
            "copying" if following.is_copying else role,
            applied.position,
            applied.epoch,
            applied.chain,
            self.synced,
            __version__,
            list(member.place.addresses),
            member.draining,
            following.problem,
        )

    async def _sync(self) -> None:
        member = self._member
        async with self.not_syncing:
            position = member.replica.applied.position
            await member.in_thread(member.store.sync)
            self.synced = position

    async def _truncate(self) -> None:
        """The owner forgets what nobody needs."""
        member = self._member
        if member.serving is None:
            return
        size, limit = await member.log.size_bytes(), member.config.log_bytes_max
        known = [report.synced for report, _ in member.roster.all()]
        alive = [report.synced for report in member.roster.alive()]
        upto = needless(size, limit, [self.synced, *known], [self.synced, *alive])
        first, _ = await member.log.ends()
        if upto >= first:
            await member.log.truncate(upto)


def needless(size: int, limit: int, known: list[int], alive: list[int]) -> int:
    """Up to where a log of this size can be cut: what every node has synced, those which are dead
    included until the log has its full size. 0 while it is so short that a copy costs more."""
    if size < min(LOG_BYTES_KEPT, limit):
        return 0
    return min(known if size < limit else alive)
