"""What is done about mailboxes as time passes: old entries go, and nobody waits for ever.

Garbage collection looks at every owner in the store, a slice at a time with a pause between two, so
that it never holds up a delivery: from its oldest entry on, up to the first which is not over. What
is left of an owner which has no entry and gave no sign for long is dropped; a mark over all owners
sees to it that no sequence is used twice.

An owner which is online and has nothing in hand is looked after now and then, in case a hint that
there is something for it got lost.
"""

from __future__ import annotations

import heapq
import logging
from asyncio import AbstractEventLoop
from typing import TYPE_CHECKING, Final, final

from queuelake.broker.interval import Interval
from queuelake.broker.slices import Neighbours
from queuelake.engine.events import EXPIRED
from queuelake.engine.kinds.ecq import ABSENT, IDLE
from queuelake.storage import api
from queuelake.storage import ecq_tables as t

if TYPE_CHECKING:
    from queuelake.broker.clock import TimerWheel
    from queuelake.broker.ecq.reader import Reader
    from queuelake.broker.ecq.service import Mailboxes
    from queuelake.storage.api import ReadTransaction

log = logging.getLogger("queuelake.ecq")

OWNERS_PER_SLICE: Final = 20
ROWS_PER_SLICE: Final = 20
ROWS_PER_SLICE_SHARED: Final = 5  # each is in pages of its own, in a commit of others
PAUSE_S: Final = 0.002
FIRST_RUN_MS_MAX: Final = 30 * 60_000
POLL_AFTER_MS: Final = 30_000
POLLS_PER_TURN_MAX: Final = 500


