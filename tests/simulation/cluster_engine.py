"""The engine below a cluster, with dice: a log, a record and messages which break in every way
that `queuelake.cluster.engine` allows, and in no other.

`Center` is what NATS keeps: what is in it is durable and in one order. `NodeEngine` is how one node
reaches it: through delays, losses, answers which never come, and writes which arrive after their
sender was told that nobody knows. Reads may be answered by a peer that is behind.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from queuelake.cluster.engine import (
    ConflictingWriteError,
    EngineError,
    Lease,
    Receiver,
    TruncatedError,
    UnavailableError,
    UnknownOutcomeError,
)
from tests.simulation.cluster_loop import NodeLoop, Time

T = TypeVar("T")

PART_BYTES_MAX = 600  # so that some entries have several parts
ANSWER_MAX_S = 2.0  # after that the engine says that it does not know
LATE_MAX_S = 8.0  # how late a write may still be done
LOG = "log"
RECORD = "record"
NOBODY = ""  # who else can be asked needs no leader
UNNOTICED_S = 1.0  # how long a node that is gone seems to be connected


class Fate:
    """How often what goes wrong. All zero: everything works, and takes a little time."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.lost_request = 0.0
        self.lost_answer = 0.0
        self.late_request = 0.0
        self.slow = 0.0
        self.stale = 0.0
        self.lost_message = 0.0

    def worsen(self) -> None:
        throw = self.dice.choice
        self.lost_request = throw([0.0, 0.01, 0.1])
        self.lost_answer = throw([0.0, 0.01, 0.1])
        self.late_request = throw([0.0, 0.01, 0.1])
        self.slow = throw([0.0, 0.05, 0.3])
        self.stale = throw([0.0, 0.1, 0.5])
        self.lost_message = throw([0.0, 0.1, 0.5])

    def mend(self) -> None:
        self.lost_request = self.lost_answer = self.late_request = 0.0
        self.slow = self.stale = self.lost_message = 0.0

    def happens(self, chance: float) -> bool:
        return chance > 0 and self.dice.random() < chance

    def delay_s(self) -> float:
        usual_s = 0.0005 + self.dice.random() * 0.005
        return usual_s + self.dice.random() * 1.5 if self.happens(self.slow) else usual_s


class Center:
    """What the majority of the engine has. What is `leaderless` can be neither asked nor told."""

    def __init__(self, time: Time, fate: Fate) -> None:
        self.time = time
        self.fate = fate
        self.first = 1
        self.parts: list[bytes] = []  # of the log, for ever: `first` tells what can be read
        self.lease: Lease | None = None
        self.revision = 0
        self.leaderless: set[str] = set()  # of LOG, RECORD
        self.tally: Counter[str] = Counter()  # of what happened
        self.nodes: dict[str, NodeEngine] = {}  # the processes which are connected
        self.gone_at_s: dict[str, float] = {}

    @property
    def last(self) -> int:
        return len(self.parts)

    def append(self, part: bytes, after: int) -> None:
        if self.last != after:
            self.tally["append refused"] += 1
            raise ConflictingWriteError(f"the log ends at {self.last}, not at {after}")
        self.parts.append(part)

    def write(self, lease: Lease, revision: int) -> int:
        if self.revision != revision:
            raise ConflictingWriteError(f"revision {self.revision}, not {revision}")
        self.lease = lease
        self.revision += 1
        return self.revision

    def truncate(self, upto: int) -> None:
        self.first = max(self.first, min(upto, self.last) + 1)

    def knows_it_is_gone(self, node: str) -> bool:
        at_s = self.gone_at_s.get(node)
        return at_s is not None and self.time.now_s() - at_s >= UNNOTICED_S


