"""What is due when: one moment for each number, and the earliest of them without a search."""

from __future__ import annotations

import heapq
from typing import Final, final

STALE_MIN: Final = 64


@final
class Alarms:
    """`due_ms` says it all; the heap may hold what is no longer so, and forgets it in time."""

    __slots__ = ("_heap", "due_ms")

    def __init__(self) -> None:
        self.due_ms: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def set(self, number: int, due_ms: int) -> None:
        if self.due_ms.get(number) == due_ms:
            return
        self.due_ms[number] = due_ms
        heapq.heappush(self._heap, (due_ms, number))
        if len(self._heap) > 2 * len(self.due_ms) + STALE_MIN:
            self.tidy()

    def clear(self, number: int) -> None:
        self.due_ms.pop(number, None)

    def clear_all(self) -> None:
        self.due_ms.clear()
        self._heap.clear()

    def next_ms(self) -> int:
        """The earliest moment; 0: there is none."""
        heap = self._heap
        while heap and self.due_ms.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else 0

    def take_next(self) -> int:
        """The number which is due first, and with that no more; the caller knows there is one."""
        assert self.next_ms()
        number = heapq.heappop(self._heap)[1]
        del self.due_ms[number]
        return number

    def take_due(self, now_ms: int) -> list[int]:
        """The numbers whose moment has come, in order."""
        found: list[int] = []
        while 0 < self.next_ms() <= now_ms:
            found.append(self.take_next())
        return found

    def tidy(self) -> None:
        self._heap = [(due_ms, number) for number, due_ms in self.due_ms.items()]
        heapq.heapify(self._heap)
