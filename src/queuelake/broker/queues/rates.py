"""Messages per second of a queue, over the last ten seconds."""

from __future__ import annotations

from typing import Final, final

from queuelake.engine.counters import Counters

SAMPLES_MAX: Final = 11


@final
class Rates:
    """One sample a second: when, and the counters then."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: list[tuple[int, int, int, int]] = []

    def sample(self, now_ms: int, counters: Counters) -> None:
        self._samples.append((now_ms, counters.enqueued, counters.delivered, counters.acked))
        if len(self._samples) > SAMPLES_MAX:
            del self._samples[0]

    def per_second(self) -> tuple[float, float, float]:
        """Enqueued, delivered, acknowledged."""
        if len(self._samples) < 2:
            return 0.0, 0.0, 0.0
        first, last = self._samples[0], self._samples[-1]
        seconds = max(1, last[0] - first[0]) / 1000
        return (
            (last[1] - first[1]) / seconds,
            (last[2] - first[2]) / seconds,
            (last[3] - first[3]) / seconds,
        )
