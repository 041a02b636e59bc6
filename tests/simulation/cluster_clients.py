"""Publishers of a simulated cluster, and a broker for them which does little but commit.

The broker is in the place of the real one: it collects a group, hands it to its committer, answers
when it is done, and numbers its rows from what the store had when it began. So a store that was not
up to date when its node became the owner shows: a row is used twice.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from typing import Protocol

from queuelake.storage.api import MESSAGES, META, Batch, Store
from tests.simulation.cluster_loop import NodeLoop
from tests.simulation.cluster_record import Attempt

WINDOW = 6
KEPT_MAX = 40  # rows; consumers settle what is older
SETTLED = b"settled"
_ROW = struct.Struct(">Q")
LAST_ROW = b"\xff" * 8


class Committer(Protocol):
    def submit(self, batch: Batch, done: Callable[[str], None]) -> None: ...

    def close(self) -> None: ...


class CountingBroker:
    """An owner at work, until `stop`."""

    def __init__(
        self,
        loop: NodeLoop,
        store: Store,
        committer: Committer,
        dice: random.Random,
        epoch: int,
        acknowledge: Callable[[CountingBroker, list[tuple[Connection, Attempt]]], None],
    ) -> None:
        self.loop = loop
        self._committer = committer
        self._dice = dice
        self.epoch = epoch
        self._acknowledge = acknowledge
        self.stopped = False
        self.connections: list[Connection] = []
        with store.view() as view:
            last = view.last_below(MESSAGES, LAST_ROW)
            self._rows = [key for key, _ in view.scan(MESSAGES, b"", LAST_ROW)]
            settled = view.get(META, SETTLED)
        self._next = _ROW.unpack(last[0])[0] + 1 if last else 1
        if settled is not None:
            self._next = max(self._next, _ROW.unpack(settled)[0] + 1)
        self._group: list[tuple[Connection, Attempt]] = []
        self._committing: list[tuple[Connection, Attempt]] = []

    def publish(self, connection: Connection, attempt: Attempt) -> None:
        if not self.stopped:
            self._group.append((connection, attempt))
            self._seal()

    async def stop(self) -> None:
        """Thrown away with all it had collected."""
        self.vanish()
        self._committer.close()

    def vanish(self) -> None:
        self.stopped = True
        for connection in list(self.connections):
            connection.close()

    def _seal(self) -> None:
        if self._committing or not self._group:
            return
        self._committing, self._group = self._group, []
        batch = Batch()
        for _, attempt in self._committing:
            key = _ROW.pack(self._next)
            batch.put(MESSAGES, key, attempt.encode(self._dice.choice([0, 50, 500, 1500])))
            self._rows.append(key)
            self._next += 1
        while len(self._rows) > KEPT_MAX:
            key = self._rows.pop(0)
            batch.delete(MESSAGES, key)
            batch.put(META, SETTLED, key)
        self._committer.submit(batch, self._done)

    def _done(self, failure: str) -> None:
        assert self._committing, "done, but nothing was committed"
        if self.stopped:
            return
        assert not failure, "there is always room"
        group, self._committing = self._committing, []
        self._acknowledge(self, group)
        self._seal()


class Connection:
    """Of a publisher to a broker; what is sent arrives in order, or is lost with all behind it."""

    def __init__(self, publisher: Publisher, broker: CountingBroker) -> None:
        self.publisher = publisher
        self.broker = broker
        self.open = True
        broker.connections.append(self)

    def close(self) -> None:
        if self.open:
            self.open = False
            self.broker.connections.remove(self)
            self.publisher.connection = None


class Publisher:
    """Numbers its messages, keeps those without an answer, and sends them again in order."""

    def __init__(self, number: int, serials: Iterator[int]) -> None:
        self.number = number
        self._serials = serials
        self.connection: Connection | None = None
        self.newest = 0
        self.unconfirmed: list[int] = []  # numbers of messages, in order
        self.attempts: dict[int, int] = {}  # serial -> number, of this connection

    def connect(self, broker: CountingBroker) -> None:
        assert self.connection is None
        self.connection = Connection(self, broker)
        self.attempts.clear()
        for number in self.unconfirmed:
            self._send(number)

    def publish(self) -> None:
        if self.connection is not None and len(self.unconfirmed) < WINDOW:
            self.newest += 1
            self.unconfirmed.append(self.newest)
            self._send(self.newest)

    def confirmed(self, connection: Connection, attempt: Attempt) -> None:
        if connection is self.connection and attempt.serial in self.attempts:
            del self.attempts[attempt.serial]
            self.unconfirmed.remove(attempt.number)

    def _send(self, number: int) -> None:
        assert self.connection is not None
        attempt = Attempt(next(self._serials), self.number, number)
        self.attempts[attempt.serial] = number
        broker = self.connection.broker
        broker.loop.call_soon(broker.publish, self.connection, attempt)
