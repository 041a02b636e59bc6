"""Publishers: nothing they send is stored twice.

Two ways to say that a message is the same again. A publisher with a session numbers its messages
1, 2, 3...: what is below the next number was stored before, what is above it is parked until the
gap is filled. A publisher without one gives its messages ids, and a repeated id counts as the same
for a while (`dedupe_window`), across connections and restarts.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

PARKED_MAX: Final = 1024

NEW: Final = 0
REPEATED: Final = 1
PARKED: Final = 2
TOO_FAR: Final = 3


@final
class PublisherSession:
    """One publisher's numbers."""

    __slots__ = ("next", "parked")

    def __init__(self, next_number: int = 1) -> None:
        self.next: int = next_number
        self.parked: dict[int, object] = {}  # commands, or what a queue made of them

    def check(self, number: int) -> int:
        """What this number means; changes nothing."""
        if number < self.next:
            return REPEATED
        if number == self.next:
            return NEW
        return PARKED if len(self.parked) < PARKED_MAX or number in self.parked else TOO_FAR

    def take_parked(self) -> object | None:
        """What is next in number, if it is here."""
        return self.parked.pop(self.next, None)


@final
class MessageIds:
    """Hashes of ids seen lately."""

    __slots__ = ("_order", "added", "until")

    def __init__(self) -> None:
        self.until: dict[bytes, int] = {}  # hash -> until when it counts
        self._order: deque[bytes] = deque()  # oldest first
        self.added: list[bytes] = []  # those the store does not have yet

    def is_known(self, digest: bytes, now_ms: int) -> bool:
        return self.until.get(digest, 0) > now_ms

    def add(self, digest: bytes, now_ms: int, until_ms: int) -> None:
        self.forget(now_ms, 2)  # more than come
        self.restore(digest, until_ms)
        self.added.append(digest)

    def forget(self, now_ms: int, count_max: int) -> None:
        """Those whose time is over: a few at a time, there may be a million."""
        order = self._order
        for _ in range(count_max):
            if not order or self.until.get(order[0], 0) > now_ms:
                return
            self.until.pop(order.popleft(), None)

    def restore(self, digest: bytes, until_ms: int) -> None:
        """As the store has it; they come in order of time."""
        self.until[digest] = until_ms
        self._order.append(digest)
