"""When a commit group is large enough to be sealed.

A commit costs the same for one client as for hundreds. So while clients are sending, the group
waits a moment and collects; as soon as a turn of the loop brought nothing new it is sealed, and a
lone publisher who waits for each answer is not kept waiting.

One commit is under way at a time. Where commits take long, as in a cluster, one which has nothing
but settlements would hold up the message behind it. Nobody waits for a settlement, so when messages
come often enough it waits for the next of them and goes with it.
"""

from __future__ import annotations

from typing import Final, final

COLLECT_MS_MAX: Final = 5
SETTLE_MS_MAX: Final = 2  # while nothing comes but settlements
ANSWERS_MAX: Final = 2000
COMPANY_MS_MAX: Final = 20  # a settlement waits no longer for a message to go with
MEAN_OF: Final = 8  # a new value counts so much less than all before it
MEAN_MS_MAX: Final = 1000  # clocks may jump


@final
class Pace:
    """`inputs` and `published` are counted by those who see them come."""

    __slots__ = (
        "_commit_ms",
        "_gap_ms",
        "_inputs_seen",
        "_message_ms",
        "_published_sealed",
        "_published_seen",
        "_sealed_ms",
        "_since_ms",
        "inputs",
        "published",
    )

    def __init__(self) -> None:
        self.inputs: int = 0  # how often clients have sent something
        self.published: int = 0  # messages of queues which wait to be stored
        self._inputs_seen: int = 0
        self._published_seen: int = 0
        self._since_ms: int = 0  # since when a group waits to be sealed
        self._published_sealed: int = 0
        self._message_ms: int = 0  # when a group with messages was sealed last
        self._sealed_ms: int = 0
        # Means: between two messages, and of a commit.
        self._gap_ms: float = float(MEAN_MS_MAX)
        self._commit_ms: float = 0.0

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

    def has_published(self) -> bool:
        """Whether the group being collected has messages of queues."""
        return self.published != self._published_sealed

    def company_ms(self, now_ms: int) -> float:
        """How long a group of nothing but settlements may wait for a message; 0: not at all."""
        commit_ms, gap_ms = self._commit_ms, self._gap_ms
        # It begins a commit after the last message and ends two after it; clocks count in whole
        # milliseconds.
        if commit_ms < 1.0 or gap_ms > 2 * commit_ms + 1:
            return 0.0
        if not 0 <= now_ms - self._message_ms <= 2 * gap_ms:
            return 0.0  # they have ceased to come
        return min(2 * gap_ms, float(COMPANY_MS_MAX))

    def sealed(self, messages: int, now_ms: int) -> None:
        """`messages`: those for sessions which the group has, besides those of queues."""
        messages += self.published - self._published_sealed
        self._since_ms = 0
        self._published_sealed = self.published
        self._sealed_ms = now_ms
        if messages:
            gap_ms = _bounded(now_ms - self._message_ms) / messages
            self._gap_ms += (gap_ms - self._gap_ms) / MEAN_OF
            self._message_ms = now_ms

    def committed(self, now_ms: int) -> None:
        self._commit_ms += (_bounded(now_ms - self._sealed_ms) - self._commit_ms) / MEAN_OF


def _bounded(elapsed_ms: int) -> int:
    return min(max(elapsed_ms, 0), MEAN_MS_MAX)
