"""A line of messages: first in, first out, and empty most of the time.

A `deque` takes 760 bytes before its first entry, for every idle client; and the compiled code
calls its methods where a list is read directly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import mypyc_attr

from queuelake.protocol.message import Message

COMPACT_AT: Final = 256
ENTRY_OVERHEAD_BYTES: Final = 200  # what an entry costs in memory besides its message


@final
@mypyc_attr(acyclic=True)
class Outgoing:
    """One message on its way to one session."""

    __slots__ = ("after", "dup", "first", "ids", "message", "released", "seq", "shared", "size")

    def __init__(self, message: Message, first: int, ids: bytes, shared: bytes, seq: int) -> None:
        self.message: Message = message
        self.first: int = first  # first byte of the PUBLISH: QoS and retain
        self.ids: bytes = ids  # encoded subscription identifiers
        self.shared: bytes = shared  # the shared subscription, or the service, it came through
        self.seq: int = seq  # 0 for QoS 0
        self.after: int = 0  # QoS 0: the last sequence in line when this came
        self.dup: bool = False
        self.released: bool = False  # QoS 2: PUBREC has come, PUBREL is the next step
        self.size: int = ENTRY_OVERHEAD_BYTES + len(message.body)


@final
class Line:
    """Entries from `_head` on; what lies before it has left."""

    __slots__ = ("_entries", "_head")

    def __init__(self) -> None:
        self._entries: list[Outgoing | None] = []
        self._head: int = 0

    def __len__(self) -> int:
        return len(self._entries) - self._head

    def __iter__(self) -> Iterator[Outgoing]:
        return iter([entry for entry in self._entries[self._head :] if entry is not None])

    def is_empty(self) -> bool:
        return self._head == len(self._entries)

    def append(self, entry: Outgoing) -> None:
        self._entries.append(entry)

    def first(self) -> Outgoing:
        entry = self._entries[self._head]
        assert entry is not None
        return entry

    def take_first(self) -> Outgoing:
        entry = self.first()
        head = self._head + 1
        if head == len(self._entries):
            self._entries.clear()
            head = 0
        elif head >= COMPACT_AT and head * 2 > len(self._entries):
            del self._entries[:head]
            head = 0
        else:
            self._entries[head - 1] = None
        self._head = head
        return entry

    def take_last(self) -> Outgoing:
        entry = self._entries.pop()
        assert entry is not None
        if self._head == len(self._entries):
            self.clear()
        return entry

    def clear(self) -> None:
        self._entries.clear()
        self._head = 0

    def keep_upto(self, seq: int) -> None:
        """Leave only entries up to a sequence."""
        self._entries = [entry for entry in self if entry.seq <= seq]
        self._head = 0
