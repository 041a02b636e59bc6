"""When a replica writes its state down, and how much of the log it can do without by that.

A state holds no payloads, so a checkpoint at any index is good as it is: of the log below it only
`live` entries are needed, and one stuck message keeps nothing but itself. A log which can only be
cut at its front is cut at the newest checkpoint below everything which is live; to replay from
there needs none of the payloads before it, because by the end of the replay all of them are gone.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import Final, final

from queuelake.engine.machine import Command, Effect
from queuelake.engine.quorum.commands import Enqueue, Requeue
from queuelake.engine.quorum.effects import LocalEffect, Release
from queuelake.engine.settled import Settled

INDEXES_MIN: Final = 8_192
INDEXES_MAX: Final = 666_667
WRITTEN_BYTES_MAX: Final = 128 << 20
RECLAIMABLE_BYTES_MIN: Final = 10 << 20
INTERVAL_MS_MIN: Final = 1_000


@final
class ReleaseCursor(LocalEffect):
    """The log up to here, and every checkpoint before it, is needed by nobody."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index: int = index


@final
class Checkpoints:
    """Of one replica: when to take one, and which of those taken frees the log."""

    __slots__ = (
        "_gone",
        "_indexes",
        "_last_ms",
        "_released_bytes",
        "_written_bytes",
        "indexes_min",
    )

    def __init__(self, indexes_min: int = INDEXES_MIN) -> None:
        self.indexes_min: int = indexes_min
        self._gone: Settled = Settled()  # indexes without a payload which is needed
        self._indexes: list[int] = [0]  # of the checkpoints which are kept; 0: the empty queue
        self._last_ms: int = 0
        self._released_bytes: int = 0  # when the last one was taken
        self._written_bytes: int = 0  # since then

    def resume(self, index: int, live: list[int]) -> None:
        """The replica begins with the checkpoint at this index."""
        self._gone = Settled(live[0] - 1 if live else index)
        for before, after in pairwise([*live, index + 1]):
            self._gone.add_between(before, after)
        self._indexes = [index]

    def applied(self, index: int, command: Command, effects: list[Effect]) -> None:
        """After every command."""
        if isinstance(command, (Enqueue, Requeue)):
            self._written_bytes += command.size
        else:
            self._gone.add(index)
        for effect in effects:
            if isinstance(effect, Release):
                for released in effect.indexes:
                    self._gone.add(released)

    def is_due(self, index: int, now_ms: int, total: int, released_bytes: int) -> bool:
        """Whether a checkpoint is worth it now; the more messages there are, the rarer."""
        if now_ms - self._last_ms < INTERVAL_MS_MIN:
            return False
        interval = min(max(self.indexes_min, total), INDEXES_MAX)
        return (
            index - self._indexes[-1] >= interval
            or self._written_bytes >= WRITTEN_BYTES_MAX
            or released_bytes - self._released_bytes >= RECLAIMABLE_BYTES_MIN
        )

    def taken(self, index: int, now_ms: int, released_bytes: int) -> None:
        """The state at this index is durable."""
        assert index > self._indexes[-1]
        self._indexes.append(index)
        self._last_ms = now_ms
        self._released_bytes = released_bytes
        self._written_bytes = 0

    def first_live(self) -> int:
        """The lowest index whose payload is needed, or the next one to come."""
        return self._gone.upto + 1

    def release(self) -> ReleaseCursor | None:
        """How far the log can be cut since the last time."""
        newest = bisect_left(self._indexes, self.first_live()) - 1
        if newest < 1:
            return None
        del self._indexes[:newest]
        return ReleaseCursor(self._indexes[0])
