"""What publishers and subscribers of one message queue saw, and what must be true of it at the end.

A message is its key and its number under that key; numbers go up, and none is published twice. A
PUBACK of a subscriber has no answer, so it publishes a mark behind some of them: once that is
confirmed they are durable, and the messages `sealed`.

- every accepted message was acked (last-value: it, or a later value of its key);
- what is sealed never comes again;
- of a key a last-value queue never goes back to an earlier value.

Deliveries which lie in a socket may be read late, when the broker is dead already. So those of
different lives of the broker are compared by life, those of one connection by the order of reading,
and others not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.crash.queue_history import SHOWN_MAX, Message


@dataclass
class MqHistory:
    """Everything that was seen of one queue; violations are found on the way."""

    is_last_value: bool
    published: set[Message] = field(default_factory=set)
    accepted: list[Message] = field(default_factory=list)
    acked: set[Message] = field(default_factory=set)
    sealed: dict[Message, int] = field(default_factory=dict)  # -> the life it was sealed in
    newest: dict[str, tuple[int, int]] = field(default_factory=dict)  # key -> number, life
    delivered: int = 0
    rejected: int = 0
    violations: list[str] = field(default_factory=list)

    def delivery(self, message: Message, life: int, seen: dict[str, int], consumer: str) -> None:
        """`seen` has the newest value of each key which came on the same connection."""
        self.delivered += 1
        key, number = message
        found = f"{key}:{number} (life {life}, {consumer})"
        if message not in self.published:
            self.violations.append(f"never published: {found}")
        if life >= self.sealed.get(message, life + 1):
            self.violations.append(f"acked for good in life {self.sealed[message]}: {found}")
        if not self.is_last_value:
            return
        if number < seen.get(key, -1):
            self.violations.append(f"came on one connection after {seen[key]}: {found}")
        newest, newest_life = self.newest.get(key, (-1, life))
        if number < newest and life > newest_life:
            self.violations.append(f"came after {newest} of life {newest_life}: {found}")
        seen[key] = max(number, seen.get(key, -1))
        if number > newest:
            self.newest[key] = (number, life)

    def mistakes(self) -> list[str]:
        return [*self.violations, *self._lost()]

    def left(self) -> list[Message]:
        """Accepted, and nobody has acked it."""
        if not self.is_last_value:
            return [message for message in self.accepted if message not in self.acked]
        last: dict[str, int] = {}
        for key, number in list(self.accepted):
            last[key] = max(number, last.get(key, -1))
        taken: dict[str, int] = {}
        for key, number in set(self.acked):
            taken[key] = max(number, taken.get(key, -1))
        return [(key, number) for key, number in last.items() if taken.get(key, -1) < number]

    def _lost(self) -> Iterator[str]:
        lost = self.left()
        if lost:
            names = ", ".join(f"{key}:{number}" for key, number in lost[:SHOWN_MAX])
            yield f"{len(lost)} of {len(self.accepted)} accepted messages never acked: {names}"
