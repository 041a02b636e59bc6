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
SWEEP_TIMERS_MIN: Final = 1024


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

    __slots__ = ("_count", "_slot", "_slots", "_sweep_at")

    def __init__(self, now_ms: int) -> None:
        self._slots: dict[int, list[Timer]] = {}
        self._count: int = 0
        self._sweep_at: int = SWEEP_TIMERS_MIN
        self._slot: int = now_ms // SLOT_MS

    def __len__(self) -> int:
        """How many timers are kept, cancelled ones included until they are swept away."""
        return self._count

    def arm(self, due_ms: int, action: Callable[[int], None]) -> Timer:
        if self._count >= self._sweep_at:
            self._sweep()
        self._count += 1
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
            due = self._slots.pop(self._slot, None)
            if due is None:
                continue
            self._count -= len(due)
            for timer in due:
                action = timer.action
                if action is not None:
                    timer.action = None
                    fired += 1
                    try:
                        action(now_ms)
                    except Exception:  # a bug in one action must not stop everybody's timers
                        log.exception("timer")
        return fired

    def _sweep(self) -> None:
        """Forget cancelled timers: a client which comes and goes leaves one behind each time."""
        slots: dict[int, list[Timer]] = {}
        count = 0
        for slot, timers in self._slots.items():
            live = [timer for timer in timers if timer.action is not None]
            if live:
                slots[slot] = live
                count += len(live)
        self._slots = slots
        self._count = count
        self._sweep_at = max(SWEEP_TIMERS_MIN, 2 * count)
