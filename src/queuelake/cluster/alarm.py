"""One thing which is to happen in a while, unless something else is wanted before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """Of several which were set only the last one counts."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float, then: Callable[[], None]) -> None:
        self.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, then)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
