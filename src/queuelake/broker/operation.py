"""What operations of the control socket share: their shape, pages, waiting for the commit."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Final

from queuelake.broker.runner import Runner
from queuelake.errors import RefusedError, StorageError

ITEMS_PER_PAGE_MAX: Final = 1_000

Operation = Callable[[dict[str, object]], object | Awaitable[object]]


async def perform(operation: Operation, args: dict[str, object]) -> object:
    """Its result, whether it is there at once or has to be waited for."""
    result = operation(args)
    return await result if inspect.isawaitable(result) else result


def page_limit(args: dict[str, object], most: int = ITEMS_PER_PAGE_MAX) -> int:
    """How many items somebody wants in a page."""
    limit = args.get("limit", 100)
    if not isinstance(limit, int) or not 1 <= limit <= most:
        raise RefusedError(f"limit is {limit!r}, may be 1 to {most}")
    return limit


def stored(runner: Runner) -> asyncio.Future[None]:
    """Done when the group being collected is durable; a StorageError when it has failed."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def succeeded() -> None:
        if not done.done():
            done.set_result(None)

    def failed() -> None:
        if not done.done():
            done.set_exception(StorageError(f"not stored so far: {runner.failure}"))

    runner.if_failed(failed)
    runner.after_durable(succeeded)
    return done
