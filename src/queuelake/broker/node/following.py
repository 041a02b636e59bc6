"""A node which is not the owner: it follows the log, and copies a store when the log has not all.

Whatever goes wrong is told as the node's problem, and tried again. A node with a problem does not
become the owner; the problem is over when everything in the log is in the store.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from queuelake.cluster.copying import fetch_copy, install_copy
from queuelake.cluster.engine import EngineError
from queuelake.cluster.founding import Behind
from queuelake.cluster.replica import DivergedError
from queuelake.errors import QueuelakeError, StorageError

if TYPE_CHECKING:
    from queuelake.broker.node.member import Member

log = logging.getLogger("queuelake.node")

AGAIN_S: Final = 1.0


class Following:
    def __init__(self, member: Member) -> None:
        self.problem = ""
        self.copies = 0  # of another node's store
        self.is_copying = False
        self._member = member
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        assert self._task is None, "one at a time writes to the store"
        self._task = asyncio.create_task(self._follow_for_ever())

    async def stop(self) -> None:
        """When it returns nothing is read any more; see `Follower.close` for what is written."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def note_problem(self, problem: str) -> None:
        if problem != self.problem:
            log.error("%s", problem)
        self.problem = problem

    async def _follow_for_ever(self) -> None:
        while True:
            try:
                await self._follow()
            except EngineError as error:
                log.info("the log is not read: %s", error)
            except StorageError as error:  # the own store fails, or is not of this cluster
                self.note_problem(str(error))
            except Exception as error:
                log.exception("following the log")
                self.note_problem(f"internal error while following the log: {error!r}")
            await asyncio.sleep(AGAIN_S)

    async def _follow(self) -> None:
        member = self._member
        try:
            if self.problem:
                await member.follower.catch_up()
                log.warning("this node has caught up; before: %s", self.problem)
                self.problem = ""
            await member.follower.run()
        except (Behind, DivergedError) as error:
            self.note_problem(str(error))
            await self._copy()

    async def _copy(self) -> None:
        """Replace the store by a copy of the owner's."""
        member = self._member
        owner = member.owner()
        if not owner or owner == member.name:
            raise StorageError("a copy of the store is needed, and there is no owner to ask")
        self.is_copying = True
        try:
            await fetch_copy(member.tunnels, owner, member.directory, shard=member.shard)
            await member.follower.close()
            async with member.heart.not_syncing:
                member.store.close()
                try:
                    install_copy(member.directory)
                finally:
                    member.store_replaced()
        except (QueuelakeError, OSError) as error:
            raise StorageError(f"the store of {owner} could not be copied: {error}") from error
        finally:
            self.is_copying = False
        self.copies += 1
        self.problem = ""
        log.warning("the store is a copy of that of %s now", owner)
