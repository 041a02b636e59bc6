"""When a commit group is large enough to be sealed.

A commit costs the same for one client as for hundreds. So while clients are sending, the group
waits a moment and collects; as soon as a turn of the loop brought nothing new it is sealed, and a
lone publisher who waits for each answer is not kept waiting.
"""

from __future__ import annotations

from typing import Final, final

COLLECT_MS_MAX: Final = 5
SETTLE_MS_MAX: Final = 2  # while nothing comes but settlements
ANSWERS_MAX: Final = 2000


@final
class Pace:
    """`inputs` and `published` are counted by those who see them come."""

    __slots__ = ("_inputs_seen", "_published_seen", "_since_ms", "inputs", "published")

    def __init__(self) -> None:
        self.inputs: int = 0  # how often clients have sent something
        self.published: int = 0  # messages of queues which wait to be stored
        self._inputs_seen: int = 0
        self._published_seen: int = 0
        self._since_ms: int = 0  # since when a group waits to be sealed

    def expects_more(self, answers: int, now_ms: int) -> bool:
        """Whether the group, which has so many clients waiting for it, had better wait."""
        inputs, published = self.inputs, self.published
        if inputs == self._inputs_seen or answers >= ANSWERS_MAX:
            return False
        # Publishers stop when their window is full; settlements may come without end.
        limit_ms = COLLECT_MS_MAX if published != self._published_seen else SETTLE_MS_MAX
        self._inputs_seen = inputs
        self._published_seen = published
        if not self._since_ms:
            self._since_ms = now_ms
        return now_ms - self._since_ms < limit_ms

    def sealed(self) -> None:
        self._since_ms = 0
