"""Others who are served while the broker has much to do: their latency before and meanwhile.

One client publishes 1,000 messages a second to another, for a few seconds: as plain MQTT, and to a
durable queue. A figure is the median, over some rounds, of p99 meanwhile by p99 before.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Iterator

from figures import Figure, LoadError
from last_values import load
from loads import ONE_TO_ONE
from peers import Running

P99_TARGET = 2.0
ROUNDS = 5
PACED = (*ONE_TO_ONE, "--rate", "1000", "--duration", "4")
QUEUE = ("--topic", "$queue/bystanders", "--filter", "$queue/bystanders")
SETTLED = ("--sub-prop", "consumer-group=g", "--sub-prop", "ack-mode=puback")
KINDS = {"QoS 1": PACED, "a durable queue": (*PACED, *QUEUE, *SETTLED)}

Goes = Callable[[], bool]


class Rounds:
    """What is known of the time before, for each kind."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._before: dict[str, list[float]] = {}

    def before(self) -> Iterator[Figure]:
        for kind, flags in KINDS.items():
            self._before[kind] = [p99_ms(self._running, flags) for _ in range(ROUNDS)]
            yield Figure(f"{kind}: p99", statistics.median(self._before[kind]), "ms")

    def meanwhile(self, what: str, is_going_on: Goes) -> Iterator[Figure]:
        """Something was begun; it must not end before we have seen enough of it."""
        for kind, flags in KINDS.items():
            found = [p99_ms(self._running, flags) for _ in range(ROUNDS)]
            if not is_going_on():
                raise LoadError(f"{what} was over too soon: more of it would have to be done")
            pairs = zip(found, self._before[kind], strict=True)
            ratio = statistics.median(now / then for now, then in pairs)
            yield Figure(f"{what}: p99 of {kind}", statistics.median(found), "ms")
            yield Figure("the same, by that before", ratio, "x", P99_TARGET)


class Again:
    """Does something again and again, in a thread of its own."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.is_going_on = self._thread.is_alive

    def __enter__(self) -> Again:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._ended.is_set():
            self._act()


def p99_ms(running: Running, flags: tuple[str, ...]) -> float:
    return float(load(running, *flags)["lat_us"]["p99"]) / 1000
