"""What a node does every second: tell the others how it is, sync its store, cut the log."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

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
        self.synced = 0  # the position this node has whatever happens to its machine

    async def beat(self) -> None:
        """For ever."""
        beats = 0
        while True:
            try:
                if beats % SYNC_EVERY_BEATS == 0:
                    await self._sync()
                    await self._truncate()
                self._member.forget_problem()
                self._member.roster.say(self._member.report())
            except (QueuelakeError, OSError) as error:
                log.debug("beat: %s", error)
            beats += 1
            await asyncio.sleep(BEAT_S)

    async def _sync(self) -> None:
        member = self._member
        position = member.replica.applied.position
        await member.in_thread(member.store.sync)
        self.synced = position

    async def _truncate(self) -> None:
        """The owner forgets what every node has, and what nobody should wait for any longer."""
        member = self._member
        if member.serving is None:
            return
        size, limit = await member.log.size_bytes(), member.config.log_bytes_max
        if size < min(LOG_BYTES_KEPT, limit):
            return
        known = [report for report, _ in member.roster.all()]
        waited_for = known if size < limit else member.roster.alive()
        upto = min([self.synced, *[one.synced for one in waited_for]])
        first, _ = await member.log.ends()
        if upto >= first:
            await member.log.truncate(upto)
