"""One group's way through one partition: what it has settled, holds, and must have again.

    settled.upto    horizon        next                  partition.last
    ------|-- all handed out --|-- some --|--- not yet looked at ---|

`next` is the first sequence this lane has not looked at, `horizon` the first it never handed out:
they differ when a message was set aside because its key is blocked, or passed by one of higher
priority. Of what lies below `next` everything unsettled is in exactly one place: held by a
consumer, in line to return, waiting for its retry, ranked by its priority, set aside, or on its way
to the dead letters.

The store has what is settled, a tally for each message which came back or was handed out above the
horizon, and `claimed`, which is never below the horizon. So after a crash everything that was
handed out is known to have been. While acknowledgements flow, `claimed` runs ahead of the horizon:
what it covers may be handed out at once, because the store knows already that it may have been.
"""

from __future__ import annotations

import heapq
from bisect import insort
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import mypyc_attr

from queuelake.engine.message import Entry, sequence_of
from queuelake.engine.settled import Settled

if TYPE_CHECKING:
    from queuelake.engine.groups import Consumer

CLAIM_MAX: Final = 1000  # how far `claimed` runs ahead of the horizon at most
FLOW_SETTLES_MIN: Final = 8  # between two commits, for `claimed` to run ahead at all


@final
@mypyc_attr(acyclic=True)
class Held:
    """A message in the hands of a consumer."""

    __slots__ = ("attempt", "consumer", "deadline_ms", "entry", "first_ms")

    def __init__(
        self, entry: Entry, consumer: Consumer, attempt: int, first_ms: int, deadline_ms: int
    ) -> None:
        self.entry: Entry = entry
        self.consumer: Consumer = consumer
        self.attempt: int = attempt
        self.first_ms: int = first_ms
        self.deadline_ms: int = deadline_ms


@final
@mypyc_attr(acyclic=True)
class Tally:
    """How a message fared so far."""

    __slots__ = ("attempts", "due_ms", "first_ms", "line", "without")

    def __init__(self, attempts: int, due_ms: int, first_ms: int) -> None:
        self.attempts: int = attempts  # how often it was handed out
        self.due_ms: int = due_ms  # not again before; 0: at once
        self.first_ms: int = first_ms  # when it was handed out first
        self.line: int = 0  # its number among all which returned
        self.without: str = ""  # who refused it: not to be asked again before `due_ms`