class NodeEngine:
    """How one process of a node reaches the center; it satisfies `Log` and `Messenger`."""

    part_bytes_max = PART_BYTES_MAX
    payload_bytes_max = 1 << 20

    def __init__(self, center: Center, node: str, loop: NodeLoop) -> None:
        self.node = node
        self.leases = NodeLeases(self)
        self.center = center
        self.loop = loop
        self.cut_off = False
        self.alive = True
        self._receivers: dict[str, list[Receiver]] = {}
        self._heard_until_s: dict[str, float] = {}  # by sender: what it sends arrives in order
        center.nodes[node] = self
        center.gone_at_s.pop(node, None)

    def vanish(self) -> None:
        """The process is gone; what it sent may still arrive."""
        self.alive = False
        self.center.nodes.pop(self.node, None)
        self.center.gone_at_s[self.node] = self.center.time.now_s()

    def cut(self, off: bool) -> None:
        """The network between this node and the engine."""
        if self.alive and off != self.cut_off:
            self.cut_off = off
            gone_at_s = self.center.gone_at_s
            if off:
                gone_at_s[self.node] = self.center.time.now_s()
            else:
                gone_at_s.pop(self.node, None)

    def blink(self, seconds: float) -> None:
        """Its connection is closed, which the engine knows at once, and made anew."""
        self.cut(off=True)
        self.center.gone_at_s[self.node] -= UNNOTICED_S
        self.center.time.after(seconds, lambda: self.cut(off=False))

    # Log

    async def append(self, parts: list[bytes], after: int) -> int:
        """Each part is a request of its own; one that is lost keeps out those behind it."""
        assert parts
        assert all(len(part) <= PART_BYTES_MAX for part in parts)

        def put(number: int) -> Callable[[], int]:
            def put_one() -> int:
                self.center.append(parts[number], after + number)
                return self.center.last

            return put_one

        last = after
        for number in range(len(parts)):
            try:
                last = await self.change(LOG, put(number))
            except ConflictingWriteError as error:
                if number == 0:
                    raise
                raise UnknownOutcomeError("the log went on between the parts") from error
        return last

    async def read(self, position: int, count: int) -> list[bytes]:
        def look() -> list[bytes]:
            center = self.center
            if position < center.first:
                raise TruncatedError(f"the log begins at {center.first}, not at {position}")
            return center.parts[position - 1 : min(position - 1 + count, self._seen_last())]

        return await self.ask(LOG, look)

    async def ends(self) -> tuple[int, int]:
        return await self.ask(LOG, lambda: (self.center.first, self.center.last))

    async def size_bytes(self) -> int:
        center = self.center
        return await self.ask(LOG, lambda: sum(map(len, center.parts[center.first - 1 :])))

    async def truncate(self, upto: int) -> None:
        await self.ask(LOG, lambda: self.center.truncate(upto))

    def _seen_last(self) -> int:
        center = self.center
        if center.fate.happens(center.fate.stale):
            return max(center.first - 1, center.last - center.fate.dice.randrange(1, 12))
        return center.last

    # Messenger

    def send(self, subject: str, data: bytes) -> None:
        center = self.center
        for name in sorted(center.nodes):
            other = center.nodes[name]
            if (
                self.alive
                and not self.cut_off
                and not center.fate.happens(center.fate.lost_message)
            ):
                other.arrive(self.node, subject, data)

    def arrive(self, sender: str, subject: str, data: bytes) -> None:
        time = self.center.time
        at_s = time.now_s() + self.center.fate.delay_s()
        at_s = max(at_s, self._heard_until_s.get(sender, 0.0))
        self._heard_until_s[sender] = at_s

        def hand_over() -> None:
            if self.alive and not self.cut_off:
                for receiver in self._receivers.get(subject, []):
                    self.loop.call_soon(receiver, data)

        time.after(at_s - time.now_s(), hand_over)

    async def receive(self, subject: str, receiver: Receiver) -> None:
        self._receivers.setdefault(subject, []).append(receiver)

    async def is_there(self, node: str) -> bool:
        return await self.ask(NOBODY, lambda: not self.center.knows_it_is_gone(node))

    # The way there and back

    async def ask(self, leader: str, look: Callable[[], T]) -> T:
        """A question, which changes nothing."""
        return await self._request(leader, look, UnavailableError, may_be_late=False)

    async def change(self, leader: str, act: Callable[[], T]) -> T:
        """A write: done once, or not at all, or later than anybody waits for it."""
        return await self._request(leader, act, UnknownOutcomeError, may_be_late=True)

    async def _request(
        self, leader: str, act: Callable[[], T], silence: type[EngineError], may_be_late: bool
    ) -> T:
        center, fate = self.center, self.center.fate
        time = center.time
        answer = self.loop.create_future()

        def tell(result: T | None, error: EngineError | None) -> None:
            if not self.alive or answer.done():
                return
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

        def arrive() -> None:
            result: T | None = None
            error: EngineError | None = None
            if leader in center.leaderless:
                return
            if answer.done() and may_be_late:
                center.tally["late write"] += 1
            try:
                result = act()
            except EngineError as refusal:
                error = refusal
            if not self.cut_off and not fate.happens(fate.lost_answer):
                time.after(fate.delay_s(), lambda: tell(result, error))

        if self.alive and not self.cut_off and not fate.happens(fate.lost_request):
            late = may_be_late and fate.happens(fate.late_request)
            time.after(fate.dice.uniform(0, LATE_MAX_S) if late else fate.delay_s(), arrive)
        waiting = time.after(ANSWER_MAX_S, lambda: tell(None, silence("no answer")))
        try:
            result: T = await answer
        finally:
            waiting.cancel()
        return result


class NodeLeases:
    """The record, as one node reaches it; it satisfies `Leases`."""

    def __init__(self, engine: NodeEngine) -> None:
        self._engine = engine
        self._before: tuple[Lease | None, int] = (None, 0)  # what a peer that is behind may have

    async def read(self) -> tuple[Lease | None, int]:
        def look() -> tuple[Lease | None, int]:
            center = self._engine.center
            if center.fate.happens(center.fate.stale):
                return self._before
            self._before = (center.lease, center.revision)
            return self._before

        return await self._engine.ask(RECORD, look)

    async def write(self, lease: Lease, revision: int) -> int:
        center = self._engine.center
        return await self._engine.change(RECORD, lambda: center.write(lease, revision))
