"""Events and minutes do not stay for ever: they go when the lake has them, when they are too old,
and the oldest of all queues when there are too many.

Each run goes through the queues which have some, from the oldest row of each, a slice at a time.
When there are too many bytes a run deletes what is older than some part of the time they cover, and
the next one follows, until they fit.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, final

from queuelake.broker.interval import Interval
from queuelake.broker.slices import Slices
from queuelake.config_types import parse_duration
from queuelake.storage import api
from queuelake.storage import pipeline_tables as t
from queuelake.storage.api import SEQUENCE_MAX, ReadTransaction
from queuelake.storage.archive_tables import read_archived
from queuelake.storage.queue_tables import queue_key
from queuelake.tables import ECQ_QUEUE_ID, SDV_QUEUE_ID, Table

if TYPE_CHECKING:
    from queuelake.broker.clock import TimerWheel
    from queuelake.broker.queues.registry import Queues
    from queuelake.settings import Lake

RUN_EVERY_MS: Final = 60_000
AGAIN_MS: Final = 1_000
ROWS_PER_SLICE: Final = 200
SHARES: Final = 8  # the oldest of so many equal parts of the time goes when there is too much
TABLES: Final[dict[Table, int]] = {"stats": api.STATS, "events": api.EVENTS}


@final
class RecordRetention:
    """One run at a time."""

    def __init__(
        self,
        queues: Queues,
        timers: TimerWheel,
        loop: AbstractEventLoop,
        settings: Lake,
    ) -> None:
        self._queues = queues
        self._age_ms_max = parse_duration(settings.events_age_max)
        self._bytes_max = settings.events_bytes_max
        self._interval = Interval(queues.clock, timers, lambda: RUN_EVERY_MS, self.run)
        self._slices = Slices(loop, "deleting events")
        # Table and queue -> what the lake has, as long as the store may not know of it.
        self._marks: dict[tuple[Table, int], int] = {}
        self._oldest_ms = 0  # as far as the last run saw; 0: there was none yet
        self._has_effect = False  # whether another run would do more than this one

    def start(self) -> None:
        self._interval.begin(RUN_EVERY_MS)

    def archived(self, table: Table, queue_id: int, upto: int) -> None:
        """The lake has the rows of `events` or `stats` of a queue up to here."""
        key = (table, queue_id)
        self._marks[key] = max(upto, self._marks.get(key, 0))
        self._interval.begin(AGAIN_MS)

    def run(self, now_ms: int) -> None:
        if self._slices.is_running() or self._queues.runner.failure:
            return
        cutoff_ms = now_ms - self._age_ms_max if self._age_ms_max else 0
        if self._queues.ledger.bytes > self._bytes_max and self._oldest_ms:
            share_ms = max(1, (now_ms - self._oldest_ms) // SHARES)
            cutoff_ms = max(cutoff_ms, self._oldest_ms + share_ms)
        self._has_effect = not self._oldest_ms
        # The next run must not see in the store what this one has deleted.
        run = self._go_through(cutoff_ms, now_ms)
        self._slices.begin(run, lambda: self._queues.runner.after_durable(self._end))

    def _end(self) -> None:
        self._slices.end()
        if self._queues.ledger.bytes > self._bytes_max and self._has_effect:
            self._interval.begin(AGAIN_MS)

    def _go_through(self, cutoff_ms: int, now_ms: int) -> Iterator[None]:
        marks, self._marks = self._marks, {}
        oldest_ms = now_ms
        failures = self._queues.ledger.failures
        for name, table in TABLES.items():
            at = 0
            while True:
                with self._queues.store.view() as view:
                    queue_id = _queue_from(view, table, at)
                    if queue_id < 0:
                        break
                    upto = read_archived(view, name, queue_id, 0).upto
                upto = max(upto, marks.get((name, queue_id), 0))
                start = t.record_key(queue_id, 1)
                while start:
                    if self._queues.ledger.failures != failures:
                        self._marks = marks | self._marks
                        return  # what was deleted is in the store again
                    with self._queues.store.view() as view:
                        start, first_ms = self._delete(view, table, start, upto, cutoff_ms)
                    oldest_ms = min(oldest_ms, first_ms or now_ms)
                    yield
                at = queue_id + 1
        self._oldest_ms = oldest_ms
        yield

    def _delete(
        self, view: ReadTransaction, table: int, start: bytes, upto: int, cutoff_ms: int
    ) -> tuple[bytes, int]:
        """A slice of one queue. Where the next one begins, empty: nowhere; and when the oldest row
        was which stays."""
        queue_id = t.read_key(start)[0]
        stop = t.record_key(queue_id, SEQUENCE_MAX)
        rows = list(islice(view.scan(table, start, stop), ROWS_PER_SLICE + 1))
        is_there = _is_there(view, queue_id)
        for number, (key, value) in enumerate(rows[:ROWS_PER_SLICE]):
            last, ts_ms = _reach(table, key, value)
            if last > upto and ts_ms >= cutoff_ms:
                return b"", ts_ms
            is_last = number == len(rows) - 1
            if not is_last or not is_there:
                self._remove(table, key, value)
            elif ts_ms and table == api.EVENTS:
                self._remove(table, key, value)
                left = t.no_events(last + 1)
                self._put(t.record_key(queue_id, last), left)
        if len(rows) > ROWS_PER_SLICE:
            return rows[-1][0], 0
        if table == api.EVENTS and not is_there:
            self._forget_name(view, queue_id)
        return b"", 0

    def _forget_name(self, view: ReadTransaction, queue_id: int) -> None:
        """Nothing is left of a deleted queue."""
        start, stop = t.record_key(queue_id, 1), t.record_key(queue_id, SEQUENCE_MAX)
        if next(view.scan_keys(api.STATS, start, stop), None) is None:
            key = t.record_key(queue_id, 0)
            value = view.get(api.EVENTS, key)
            if value is not None:
                self._remove(api.EVENTS, key, value)

    def _remove(self, table: int, key: bytes, value: bytes) -> None:
        self._has_effect = True
        self._queues.runner.delete(table, key)
        self._queues.ledger.grow(-len(key) - len(value))

    def _put(self, key: bytes, value: bytes) -> None:
        self._queues.runner.put(api.EVENTS, key, value)
        self._queues.ledger.grow(len(key) + len(value))


def _queue_from(view: ReadTransaction, table: int, queue_id: int) -> int:
    """The first queue from this number on which has rows; -1: there is none."""
    key = next(view.scan_keys(table, t.record_key(queue_id, 0), b"\xff" * 17), None)
    return t.read_key(key)[0] if key is not None else -1


def _is_there(view: ReadTransaction, queue_id: int) -> bool:
    if queue_id in (ECQ_QUEUE_ID, SDV_QUEUE_ID):
        return True
    return view.get(api.QUEUES, queue_key(queue_id)) is not None


def _reach(table: int, key: bytes, value: bytes) -> tuple[int, int]:
    """The last sequence of a row, and when its last event was, or its minute."""
    if table == api.EVENTS:
        return t.events_reach(value)
    minute = t.decode_minute(t.read_key(key)[1], value)
    return minute.seqno, minute.ts_ms
