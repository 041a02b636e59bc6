"""The rows which wait for vehicles, and how many there are: what the store has, and what changed.

Rows are read from the store whenever they are needed. In memory are only those of vehicles which
were connected a moment ago (`Recent`), the keys of those whose deletion is not durable yet, and the
counts which changed lately; both go into the next commit. A
commit which fails changes nothing here: what was decided stays decided, and is written again. The
one exception is a trigger, whose publisher is told that it failed (`take_back`).

The rows of a trigger count, and are seen, when the last of them is durable; `hidden` has the times
of those which are not there yet, or never will be.
"""

from __future__ import annotations

from typing import Final, final

from queuelake.broker.fanout.recent import Recent
from queuelake.broker.pipeline.write_log import WriteLog
from queuelake.engine.kinds.fanout import Row
from queuelake.storage import api
from queuelake.storage import sdv_tables as t
from queuelake.storage.api import Batch, ReadTransaction, Store

COUNTS_KEPT_MAX: Final = 1_000
BARE_MAX: Final = 50_000
_LAST: Final = b"\xff" * 24


@final
class Register:
    """All pending rows."""

    __slots__ = (
        "_bare",
        "_given_up",
        "_going",
        "_leaving",
        "_progress",
        "_progress_dirty",
        "_references",
        "_references_dirty",
        "_sealed_given_up",
        "_sealed_progress",
        "_sealed_references",
        "_store",
        "hidden",
        "recent",
        "totals",
    )

    def __init__(self, store: Store) -> None:
        self._store: Store = store
        self.totals: t.Totals = t.Totals()
        self.hidden: set[int] = set()
        self.recent: Recent = Recent()
        # Vehicles of which the store has no row but recent ones: it need not be asked.
        self._bare: set[bytes] = set()
        # Triggers which will never be complete, and of which the store does not say so yet.
        self._given_up: set[int] = set()
        self._sealed_given_up: set[int] = set()
        self._going: dict[bytes, int] = {}  # keys to delete with the group being collected
        self._leaving: dict[bytes, int] = {}  # with the one being committed
        self._progress: dict[bytes, t.Progress] = {}
        self._progress_dirty: set[bytes] = set()
        self._sealed_progress: set[bytes] = set()
        self._references: dict[bytes, int] = {}
        self._references_dirty: set[bytes] = set()
        self._sealed_references: set[bytes] = set()

    def load(self) -> None:
        with self._store.view() as view:
            self.totals = t.read_totals(view)
            for key, value in view.scan(api.SDV_TRIGGERS, b"", _LAST):
                ts_ms = int.from_bytes(key, "big")
                self.hidden.add(ts_ms)
                if value:
                    self._given_up.add(ts_ms)
            self.recent.load(view, self.hidden)

    def give_up(self, ts_ms: int) -> None:
        """The rows of this trigger will never count: nobody has to wait for them."""
        self._given_up.add(ts_ms)
        self.recent.drop(ts_ms)

    def reveal(self, ts_ms: int, are_recent: bool) -> None:
        """All rows of this trigger are durable. `are_recent`: none of them joined the others."""
        self.hidden.discard(ts_ms)
        if not are_recent:
            self._bare.clear()

    def gives_up(self) -> bool:
        """Whether the store has to be told of such a trigger."""
        return len(self._given_up) > 0

    def forget_trigger(self, ts_ms: int) -> None:
        """Its rows are gone, with the group being collected."""
        self._given_up.discard(ts_ms)

    def new_time(self, now_ms: int) -> int:
        """For a trigger: never the same twice, and greater than all before."""
        self.totals.last_ts_ms = max(now_ms, self.totals.last_ts_ms + 1)
        return self.totals.last_ts_ms

    # Rows

    def next_row(self, view: ReadTransaction, vehicle: bytes, after: bytes) -> Row | None:
        """The next row of a vehicle behind a key, or its first one."""
        recent = self.next_recent(vehicle, after)
        if vehicle in self._bare:
            return recent
        start = after + b"\0" if after else vehicle
        while True:
            found = view.first_from(api.SDV_IDS, start)
            if found is None or not found[0].startswith(vehicle):
                if start == vehicle:
                    self._remember_bare(vehicle)
                return recent
            if recent is not None and recent.key <= found[0]:
                return recent
            if self.counts(found[0]):
                return t.read_row(found[0], found[1])
            start = found[0] + b"\0"

    def is_bare(self, vehicle: bytes) -> bool:
        """Whether a vehicle is known to have no row but recent ones."""
        return vehicle in self._bare

    def _remember_bare(self, vehicle: bytes) -> None:
        if len(self._bare) >= BARE_MAX:
            self._bare.clear()  # most of them may have left long ago
        self._bare.add(vehicle)

    def next_recent(self, vehicle: bytes, after: bytes) -> Row | None:
        return self.recent.first_after(vehicle, after, self.hidden)

    def rows_after(self, vehicle: bytes, after: bytes, limit: int) -> list[Row]:
        """The next rows of a vehicle behind a key, or the first ones."""
        found = [
            row for row in self.recent.rows_of(vehicle) if row.key > after and self.counts(row.key)
        ]
        known = {row.key for row in found}
        stored = 0
        start = after + b"\0" if after else vehicle
        with self._store.view() as view:
            for key, value in view.scan(api.SDV_IDS, start, vehicle + _LAST):
                if key not in known and self.counts(key):
                    found.append(t.read_row(key, value))
                    stored += 1
                    if stored == limit:
                        break
        found.sort(key=_key)
        return found[:limit]

    def row(self, key: bytes) -> Row | None:
        if not self.counts(key):
            return None
        recent = self.recent.find(key)
        if recent is not None:
            return recent
        with self._store.view() as view:
            value = view.get(api.SDV_IDS, key)
        return t.read_row(key, value) if value is not None else None

    def has_request(self, vehicle: bytes, request: bytes) -> bool:
        for row in self.recent.rows_of(vehicle):
            if row.key[24:] == request and self.counts(row.key):
                return True
        with self._store.view() as view:
            for key in view.scan_keys(api.SDV_IDS, vehicle, vehicle + _LAST):
                if key[24:] == request and self.counts(key):
                    return True
        return False

    def counts(self, key: bytes) -> bool:
        """Whether the row with this key, which the store has, is one which waits."""
        if key in self._going or key in self._leaving:
            return False
        return not self.hidden or t.row_time(key) not in self.hidden

    def remove(self, row: Row, outcome: int, now_ms: int) -> bool:
        """A row which waits has come to its end. False: it has before.

        The row was read just now, or is in flight: nobody else removes it then.
        """
        if row.size == 0 or not self.counts(row.key):
            return False
        self._remove(row, outcome, now_ms)
        row.size = 0  # whoever still has it in flight knows by this
        return True

    def _remove(self, row: Row, outcome: int, now_ms: int) -> None:
        if not self.recent.end(row.key):
            self._going[row.key] = 0
        request = row.key[24:]
        progress = self.progress(request)
        if progress is not None:
            progress.pending -= 1
            progress.outcomes[outcome] += 1
            progress.changed_ms = max(progress.changed_ms, now_ms)
            self._progress_dirty.add(request)
        self._refer(t.data_key(row.data_id), -1)
        self.totals.pending -= 1
        self.totals.index_bytes -= row.size

    def forget_hidden(self, key: bytes) -> None:
        """Delete a row which never counted."""
        self._going[key] = 0

    # Counts

    def trigger(self, request_id: str, data_id: str, ts_ms: int, count: int, size: int) -> None:
        """All rows of a trigger are in the store with the next commit."""
        request = t.digest(request_id)
        progress = self.progress(request)
        if progress is None:
            progress = self._progress[request] = t.Progress(request_id)
        progress.ts_ms = max(progress.ts_ms, ts_ms)
        progress.changed_ms = max(progress.changed_ms, ts_ms)
        progress.triggered += count
        progress.pending += count
        self._progress_dirty.add(request)
        self._refer(t.digest(data_id), count)
        self.totals.pending += count
        self.totals.index_bytes += size

    def take_back(self, request_id: str, data_id: str, count: int, size: int) -> None:
        """They are not."""
        request = t.digest(request_id)
        progress = self.progress(request)
        assert progress is not None
        progress.triggered -= count
        progress.pending -= count
        self._progress_dirty.add(request)
        self._refer(t.digest(data_id), -count)
        self.totals.pending -= count
        self.totals.index_bytes -= size

    def progress(self, request: bytes) -> t.Progress | None:
        known = self._progress.get(request)
        if known is None:
            if request in self._progress_dirty or request in self._sealed_progress:
                return None  # it is forgotten, which the store does not know yet
            with self._store.view() as view:
                value = view.get(api.SDV_REQUESTS, request)
            if value is None:
                return None
            known = t.read_progress(value)
            self._progress[request] = known
        return known

    def forget_progress(self, request: bytes) -> None:
        self._progress.pop(request, None)
        self._progress_dirty.add(request)

    def lately(self) -> list[t.Progress]:
        """Of the requests which are in memory."""
        return list(self._progress.values())

    def references(self, data: bytes) -> int:
        """How many rows wait for a payload."""
        known = self._references.get(data, -1)
        if known < 0:
            with self._store.view() as view:
                value = view.get(api.SDV_REFERENCES, data)
            known = int.from_bytes(value, "big") if value is not None else 0
            self._references[data] = known
        return known

    def _refer(self, data: bytes, change: int) -> None:
        self._references[data] = max(0, self.references(data) + change)
        self._references_dirty.add(data)

    # Commits

    def write(self, batch: Batch, log: WriteLog, now_ms: int) -> None:
        """What changed since the last one; `log` is told of rows which join all others."""
        self.recent.write(batch, log, now_ms, self.hidden)
        rows = batch.tables[api.SDV_IDS]
        for key in self._going:
            rows[key] = None
        for ts_ms in self._given_up:
            batch.put(api.SDV_TRIGGERS, t.time_key(ts_ms), b"")
        for request in self._progress_dirty:
            progress = self._progress.get(request)
            if progress is None:
                batch.delete(api.SDV_REQUESTS, request)
            else:
                batch.put(api.SDV_REQUESTS, request, progress.encode())
        for data in self._references_dirty:
            count = self._references[data]
            if count:
                batch.put(api.SDV_REFERENCES, data, count.to_bytes(8, "big"))
            else:
                batch.delete(api.SDV_REFERENCES, data)
        batch.put(api.META, t.TOTALS_KEY, self.totals.encode())
        self._leaving, self._going = self._going, {}
        self._sealed_given_up, self._given_up = self._given_up, set()
        self._sealed_progress, self._progress_dirty = self._progress_dirty, set()
        self._sealed_references, self._references_dirty = self._references_dirty, set()

    def stored(self) -> None:
        self._bare.difference_update(self.recent.stored())
        self._leaving = {}
        self._sealed_given_up = set()
        self._sealed_progress = set()
        self._sealed_references = set()
        if len(self._progress) > COUNTS_KEPT_MAX:
            # Of what was forgotten only the deletion is left.
            changed = [key for key in self._progress_dirty if key in self._progress]
            self._progress = {key: self._progress[key] for key in changed}
        if len(self._references) > COUNTS_KEPT_MAX:
            self._references = {key: self._references[key] for key in self._references_dirty}

    def rolled_back(self, now_ms: int) -> None:
        self.recent.rolled_back(now_ms)
        self._going.update(self._leaving)
        self._leaving = {}
        self._given_up |= self._sealed_given_up
        self._sealed_given_up = set()
        self._progress_dirty.update(self._sealed_progress)
        self._sealed_progress = set()
        self._references_dirty.update(self._sealed_references)
        self._sealed_references = set()


def _key(row: Row) -> bytes:
    return row.key
