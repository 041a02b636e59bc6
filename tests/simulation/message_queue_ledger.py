"""What simulated message queues have promised: of each message, in each queue which took it.

As in `queue_ledger`, everything is noted when the broker writes it. An acknowledgement has no
answer, so the broker is asked whether it counted, and it is durable when its commit group is. What
cannot be known from outside makes a check weaker, never stronger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Posted:
    """A message of a publisher; nobody sends it twice."""

    number: int
    topic: str
    publisher: str
    qos: int
    at_ms: int
    size: int = 0
    expiry_s: int = 0
    outcome: str = ""  # "confirmed", "refused"

    def payload(self) -> bytes:
        return b"%d:" % self.number + b"x" * self.size


@dataclass
class Copy:
    """A message in one queue."""

    message: Posted
    key: str  # "" in a regular queue
    deliveries: int = 0
    holder: str = ""  # the client which has it, as far as can be known
    tried_ack: bool = False
    rejects: int = 0
    acked_in: int = 0  # the commit group of an acknowledgement which counted
    acked: bool = False  # it is durable, in a life of the broker which is over


@dataclass
class Kept:
    """One queue, from its creation to its end."""

    name: str
    is_last_value: bool
    lives_ms: int  # the shortest time for which it ever kept messages
    copies: dict[int, Copy] = field(default_factory=dict)
    in_flight_max: int = 0  # the highest limit it ever had
    is_limited: bool = False
    may_bury: bool = False
    times_out: bool = False
    is_deleted: bool = False
    newest: dict[str, int] = field(default_factory=dict)  # of each key: what was delivered last


@dataclass(frozen=True)
class Seen:
    """A delivery which the broker has written."""

    client: str
    queue_id: int
    number: int
    qos: int
    tag: int  # of the subscriber in the broker; 0: it is not known
    is_first: bool = False  # it never came back to the queue


class Ledger:
    def __init__(self) -> None:
        self.now_ms: Callable[[], int] = lambda: 0
        self.durable: Callable[[], int] = lambda: 0  # the last commit group which is
        self.messages: dict[int, Posted] = {}
        self.queues: dict[int, Kept] = {}
        self.wrong: list[str] = []
        self.out: dict[tuple[str, int], set[int]] = {}  # by client and tag: what is in flight
        self._first: dict[tuple[int, str, str], int] = {}

    def copy(self, seen: Seen) -> Copy | None:
        kept = self.queues.get(seen.queue_id)
        return kept.copies.get(seen.number) if kept is not None else None

    # Times in which deliveries may come again

    def new_epoch(self) -> None:
        """A commit failed: what it had is not so."""
        durable = self.durable()
        self.out.clear()
        self._first.clear()
        for kept in self.queues.values():
            for copy in kept.copies.values():
                copy.holder = ""
                copy.acked = copy.acked or 0 < copy.acked_in <= durable
                copy.acked_in = 0

    def left(self, client: str) -> None:
        """Nothing is in these hands."""
        for kept in self.queues.values():
            for copy in kept.copies.values():
                if copy.holder == client:
                    copy.holder = ""

    # Publishers

    def posting(self, message: Posted, queue_id: int, key: str) -> None:
        self.queues[queue_id].copies[message.number] = Copy(message, key)

    def answered(self, number: int, reason: int) -> None:
        message = self.messages[number]
        message.outcome = "confirmed" if reason < 0x80 else "refused"
        if reason >= 0x80 and reason != 0x80:
            self.wrong.append(f"{message} was refused with 0x{reason:02X}")

    # Deliveries

    def delivered(self, seen: Seen, topic: str, payload: bytes) -> None:
        copy = self.copy(seen)
        if copy is None:
            self.wrong.append(f"{seen}, which the queue never took")
            return
        kept = self.queues[seen.queue_id]
        wrong = self._mistakes(seen, kept, copy)
        if topic != copy.message.topic or payload != copy.message.payload():
            wrong.append(f"it came as {topic} with {len(payload)} bytes")
        self.wrong += [f"{seen}, but {one}" for one in wrong]
        copy.deliveries += 1
        if copy.key:
            kept.newest[copy.key] = max(kept.newest.get(copy.key, 0), seen.number)
        if seen.qos:
            copy.holder = seen.client
        else:
            copy.tried_ack = True

    def _mistakes(self, seen: Seen, kept: Kept, copy: Copy) -> list[str]:
        wrong = []
        if kept.is_deleted:
            wrong.append(f"{kept.name} was deleted")
        if copy.message.outcome == "refused":
            wrong.append("it was refused")
        if copy.acked or 0 < copy.acked_in <= self.durable():
            wrong.append("its acknowledgement is durable")
        if copy.holder and not kept.times_out:
            wrong.append(f"{copy.holder} has it in hand")
        newest = kept.newest.get(copy.key, 0) if copy.key else 0
        if newest > seen.number:
            wrong.append(f"{newest} of its key {copy.key!r} came before")
        if seen.tag:
            out = self.out.setdefault((seen.client, seen.tag), set())
            if seen.qos:
                out.add(seen.number)
            if len(out) > kept.in_flight_max and not kept.times_out:
                wrong.append(f"that makes {len(out)} in flight of {kept.in_flight_max}")
        if seen.is_first and not copy.deliveries:
            line = (seen.tag, seen.client, copy.message.publisher)
            if seen.number < self._first.get(line, 0):
                wrong.append(f"{self._first[line]} of its publisher came before")
            self._first[line] = seen.number
        return wrong

    def settling(self, seen: Seen, is_ack: bool) -> None:
        copy = self.copy(seen)
        for (client, _), numbers in self.out.items():
            if client == seen.client:  # of one who subscribed again, either copy settles it
                numbers.discard(seen.number)
        if copy is None:
            return
        if copy.holder == seen.client:
            copy.holder = ""
        copy.tried_ack = copy.tried_ack or is_ack
        copy.rejects += 0 if is_ack else 1

    def settled(self, seen: Seen, group: int) -> None:
        """The broker has counted an acknowledgement; it is part of this commit group."""
        copy = self.copy(seen)
        if copy is not None:
            copy.acked_in = copy.acked_in or group

    # The end

    def problems(self, is_there: Callable[[int], bool], buried: int) -> list[str]:
        """After everything was drained."""
        wrong: list[str] = []
        dead = 0
        for queue_id, kept in self.queues.items():
            if kept.is_limited or kept.is_deleted:
                continue
            lost = self._lost_values(kept) if kept.is_last_value else self._lost(kept)
            if lost and not is_there(queue_id):
                wrong.append(f"{kept.name} has confirmed messages and is not there: {lost[0]}")
            elif kept.may_bury:
                dead += sum(1 for copy in lost if copy.rejects or kept.times_out)
                lost = [copy for copy in lost if not copy.rejects and not kept.times_out]
            wrong += [f"{kept.name} has lost {copy}" for copy in lost]
        if dead > buried:
            wrong.append(f"{dead} messages may be dead letters, there are {buried}")
        return wrong

    def _is_over(self, kept: Kept, copy: Copy) -> bool:
        lives_ms = min(kept.lives_ms, copy.message.expiry_s * 1000 or kept.lives_ms)
        return self.now_ms() >= copy.message.at_ms + lives_ms

    def _lost(self, kept: Kept) -> list[Copy]:
        return [
            copy
            for copy in kept.copies.values()
            if copy.message.outcome == "confirmed"
            and not copy.tried_ack
            and not self._is_over(kept, copy)
        ]

    def _lost_values(self, kept: Kept) -> list[Copy]:
        """Of each key the last confirmed value, if neither it nor a later one was taken."""
        last: dict[str, Copy] = {}
        taken: dict[str, int] = {}
        for number, copy in kept.copies.items():
            if copy.message.outcome == "confirmed":
                last[copy.key] = copy
            # One which is over took the place of those before it.
            if copy.tried_ack or self._is_over(kept, copy):
                taken[copy.key] = number
        return [copy for key, copy in last.items() if taken.get(key, 0) < copy.message.number]
