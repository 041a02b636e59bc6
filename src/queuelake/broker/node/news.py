"""How far the log reaches, told to the nodes which follow it.

Not after each append: a follower does nothing but keep a copy, and what it reads and commits
together costs it, its disk and NATS little more than one entry does. Who takes over reads to the
end of the log anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from queuelake.cluster.engine import Messenger

INTERVAL_S: Final = 0.05
_SUBJECT: Final = "log"


class News:
    def __init__(self, messenger: Messenger) -> None:
        self._messenger = messenger
        self._position = 0
        self._timer: asyncio.TimerHandle | None = None

    async def hear(self, told: Callable[[int], None]) -> None:
        """Call back with each position another node, or this one, tells."""
        await self._messenger.receive(_SUBJECT, lambda data: told(int.from_bytes(data, "big")))

    def tell(self, position: int) -> None:
        """Soon, unless there is a later one by then."""
        self._position = position
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._send)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _send(self) -> None:
        self._timer = None
        self._messenger.send(_SUBJECT, self._position.to_bytes(8, "big"))
