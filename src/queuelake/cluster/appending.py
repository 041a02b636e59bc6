"""Append an entry, or find out what became of it.

Each append names the position it must follow, so the very same one can be tried again: if an
earlier try is in the log, or comes there late, the later one is refused. What is in the log behind
that position says which of the two it was: our own bytes, or those of somebody else.
"""

from __future__ import annotations

import asyncio
from typing import Final

from queuelake.cluster.engine import (
    EngineError,
    Log,
    TruncatedError,
    UnavailableError,
)

PAUSE_S: Final = 0.1  # before an append is tried again


class OvertakenError(EngineError):
    """Somebody else's entry is where this one had to be: it is not in the log, and never will."""


class UnsettledError(EngineError):
    """Nobody can tell yet whether it is in the log, or will be."""


async def append_surely(log: Log, parts: list[bytes], after: int, patience_s: float) -> int:
    """Returns the position of the last part when all of them are in the log.

    Raises:
        OvertakenError, UnsettledError
    """
    there = 0
    trouble = EngineError("no answer")
    try:
        async with asyncio.timeout(patience_s):
            while True:
                try:
                    return await log.append(parts[there:], after + there)
                except EngineError as error:
                    trouble = error
                try:
                    there = await _parts_there(log, parts, after)
                except UnavailableError as error:
                    trouble = error
                if there == len(parts):
                    return after + there
                await asyncio.sleep(PAUSE_S)
    except TimeoutError:
        raise UnsettledError(
            f"append behind position {after} without outcome for {patience_s:g} s: {trouble}"
        ) from None


async def _parts_there(log: Log, parts: list[bytes], after: int) -> int:
    """How many of these parts are in the log already."""
    there = 0
    while there < len(parts):
        try:
            values = await log.read(after + there + 1, len(parts) - there)
        except TruncatedError as error:
            raise OvertakenError(f"position {after + there + 1} is cut off: {error}") from None
        if not values:
            break
        for value in values:
            if value != parts[there]:
                raise OvertakenError(f"position {after + there + 1} is somebody else's")
            there += 1
    return there
