"""Who takes part in group commits: a queue, or whatever else keeps its state in the store.

The runner knows nothing about kinds of queues. It asks a participant which has work to act once in
a turn of the loop, to write its rows when the group is sealed, and tells it how that ended.
"""

from __future__ import annotations

from abc import abstractmethod

from mypy_extensions import trait

from queuelake.storage.api import Batch


@trait
class Participant:
    """`waiting` and `group` are the runner's own marks."""

    waiting: bool  # in line for its turn
    group: int  # the last commit group it takes part in

    @abstractmethod
    def act(self, now_ms: int) -> None:
        """Its turn: decide, and take part in the group being collected if something changed."""

    def is_awaited(self) -> bool:
        """Whether anybody waits for what it has to write; not so for settlements alone."""
        return True

    @abstractmethod
    def prepare(self) -> None:
        """The group is about to be sealed: decide what is left to decide. Others may be drawn in,
        or changed: nobody writes before all have decided."""

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """The group is sealed: put what changed since the last one into it."""

    @abstractmethod
    def stored(self, now_ms: int) -> None:
        """What it wrote last is durable."""

    @abstractmethod
    def rolled_back(self) -> None:
        """What it wrote last, and what changed since, is not in the store and never happened."""
