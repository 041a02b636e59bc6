"""Garbage collection of fan-out: rows, then data, then requests which are older than the retention.

A run looks at every record once, in small slices with a pause between them: ten thousand a second
at most, which nobody notices. It also deletes the rows of triggers which were never completed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, final

from queuelake.broker.interval import Interval
from queuelake.broker.slices import Neighbours, Slices
from queuelake.storage import api
from queuelake.storage import sdv_tables as t

if TYPE_CHECKING:
    from queuelake.broker.fanout.service import Fanout

log = logging.getLogger("queuelake.fanout")

RECORDS_PER_SLICE: Final = 20
RECORDS_PER_SLICE_SHARED: Final = 5  # each is in pages of its own, in a commit of others
PAUSE_S: Final = 0.002
FIRST_RUN_MS_MAX: Final = 30 * 60_000
_LAST: Final = b"\xff" * 64


@final
class Garbage:
    """Runs every `gc_interval`."""

    __slots__ = ("_fanout", "_interval", "_neighbours", "_oldest_ms", "_work")

    def __init__(self, fanout: Fanout) -> None:
        self._fanout: Fanout = fanout
        self._interval: Interval = Interval(
            fanout.clock,
            fanout.timers,
            lambda: fanout.config.gc_interval_ms,
            lambda _: self.collect(),
        )
        self._work: Slices = Slices(fanout.loop, "garbage collection of vehicle fan-out", PAUSE_S)
        self._neighbours: Neighbours = Neighbours(fanout.runner.pace)
        self._oldest_ms: int = 0  # no row is older; 0: nobody knows

    def start(self) -> None:
        self._interval.begin(min(FIRST_RUN_MS_MAX, self._fanout.config.gc_interval_ms))
        if self._fanout.register.hidden:
            self.collect()

    def interval_changed(self) -> None:
        self._interval.begin_anew()
        self.collect()

    def collect(self) -> bool:
        """Begin a run; False: one is under way."""
        if self._work.is_running():
            log.warning("garbage collection of vehicle fan-out is under way already")
            return False
        self._fanout.metrics.gc_runs += 1
        too_old_ms = self._fanout.clock.now_ms() - self._fanout.config.data_retention_ms
        self._work.begin(self._look_through(too_old_ms))
        return True

    def _look_through(self, too_old_ms: int) -> Iterator[None]:
        fanout = self._fanout
        nobodys = {ts for ts in fanout.register.hidden if not fanout.storing.is_storing(ts)}
        if nobodys or self._oldest_ms <= too_old_ms:
            yield from self._rows(too_old_ms, nobodys)
        yield from self._data(too_old_ms)
        yield from self._requests(too_old_ms)

    def _rows(self, too_old_ms: int, nobodys: set[int]) -> Iterator[None]:
        register = self._fanout.register
        started_ms = self._fanout.clock.now_ms()
        oldest_ms = min([started_ms, *(register.hidden - nobodys)])
        for row in register.recent.all_rows():  # they are few
            if row.ts_ms <= too_old_ms:
                self._fanout.dispatcher.expire(row, started_ms)
            else:
                oldest_ms = min(oldest_ms, row.ts_ms)
        for rows in self._slices(api.SDV_IDS):
            now_ms = self._fanout.clock.now_ms()
            for key, value in rows:
                ts_ms = t.row_time(key)
                if ts_ms in nobodys:
                    register.forget_hidden(key)
                    self._fanout.runner.take_part(self._fanout)
                elif ts_ms > too_old_ms:
                    oldest_ms = min(oldest_ms, ts_ms)
                elif register.counts(key):
                    row = t.read_row(key, value)
                    self._fanout.dispatcher.expire(row, now_ms)
            yield
        self._oldest_ms = oldest_ms
        for ts_ms in nobodys:
            register.forget_trigger(ts_ms)
            self._fanout.runner.delete(api.SDV_TRIGGERS, t.time_key(ts_ms))
        # Their rows must not be seen before they are gone.
        self._fanout.runner.after_durable(lambda: register.hidden.difference_update(nobodys))

    def _data(self, too_old_ms: int) -> Iterator[None]:
        fanout = self._fanout
        for rows in self._slices(api.SDV_META):
            for key, value in rows:
                meta = t.read_meta(value)
                if meta.ts_ms > too_old_ms or fanout.storing.uses(meta.data_id):
                    continue
                if not fanout.config.keep_referenced or not fanout.register.references(key):
                    fanout.payloads.remove(key, meta)
                    fanout.runner.take_part(fanout)
            yield

    def _requests(self, too_old_ms: int) -> Iterator[None]:
        register = self._fanout.register
        for rows in self._slices(api.SDV_REQUESTS):
            for key, value in rows:
                if t.read_progress(value).changed_ms <= too_old_ms:
                    progress = register.progress(key)
                    if progress and progress.changed_ms <= too_old_ms and not progress.pending:
                        register.forget_progress(key)
                        self._fanout.runner.take_part(self._fanout)
            yield

    def _slices(self, table: int) -> Iterator[list[tuple[bytes, bytes]]]:
        start = b""
        while True:
            count = RECORDS_PER_SLICE
            if self._neighbours.are_active():
                count = RECORDS_PER_SLICE_SHARED
            with self._fanout.store.view() as view:
                rows = list(islice(view.scan(table, start, _LAST), count))
            if not rows:
                return
            yield rows
            start = rows[-1][0] + b"\0"
