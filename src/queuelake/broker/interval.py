"""Something which is done again and again, with a setting between two times."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from queuelake.broker.clock import Clock, Timer, TimerWheel


@final
class Interval:
    """Calls `action(now_ms)`; how long it waits then is asked each time."""

    def __init__(
        self,
        clock: Clock,
        timers: TimerWheel,
        length_ms: Callable[[], int],
        action: Callable[[int], object],
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._length_ms = length_ms
        self._action = action
        self._timer: Timer | None = None

    def begin(self, after_ms: int) -> None:
        """The first time is then; what was due before is not any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.arm(self._clock.now_ms() + after_ms, self._due)

    def begin_anew(self) -> None:
        """The setting has changed."""
        self.begin(self._length_ms())

    def _due(self, now_ms: int) -> None:
        self.begin_anew()
        self._action(now_ms)
