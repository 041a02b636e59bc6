"""Consumers which can get a message now: high priority first, equals in turn."""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import final

from queuelake.engine.quorum.sessions import Consumer


@final
class ServiceQueue:
    __slots__ = ("_lines", "_order")

    def __init__(self) -> None:
        self._order: list[int] = []  # negative priorities which have somebody
        self._lines: dict[int, deque[Consumer]] = {}

    def is_empty(self) -> bool:
        return not self._order

    def enter(self, consumer: Consumer) -> None:
        """Behind its equals, if it can get a message and is not here."""
        if consumer.in_service or not consumer.may_be_served():
            return
        consumer.in_service = True
        order = -consumer.priority
        line = self._lines.get(order)
        if line is None:
            line = self._lines[order] = deque()
            insort(self._order, order)
        line.append(consumer)

    def leave(self, consumer: Consumer) -> None:
        """It is here by the priority it had when it entered."""
        if consumer.in_service:
            consumer.in_service = False
            order = -consumer.priority
            line = self._lines[order]
            line.remove(consumer)
            if not line:
                del self._lines[order]
                self._order.remove(order)

    def first(self) -> Consumer:
        """Whose turn it is; the caller knows there is one."""
        return self._lines[self._order[0]][0]

    def served(self) -> None:
        """The first has got a message: equals go before it now, and without credit it leaves."""
        line = self._lines[self._order[0]]
        consumer = line[0]
        if not consumer.may_be_served():
            self.leave(consumer)
        elif len(line) > 1:
            line.rotate(-1)

    def in_order(self) -> list[Consumer]:
        return [consumer for order in self._order for consumer in self._lines[order]]
