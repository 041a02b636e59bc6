"""Settlements which wait for a message to be committed with; see `pace`."""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from typing import final

from queuelake.broker.group import Group
from queuelake.broker.pace import Pace


@final
class Company:
    """For the group being collected; `wake` is called when it has waited in vain."""

    __slots__ = ("_loop", "_pace", "_timer", "_waited", "_wake")

    def __init__(self, loop: AbstractEventLoop, pace: Pace, wake: Callable[[], None]) -> None:
        self._loop: AbstractEventLoop = loop
        self._pace: Pace = pace
        self._wake: Callable[[], None] = wake
        self._timer: TimerHandle | None = None
        self._waited: bool = False

    def is_expected(self, group: Group, now_ms: int) -> bool:
        """Whether the group has only settlements, and a message comes soon."""
        pace = self._pace
        wait_ms = pace.company_ms(now_ms)
        if wait_ms == 0.0 or self._waited or pace.has_published() or group.is_awaited():
            return False
        if self._timer is None:
            self._timer = self._loop.call_later(wait_ms / 1000, self._nobody_came)
        return True

    def sealed(self, group: Group, now_ms: int) -> None:
        self._pace.sealed(len(group.messages), now_ms)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waited = False

    def _nobody_came(self) -> None:
        self._timer = None
        self._waited = True
        self._wake()