@final
class Garbage:
    """One run at a time, every `gc_interval`."""

    __slots__ = ("_interval", "_loop", "_mailboxes", "_neighbours", "_next", "_now_ms")

    def __init__(self, mailboxes: Mailboxes, timers: TimerWheel, loop: AbstractEventLoop) -> None:
        self._mailboxes: Mailboxes = mailboxes
        self._loop: AbstractEventLoop = loop
        self._interval: Interval = Interval(
            mailboxes.queues.clock,
            timers,
            lambda: mailboxes.config.gc_interval_ms,
            lambda _: self.collect(),
        )
        self._neighbours: Neighbours = Neighbours(mailboxes.runner.pace)
        self._now_ms: int = 0
        self._next: bytes | None = None  # the owner to begin with; None: no run is under way

    def start(self) -> None:
        self._interval.begin(min(FIRST_RUN_MS_MAX, self._mailboxes.config.gc_interval_ms))

    def reschedule(self) -> None:
        """The interval has changed."""
        self.collect()
        self._interval.begin_anew()

    def collect(self) -> bool:
        """Start a run; False: one is under way."""
        if self._next is not None:
            log.warning("garbage collection of mailboxes is under way; not started again")
            return False
        self._mailboxes.counters.gc_runs += 1
        self._next = b""
        self._loop.call_soon(self._slice)
        return True

    def _slice(self) -> None:
        mailboxes = self._mailboxes
        start, self._next = self._next, None  # a run which cannot go on is over
        if start is None or mailboxes.runner.failure:
            return
        self._now_ms = mailboxes.queues.clock.now_ms()
        oldest_ms = mailboxes.oldest_ms(self._now_ms)
        rows_max = ROWS_PER_SLICE_SHARED if self._neighbours.are_active() else ROWS_PER_SLICE
        owners, rows = OWNERS_PER_SLICE, rows_max
        following: bytes | None = None
        changed: list[bytes] = []
        with mailboxes.store.view() as view:
            for owner, numbers in view.scan(api.ECQ_SEQNO, start, b"\xff" * 17):
                if owners == 0 or rows == 0:
                    following = owner
                    break
                removed, is_empty = self._collect_from(view, owner, numbers, rows, oldest_ms)
                owners, rows = owners - 1, rows - removed
                if removed:
                    changed.append(t.read_numbers(numbers)[2])
                if rows == 0:
                    following = owner  # there may be more
                    break
                if is_empty and not removed:
                    self._drop_if_idle(view, owner, numbers)
        if changed:
            mailboxes.counters.expired += rows_max - rows
            mailboxes.runner.take_part(mailboxes)
            # Whoever asks before that still finds in the store what is deleted here.
            mailboxes.runner.after_durable(lambda: self._forget(changed))
        if following is not None:
            self._next = following
            self._loop.call_later(PAUSE_S, self._slice)

    def _forget(self, names: list[bytes]) -> None:
        for name in names:
            self._mailboxes.writes.owners.forget(name)

    def _collect_from(
        self, view: ReadTransaction, owner: bytes, numbers: bytes, rows_max: int, oldest_ms: int
    ) -> tuple[int, bool]:
        """Returns how many entries were removed, and whether the owner has no others."""
        batch = self._mailboxes.runner.group.batch
        events = self._mailboxes.events
        removed = 0
        last: t.IndexRow | None = None
        start = t.index_key(owner, 0)
        name = t.read_numbers(numbers)[2]
        while True:
            found = view.first_from(api.ECQ_INDEX, start)
            if found is None or not found[0].startswith(owner):
                if last is not None:
                    self._mailboxes.writes.emptied(batch, name, owner, last)
                return removed, True
            row = t.read_index_row(found[0], found[1])
            if removed == rows_max or not row.is_over(oldest_ms, self._now_ms):
                return removed, False
            t.delete_entry(batch, owner, row)
            events.note(EXPIRED, self._now_ms, name, row.seq)
            removed += 1
            last = row
            start = found[0] + b"\0"

    def _drop_if_idle(self, view: ReadTransaction, owner: bytes, numbers: bytes) -> None:
        mailboxes = self._mailboxes
        retention_ms = mailboxes.config.state_retention_ms
        next_seq, active_ms, name = t.read_numbers(numbers)
        state = view.get(api.ECQ_STATE, owner)
        if state is not None:
            active_ms = max(active_ms, t.read_numbers(state)[1])
        if retention_ms == 0 or active_ms > self._now_ms - retention_ms:
            return
        if name in mailboxes.readers or mailboxes.is_changing(name):
            return
        owners = mailboxes.writes.owners
        owners.first_seq = max(owners.first_seq, next_seq)
        runner = mailboxes.runner
        runner.put(api.META, t.HIGH_WATER, str(owners.first_seq).encode())
        runner.delete(api.ECQ_SEQNO, owner)
        runner.delete(api.ECQ_STATE, owner)
        owners.forget(name)


@final
class Polling:
    """One timer for all owners which are online."""

    __slots__ = ("_due", "_mailboxes", "_number", "_timers")

    def __init__(self, mailboxes: Mailboxes, timers: TimerWheel) -> None:
        self._mailboxes: Mailboxes = mailboxes
        self._timers: TimerWheel = timers
        self._due: list[tuple[int, int, Reader]] = []  # heap: when to look, who came first
        self._number: int = 0

    def start(self) -> None:
        self._turn(self._mailboxes.queues.clock.now_ms())

    def watch(self, reader: Reader) -> None:
        self._number += 1
        heapq.heappush(self._due, (reader.active_ms + POLL_AFTER_MS, self._number, reader))

    def _turn(self, now_ms: int) -> None:
        left = POLLS_PER_TURN_MAX
        while self._due and left and self._due[0][0] <= now_ms:
            left -= 1
            reader = heapq.heappop(self._due)[2]
            phase = reader.machine.phase
            if phase == ABSENT:
                continue
            if now_ms - reader.active_ms >= POLL_AFTER_MS:
                reader.active_ms = now_ms
                if phase == IDLE:
                    self._mailboxes.look(reader, now_ms)
            self.watch(reader)
        self._timers.arm(now_ms + 1, self._turn)