@final
class Lane:
    """See the module docstring. `dirty*` say what differs from the store."""

    __slots__ = (
        "ahead",
        "aside",
        "aside_count",
        "blocked",
        "claimed",
        "claiming",
        "dirty",
        "dirty_tallies",
        "dying",
        "held",
        "horizon",
        "next",
        "number",
        "out",
        "owner",
        "ready",
        "returns",
        "settled",
        "settles",
        "tallies",
        "unheld",
        "unseen",
        "waiting",
    )

    def __init__(self, number: int, settled: Settled) -> None:
        self.number: int = number
        self.settled: Settled = settled
        self.next: int = settled.upto + 1
        self.horizon: int = settled.upto + 1
        self.claimed: int = 0  # in the store: what lies below may be handed out
        self.claiming: int = 0  # on its way there
        self.settles: int = 0  # since the last claim
        self.owner: Consumer | None = None  # whom this partition is assigned to
        self.held: dict[int, Held] = {}  # in order of hand-out, so of deadline
        self.out: dict[int, int] = {}  # key -> how many of it are held, where that is limited
        self.tallies: dict[int, Tally] = {}
        self.returns: list[Entry] = []  # came back, to be handed out first
        self.waiting: list[tuple[int, int, Entry]] = []  # heap of (due, sequence, entry)
        self.blocked: dict[int, int] = {}  # key -> how many reasons there are for it to wait
        self.aside: dict[int, list[Entry]] = {}  # key -> entries which wait for it, in order
        # Heap of (first sequence aside, key) of keys which are free again. What is no longer so
        # stays in it until it is taken.
        self.ready: list[tuple[int, int]] = []
        self.aside_count: int = 0
        self.dying: dict[int, Entry] = {}  # on their way to the dead letters
        self.unseen: set[int] = set()  # below `next` or ranked, never handed out
        self.ahead: set[int] = set()  # ranked before `next` came to them
        self.unheld: int = 0  # what lies below is settled, held or dying; only to search less
        self.dirty: bool = True
        self.dirty_tallies: set[int] = set()

    def unsettled(self, last: int) -> int:
        """How many messages of the partition this group still needs."""
        return last - self.settled.upto - self.settled.count_above

    def skip_to(self, seq: int) -> None:
        """What lies between is settled."""
        if seq > self.next:
            self.next = seq
            self.move_horizon()

    def move_horizon(self) -> None:
        horizon = self.horizon
        unseen = self.unseen
        if not unseen:
            horizon = max(horizon, self.next)
        else:
            while horizon < self.next and horizon not in unseen:
                horizon += 1
        if horizon != self.horizon:
            self.horizon = horizon
            self.dirty = True

    def hand_out(self, entry: Entry, consumer: Consumer, now_ms: int, timeout_ms: int) -> int:
        """Give the message to a consumer; returns which attempt this is."""
        seq = entry.seq
        attempt = 1
        first_ms = now_ms
        if seq >= self.claimed:
            self.dirty = True
        if seq == self.horizon and seq < self.next and not self.tallies:
            self.horizon = seq + 1
            if self.unseen:
                self.unseen.discard(seq)
                self.move_horizon()
        else:
            tally = self.tallies.get(seq)
            if tally is not None:
                attempt = tally.attempts + 1
                first_ms = tally.first_ms or now_ms
            self.unseen.discard(seq)
            if seq == self.horizon:
                self.move_horizon()
            if tally is not None or seq >= self.horizon:
                self.tallies[seq] = Tally(attempt, 0, first_ms)
                self.dirty_tallies.add(seq)
                self.dirty = True
        self.held[seq] = Held(entry, consumer, attempt, first_ms, now_ms + timeout_ms)
        return attempt

    def settle(self, seq: int) -> None:
        """Done with: it needs no further delivery to this group."""
        self.settled.add(seq)
        self.settles += 1
        self.dirty = True
        if self.unseen:
            self.unseen.discard(seq)
        if self.ahead:
            self.ahead.discard(seq)
        if seq >= self.horizon:
            self.move_horizon()
        if self.tallies and seq in self.tallies:
            del self.tallies[seq]
            self.dirty_tallies.add(seq)

    def doom(self, entry: Entry) -> None:
        """To the dead letters, from wherever it was, or before this lane came to it."""
        seq = entry.seq
        self.dying[seq] = entry
        self.unseen.discard(seq)
        if seq >= self.next:
            self.ahead.add(seq)
        if seq == self.horizon:
            self.move_horizon()

    def come_back(self, entry: Entry, attempts: int, first_ms: int, due_ms: int) -> None:
        """A hand-out failed; the caller puts it in line."""
        if entry.seq < self.unheld:
            self.unheld = entry.seq
        self.tallies[entry.seq] = Tally(attempts, due_ms, first_ms)
        self.dirty_tallies.add(entry.seq)
        self.dirty = True

    def wait(self, entry: Entry, due_ms: int) -> None:
        heapq.heappush(self.waiting, (due_ms, entry.seq, entry))

    def put_return(self, entry: Entry, in_order: bool, number: int) -> None:
        self.tallies[entry.seq].line = number
        if in_order:
            insort(self.returns, entry, key=sequence_of)
        else:
            self.returns.append(entry)

    def first_in_line(self) -> int:
        return self.tallies[self.returns[0].seq].line

    def take_return(self, key_inflight: int) -> Entry | None:
        """The first in line to return whose key has not its full number out."""
        for number, entry in enumerate(self.returns):
            if not key_inflight or self.out.get(entry.key, 0) < key_inflight:
                del self.returns[number]
                return entry
        return None

    def next_due(self, now_ms: int) -> Entry | None:
        """A retry whose time has come: the caller puts it in line."""
        if self.waiting and self.waiting[0][0] <= now_ms:
            return heapq.heappop(self.waiting)[2]
        return None

    def is_waiting_before(self, seq: int) -> bool:
        """Whether a message with a lower sequence waits for its retry."""
        return any([found < seq for _, found, _ in self.waiting])

    def first_unheld(self) -> int:
        """The first sequence which is neither settled nor in hand; it may not be there yet."""
        settled = self.settled
        seq = settled.next_unsettled(self.unheld)
        while seq in self.held or seq in self.dying:
            seq = settled.next_unsettled(seq + 1)
        self.unheld = seq
        return seq

    # Keys which must wait

    def waits_for(self, entry: Entry) -> bool:
        """Whether an earlier message of the same key has not come back yet."""
        return any([one.key == entry.key and seq < entry.seq for _, seq, one in self.waiting])

    def step_back(self, first: Entry) -> None:
        """`first` has to wait: those in line behind it with the same key let it go first."""
        for entry in [one for one in self.returns if one.key == first.key and one.seq > first.seq]:
            self.returns.remove(entry)
            self.set_aside(entry)
            self.unblock(entry.key)

    def set_aside(self, entry: Entry) -> None:
        """Its key is blocked: it waits until that ends."""
        insort(self.aside.setdefault(entry.key, []), entry, key=sequence_of)
        self.aside_count += 1

    def block(self, key: int) -> None:
        """Messages of this key wait until `unblock` was called as often."""
        if key:
            self.blocked[key] = self.blocked.get(key, 0) + 1

    def unblock(self, key: int) -> None:
        if not key:
            return
        left = self.blocked.get(key, 0) - 1
        if left > 0:
            self.blocked[key] = left
        elif left == 0:
            del self.blocked[key]
            if key in self.aside:
                heapq.heappush(self.ready, (self.aside[key][0].seq, key))
                if len(self.ready) > 2 * len(self.aside) + 16:
                    self.list_ready()

    def realign(self, key_inflight: int, blocks_keys: bool, in_order: bool) -> None:
        """The rules have changed: which keys have to wait now."""
        self.out.clear()
        self.blocked.clear()
        if key_inflight:
            for held in self.held.values():
                key = held.entry.key
                if key:
                    self.out[key] = self.out.get(key, 0) + 1
            for key, out in self.out.items():
                if out >= key_inflight:
                    self.block(key)
        if blocks_keys:
            for entry in self.returns:
                self.block(entry.key)
            for _, _, entry in self.waiting:
                self.block(entry.key)
        if in_order:
            self.returns.sort(key=sequence_of)
        self.list_ready()

    def list_ready(self) -> None:
        """Find anew which keys are free."""
        self.ready = [
            (entries[0].seq, key) for key, entries in self.aside.items() if key not in self.blocked
        ]
        heapq.heapify(self.ready)

    def has_ready(self) -> bool:
        """Whether an entry which was set aside is free to go; the first in `ready` is it then."""
        while self.ready:
            seq, key = self.ready[0]
            entries = self.aside.get(key)
            if entries is not None and entries[0].seq == seq and key not in self.blocked:
                return True
            heapq.heappop(self.ready)
        return False

    def take_ready(self) -> Entry | None:
        if not self.has_ready():
            return None
        return self._from_aside(heapq.heappop(self.ready)[1], 0)

    def _from_aside(self, key: int, number: int) -> Entry:
        entries = self.aside[key]
        entry = entries.pop(number)
        self.aside_count -= 1
        if not entries:
            del self.aside[key]
        elif number == 0 and key not in self.blocked:
            heapq.heappush(self.ready, (entries[0].seq, key))
        return entry

    # Out of line

    def take_out(self, seq: int, blocks_keys: bool) -> None:
        """The message will not be handed out: out of whatever line it is in."""
        if seq >= self.next and seq not in self.ahead:
            return  # nobody has come to it
        for number, entry in enumerate(self.returns):
            if entry.seq == seq:
                del self.returns[number]
                if blocks_keys:
                    self.unblock(entry.key)
                return
        for number, (_, found, entry) in enumerate(self.waiting):
            if found == seq:
                del self.waiting[number]
                heapq.heapify(self.waiting)
                if blocks_keys:
                    self.unblock(entry.key)
                return
        for key, entries in self.aside.items():
            for number, entry in enumerate(entries):
                if entry.seq == seq:
                    self._from_aside(key, number)
                    return

    def empty(self, last: int, kept: list[int], key_inflight: int) -> None:
        """Settle everything up to `last` but the sequences in `kept`, which are in order."""
        self.returns.clear()
        self.ready.clear()
        self.waiting.clear()
        self.aside.clear()
        self.aside_count = 0
        self.unseen.clear()
        self.ahead.clear()
        # Only what is out can block a key now.
        self.blocked = {
            key: 1 for key, out in self.out.items() if key_inflight and out >= key_inflight
        }
        self.next = last + 1
        self.settled.raise_to(kept[0] - 1 if kept else last)
        for at, seq in enumerate(kept):
            end = kept[at + 1] if at + 1 < len(kept) else last + 1
            self.settled.add_between(seq, end)
        self.horizon = last + 1
        self.dirty = True
        keep = set(kept)
        for seq in [seq for seq in self.tallies if seq not in keep]:
            del self.tallies[seq]
            self.dirty_tallies.add(seq)

    # The store

    def claim(self, last: int, is_consumed: bool) -> int:
        """What the store shall say was handed out; the caller is about to write it.

        What was claimed counts as delivered after a crash. So only a flow of settlements, which
        needs it, claims ahead, and a group without consumers takes back what it did not hand out.
        """
        ahead = min(2 * self.settles, CLAIM_MAX) if self.settles >= FLOW_SETTLES_MIN else 0
        self.settles = 0
        if not is_consumed:
            ahead, self.claimed = 0, min(self.claimed, self.horizon)
        self.claiming = max(self.claimed, self.horizon, min(self.horizon + ahead, last + 1))
        return self.claiming
