"""The numbered flow of messages between this node and one other, both ways. Pure.

Messages with frames are numbered from 1; a heartbeat repeats the last number, so that the loss of
the last message is noticed too. Everything between two nodes is lost together: who misses a number
drops all tunnels with that node and says from which number on it listens again; the other side
drops what it had opened before that number, and all that was opened towards it before it was told.

A life is one process of a node. Who sees a new life of a node begins again with it, and says behind
which number. It leaves that number out: a late word of a dead process can make a node begin again
with one it knows, to which this must be a gap. A message for another life than ours was meant for
our predecessor: it is not looked at, but its sender is greeted.

What was received is said in each message. It bounds what is under way: nobody sends more than
`FLOW_BYTES_MAX` of tunnels' data which the other side has not confirmed, however many tunnels
there are, so that no server in between holds more of it either.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Final

from queuelake.cluster.frames import Head

FLOW_BYTES_MAX: Final = 4 * 1024 * 1024
CONFIRM_BYTES: Final = FLOW_BYTES_MAX // 8  # a receiver waits no longer to say what it has


class Arrival(enum.Enum):
    NEXT = enum.auto()  # as it should be
    GAP = enum.auto()  # something before it is missing, or the sender has begun again
    STALE = enum.auto()  # known already
    STRANGE = enum.auto()  # for another life of ours


class Flow:
    """Counts; it holds nothing of what is sent."""

    def __init__(self, life: int) -> None:
        assert life > 0
        self.life = life
        self.their_life = 0  # 0: not heard of
        self.sent = 0
        self.received = 0
        self._base = 0  # we began again behind this number
        self.under_way_bytes = 0
        self._under_way: deque[tuple[int, int]] = deque()  # number and size, not confirmed
        self._unsaid_bytes = 0  # received, and the other side does not know
        self._said = 0

    def has_room(self, size: int) -> bool:
        """Whether data may be sent, with this much in the message already."""
        return self.under_way_bytes + size < FLOW_BYTES_MAX

    def is_settled(self) -> bool:
        """Both sides know that both have everything."""
        return not self._under_way and self._said == self.received

    def must_confirm(self) -> bool:
        return self._unsaid_bytes >= CONFIRM_BYTES

    def next_head(self, node: str, size: int) -> Head:
        """Of the message which leaves now; `size` of its frames, 0 for a heartbeat."""
        if size:
            self.sent += 1
            self._under_way.append((self.sent, size))
            self.under_way_bytes += size
        self._said = self.received
        self._unsaid_bytes = 0
        return Head(self.life, self.their_life, self._base, self.sent, self.received, node)

    def greeting(self, node: str) -> Head:
        """Of a heartbeat for whatever process of the other node is there."""
        return Head(self.life, 0, self._base, self.sent, 0, node)

    def is_new_life(self, head: Head) -> bool:
        """Whether the other node's process was another one until now."""
        return self.their_life not in (0, head.life) and head.to_life in (0, self.life)

    def arrive(self, head: Head, size: int) -> Arrival:
        if head.to_life not in (0, self.life):
            return Arrival.STRANGE
        if self.their_life != head.life:
            if self.their_life:
                self._begin_again()
            self.their_life = head.life
            self.received = self._said = head.base
            self._unsaid_bytes = 0
        if head.to_life:
            self._confirmed(head.received)
        missed = head.number - self.received - (1 if size else 0)
        if missed < 0:
            return Arrival.STALE
        self.received = head.number
        self._unsaid_bytes += size
        return Arrival.GAP if missed else Arrival.NEXT

    def give_up(self) -> None:
        """Nobody confirms: wait for nothing any more."""
        self._under_way.clear()
        self.under_way_bytes = 0
        self._said = self.received

    def _begin_again(self) -> None:
        self.give_up()
        self.sent += 1  # left out
        self._base = self.sent

    def _confirmed(self, number: int) -> None:
        under_way = self._under_way
        while under_way and under_way[0][0] <= number:
            self.under_way_bytes -= under_way.popleft()[1]
