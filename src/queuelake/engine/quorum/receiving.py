"""A consumer's half of the protocol: every delivery once and in order, without any I/O.

Deliveries are numbered. One which was seen is dropped. One which comes too early waits while those
before it are asked for, with a query which changes nothing; what the queue has taken back meanwhile
is not in the answer and is skipped: it comes again under another number.
"""

from __future__ import annotations

from typing import final

from queuelake.engine.quorum.effects import Delivery


@final
class Query:
    """Ask the leader for deliveries `first` to `last` (`querying.held_between`)."""

    __slots__ = ("first", "last")

    def __init__(self, first: int, last: int) -> None:
        self.first: int = first
        self.last: int = last


@final
class Receiver:
    """Of one consumer: `key` and the first number are in the reply to its `Checkout`."""

    __slots__ = ("_asked_upto", "_early", "key", "next_id")

    def __init__(self, key: int, next_id: int) -> None:
        self.key: int = key
        self.next_id: int = next_id
        self._early: dict[int, Delivery] = {}
        self._asked_upto: int = -1  # the end of the range which was asked for; -1: none

    def receive(self, deliveries: list[Delivery]) -> tuple[list[Delivery], Query | None]:
        """What may be passed on, in order, and what must be asked for before anything else."""
        for delivery in deliveries:
            if delivery.msg_id >= self.next_id:
                self._early[delivery.msg_id] = delivery
        return self._go_on()

    def filled(
        self, query: Query, deliveries: list[Delivery]
    ) -> tuple[list[Delivery], Query | None]:
        """The answer to a query; an old one does no harm."""
        if query.first > self.next_id or query.last != self._asked_upto:
            return self.receive(deliveries)
        self._asked_upto = -1
        for delivery in deliveries:
            if delivery.msg_id >= self.next_id:
                self._early[delivery.msg_id] = delivery
        passed: list[Delivery] = []
        while self.next_id <= query.last:
            found = self._early.pop(self.next_id, None)
            self.next_id += 1
            if found is not None:
                passed.append(found)
        more, gap = self._go_on()
        return passed + more, gap

    def ask_again(self) -> Query | None:
        """The leader changed, and an answer may be lost."""
        self._asked_upto = -1
        return self._go_on()[1]

    def _go_on(self) -> tuple[list[Delivery], Query | None]:
        passed: list[Delivery] = []
        early = self._early
        while early and (found := early.pop(self.next_id, None)) is not None:
            passed.append(found)
            self.next_id += 1
        if not early or self._asked_upto >= self.next_id:
            return passed, None
        self._asked_upto = min(early) - 1
        return passed, Query(self.next_id, self._asked_upto)
