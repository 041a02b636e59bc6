"""Time for the broker: one clock, one timer wheel.

`now_ms` is wall time which never jumps: it is read once at start and then follows the monotonic
clock, so that a corrected system clock neither expires messages nor holds them back. The wheel
fires timers to a quarter of a second, which is enough for keep-alives, wills and expiries, and
costs one wake-up a slot however many timers there are.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, final

log = logging.getLogger("queuelake.clock")

SLOT_MS: Final = 250


@final
class Clock:
    """Wall time in milliseconds, steady while the process lives."""

    __slots__ = ("_monotonic_ns", "_offset_ns", "coarse_ms", "started_ms")

    def __init__(
        self, monotonic_ns: Callable[[], int] = time.monotonic_ns, wall_ns: int = 0
    ) -> None:
        self._monotonic_ns: Callable[[], int] = monotonic_ns
        self._offset_ns: int = (wall_ns or time.time_ns()) - monotonic_ns()
        self.started_ms: int = self.now_ms()
        self.coarse_ms: int = self.started_ms  # as of the last turn of the wheel

    def now_ms(self) -> int:
        return (self._monotonic_ns() + self._offset_ns) // 1_000_000


@final
class Timer:
    """An armed action; cancel it to forget the action and all it refers to."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[int], None]) -> None:
        self.action: Callable[[int], None] | None = action

    def cancel(self) -> None:
        self.action = None


@final
class TimerWheel:
    """Timers by slot. `turn` is called about once a slot and fires what is due."""

    __slots__ = ("_slot", "_slots")

    def __init__(self, now_ms: int) -> None:
        self._slots: dict[int, list[Timer]] = {}
        self._slot: int = now_ms // SLOT_MS

    def arm(self, due_ms: int, action: Callable[[int], None]) -> Timer:
        timer = Timer(action)
        # A timer fires in the slot after the one it is due in: never early.
        slot = max(due_ms // SLOT_MS + 1, self._slot + 1)
        waiting = self._slots.get(slot)
        if waiting is None:
            self._slots[slot] = [timer]
        else:
            waiting.append(timer)
        return timer

    def turn(self, now_ms: int) -> int:
        """Fire everything due; returns how many timers fired."""
        current = now_ms // SLOT_MS
        fired = 0
        while self._slot < current:
            self._slot += 1
            for timer in self._slots.pop(self._slot, ()):
                action = timer.action
                if action is not None:
                    timer.action = None
                    fired += 1
                    try:
                        action(now_ms)
                    except Exception:  # a bug in one action must not stop everybody's timers
                        log.exception("timer")
        return fired
