"""Deliveries which wait until the store knows of them, so that none overtakes another.

What the store knows of may leave at once, but not before an earlier delivery to the same consumer:
first deliveries come in order. So when a group is stored, its deliveries leave, and behind them
those which were claimed by that group while they waited for the next one.
"""

from __future__ import annotations

from typing import final

from queuelake.engine.effects import Deliver


@final
class Outbox:
    """Of one queue: `put` what was handed out, `seal` it with its group, send what is `stored`."""

    __slots__ = ("_collected", "_sealed")

    def __init__(self) -> None:
        self._collected: list[Deliver] = []  # leave when the group being collected is stored
        self._sealed: list[Deliver] = []  # leave when the one being stored is

    def put(self, delivery: Deliver) -> bool:
        """Whether it leaves now; it is kept otherwise."""
        consumer = delivery.consumer
        if consumer.unsent == 0 and delivery.is_claimed():
            return True
        consumer.unsent += 1
        self._collected.append(delivery)
        return False

    def is_waiting(self) -> bool:
        """Whether something leaves with the group being collected."""
        return len(self._collected) > 0

    def seal(self) -> None:
        """The group being collected is on its way to the store."""
        assert not self._sealed
        self._sealed = self._collected
        self._collected = []

    def stored(self) -> list[Deliver]:
        """The sealed group is durable: what leaves now, in order."""
        leaving = self._sealed
        self._sealed = []
        collected = self._collected
        if collected:
            self._collected = []
            waiting: set[str] = set()
            for delivery in collected:
                name = delivery.consumer.name
                if name not in waiting and delivery.is_claimed():
                    leaving.append(delivery)
                else:
                    waiting.add(name)
                    self._collected.append(delivery)
        for delivery in leaving:
            delivery.consumer.unsent -= 1
        return leaving
