"""A node becomes the owner: it reads to the end of the log and puts the barrier of its epoch there.

What a deposed owner had not finished is cut off by the barrier, and what it appends afterwards
names a position which is not the end any more. When it appends something first, the new owner's
barrier is refused, and it reads on.
"""

from __future__ import annotations

import asyncio
import logging

from queuelake.cluster.appending import PAUSE_S, OvertakenError, append_surely
from queuelake.cluster.engine import Log, UnavailableError
from queuelake.cluster.entry import split
from queuelake.cluster.follower import Follower
from queuelake.cluster.replica import Replica
from queuelake.errors import QueuelakeError

log = logging.getLogger("queuelake.cluster.taking_over")

PATIENCE_S = 10.0


async def take_over(
    shard: Log, follower: Follower, replica: Replica, epoch: int, patience_s: float = PATIENCE_S
) -> bool:
    """Whether the log is this node's now. `follower.run` must not be running.

    An epoch begins once: after False, try with the next one.
    """
    try:
        async with asyncio.timeout(patience_s):
            return await _take_over(shard, follower, replica, epoch, patience_s)
    except TimeoutError:
        log.warning("epoch %d not begun: not at the end of the log in %g s", epoch, patience_s)
    except QueuelakeError as error:
        log.warning("epoch %d not begun: %s", epoch, error)
    return False


async def _take_over(
    shard: Log, follower: Follower, replica: Replica, epoch: int, patience_s: float
) -> bool:
    while True:
        try:
            await follower.catch_up()
        except UnavailableError as error:  # as long as the log has no leader
            log.info("epoch %d is to begin: %s", epoch, error)
            await asyncio.sleep(PAUSE_S)
            continue
        if replica.accepted.epoch >= epoch:
            log.warning("epoch %d not begun: the log is at %d", epoch, replica.accepted.epoch)
            return False
        entry = follower.beginning(epoch)
        await follower.before_epoch(entry)
        parts = split(entry, shard.part_bytes_max)
        try:
            position = await append_surely(shard, parts, follower.end, patience_s)
        except OvertakenError:
            continue  # the old owner was faster, or a newer one
        await follower.begin_epoch(entry, position)
        return True
