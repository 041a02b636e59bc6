"""Logs of writes do not grow for ever: what was overwritten or deleted leaves them.

An entry of a log costs nothing when its row goes. When there are more than twice as many entries as
rows, the log is walked from its beginning, a slice at a time with a pause between two, and entries
whose row is gone are dropped. So each write is looked at about twice in its life.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Iterator
from typing import Final, final

from queuelake.broker.clock import Clock, TimerWheel
from queuelake.broker.interval import Interval
from queuelake.broker.participant import Participant
from queuelake.broker.pipeline.write_log import WriteLog
from queuelake.broker.runner import Runner
from queuelake.broker.slices import Slices
from queuelake.storage import api
from queuelake.storage import log_tables as t
from queuelake.tables import LOG_SHARDS

LOOK_EVERY_MS: Final = 1_000
ENTRIES_SPARE: Final = 20_000  # a log may have more than it needs
# Each is looked for in the store, at a place of its own: a slice takes less than a millisecond.
ENTRIES_PER_SLICE: Final = 200
PAUSE_S: Final = 0.002
SLICES_PER_COMMIT: Final = 5  # more commits would mean more for others to wait for
ROWS: Final = {api.ECQ_LOG: api.ECQ_PAYLOAD, api.SDV_LOG: api.SDV_IDS}


@final
class LogCleaning:
    """Of one log; `participant` is who writes it."""

    def __init__(
        self,
        write_log: WriteLog,
        participant: Participant,
        runner: Runner,
        loop: AbstractEventLoop,
        clock: Clock,
        timers: TimerWheel,
    ) -> None:
        self._log = write_log
        self._participant = participant
        self._runner = runner
        self._interval = Interval(clock, timers, lambda: LOOK_EVERY_MS, lambda _: self.look())
        self._slices = Slices(loop, "cleaning a log of writes", PAUSE_S)
        self.entries_spare = ENTRIES_SPARE
        self._changes: dict[bytes, bytes | None] = {}  # rows to be put, or deleted
        self._dropped = 0  # entries

    def start(self) -> None:
        self._interval.begin(LOOK_EVERY_MS)

    def look(self) -> None:
        """Begin to clean if it is worth it."""
        if self._slices.is_running() or self._runner.failure:
            return
        with self._log.store.view() as view:
            rows = view.count(ROWS[self._log.table])
        if self._log.state.entries > 2 * rows + self.entries_spare:
            # The next run must not see in the store what this one has dropped.
            end = self._slices.end
            self._slices.begin(self._clean(), lambda: self._runner.after_durable(end))

    def _clean(self) -> Iterator[None]:
        failures = self._log.failures
        slices = 0
        for shard in range(LOG_SHARDS):
            after = 0
            while after >= 0:
                if self._log.failures != failures:
                    self._changes = {}
                    self._dropped = 0
                    return  # what was dropped is in the store again
                after = self._clean_slice(shard, after)
                slices += 1
                if slices % SLICES_PER_COMMIT == 0:
                    self._put()
                if after >= 0:
                    yield
        self._put()
        yield

    def _put(self) -> None:
        """What was found goes with the next commit. Rows of a log change nowhere else."""
        if self._dropped:
            self._runner.group.batch.tables[self._log.table].update(self._changes)
            self._log.dropped(self._dropped)
            self._runner.take_part(self._participant)
        self._changes = {}
        self._dropped = 0

    def _clean_slice(self, shard: int, after: int) -> int:
        """Returns behind which sequence the next slice begins; -1: there is none."""
        table = self._log.table
        left = ENTRIES_PER_SLICE
        following = -1
        with self._log.store.view() as view:
            for key, entries in t.log_rows(view, table, shard, after):
                first = int.from_bytes(key[1:], "big")
                if first <= after:
                    continue
                if left <= 0:
                    following = first - 1
                    break
                left -= len(entries)
                live = t.live_entries(view, table, entries)
                if not live:
                    self._changes[key] = None
                elif 4 * len(live) < 3 * len(entries):  # else it is not worth it
                    self._changes[key] = t.sparse_row(live, first)
                else:
                    continue
                self._dropped += len(entries) - len(live)
        return following
