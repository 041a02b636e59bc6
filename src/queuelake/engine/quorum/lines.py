"""Messages which are ready: a line of those which returned, then one line for each priority.

The line of returns is served first, in order of return, whatever their priority was.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from queuelake.engine.quorum.message import Message

_RETURNS: Final = -1


@final
class Lines:
    """`count` and `size` are those of all lines together."""

    __slots__ = ("count", "levels", "mask", "returns", "size")

    def __init__(self) -> None:
        self.returns: deque[Message] = deque()
        self.levels: dict[int, deque[Message]] = {}
        self.mask: int = 0  # which levels have messages: the highest bit is served first
        self.count: int = 0
        self.size: int = 0

    def put(self, message: Message) -> None:
        """A new message, to the end of the line of its priority."""
        level = message.priority
        line = self.levels.get(level)
        if line is None:
            line = self.levels[level] = deque()
        line.append(message)
        self.mask |= 1 << level
        self.count += 1
        self.size += message.size

    def put_return(self, message: Message) -> None:
        self.returns.append(message)
        self.count += 1
        self.size += message.size

    def take(self) -> Message:
        """Whose turn it is, out of its line."""
        return self._take(_RETURNS if self.returns else self.mask.bit_length() - 1)

    def take_oldest(self) -> Message:
        """Of the heads of all lines the one which was written first."""
        oldest = _RETURNS
        index = self.returns[0].index if self.returns else 0
        for level in self._used_levels():
            head = self.levels[level][0]
            if not index or head.index < index:
                oldest, index = level, head.index
        return self._take(oldest)

    def take_expired(self, now_ms: int) -> list[Message]:
        """What has lived long enough at the head of a line, and what comes to the head by that."""
        found: list[Message] = []
        while self.returns and self.returns[0].is_expired(now_ms):
            found.append(self._take(_RETURNS))
        for level in self._used_levels():
            line = self.levels[level]
            while line and line[0].is_expired(now_ms):
                found.append(self._take(level))
        return found

    def next_expiry_ms(self) -> int:
        """When the first head expires; 0: none does."""
        first_ms = self.returns[0].expires_ms if self.returns else 0
        for level in self._used_levels():
            expires_ms = self.levels[level][0].expires_ms
            if expires_ms and (not first_ms or expires_ms < first_ms):
                first_ms = expires_ms
        return first_ms

    def at(self, place: int) -> Message:
        """The message before which so many others have their turn."""
        if place < len(self.returns):
            return self.returns[place]
        place -= len(self.returns)
        for level in reversed(self._used_levels()):
            line = self.levels[level]
            if place < len(line):
                return line[place]
            place -= len(line)
        raise AssertionError("no such place")

    def in_order(self) -> list[Message]:
        """All of them, first whose turn comes first."""
        found = list(self.returns)
        for level in reversed(self._used_levels()):
            found += self.levels[level]
        return found

    def clear(self) -> None:
        self.returns.clear()
        self.levels.clear()
        self.mask = 0
        self.count = 0
        self.size = 0

    def _used_levels(self) -> list[int]:
        found = []
        mask = self.mask
        while mask:
            lowest = mask & -mask
            found.append(lowest.bit_length() - 1)
            mask ^= lowest
        return found

    def _take(self, level: int) -> Message:
        if level == _RETURNS:
            message = self.returns.popleft()
        else:
            line = self.levels[level]
            message = line.popleft()
            if not line:
                self.mask ^= 1 << level
        self.count -= 1
        self.size -= message.size
        return message
