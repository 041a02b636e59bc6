"""Rows of vehicles which were connected when they were triggered: most of them are acknowledged
within moments.

A row lies in the store by the hash of its vehicle, so that to put it and to delete it are two pages
written for nobody else. Those of connected vehicles are kept here instead, and are stored together:
some rows are one value, a bundle, and a bit for each says whether it has come to its end. Nothing
of this is less durable for it. What waits longer than `STAY_MS` moves to where all other rows are.

Rule 1. A row is here or among the others; while it moves, in both, as the same row.
Rule 2. The store decides: a bundle whose commit failed was never here, and what a commit which
        failed was to move has not moved.
"""

from __future__ import annotations

from typing import Final, final

from queuelake.broker.pipeline.write_log import WriteLog
from queuelake.engine.kinds.fanout import Row
from queuelake.storage import api
from queuelake.storage import sdv_tables as t
from queuelake.storage.api import Batch, ReadTransaction

STAY_MS: Final = 2_000
MOVE_AGAIN_MS: Final = 60_000  # after a commit which failed: the store may be full
ROWS_MAX: Final = 20_000
MOVED_PER_COMMIT: Final = 250
# A value which shares its page with others needs no pages of its own.
BUNDLE_BYTES_MAX: Final = 1_900


@final
class Bundle:
    """Rows of one trigger which are stored as one value."""

    __slots__ = (
        "data_id",
        "ended",
        "head",
        "key",
        "left",
        "moves",
        "request",
        "request_id",
        "rows",
        "size",
        "ts_ms",
    )

    def __init__(self, key: bytes, request_id: str, data_id: str) -> None:
        self.key: bytes = key
        self.ts_ms: int = t.bundle_time(key)
        self.request: bytes = t.request_key(request_id)
        self.request_id: str = request_id
        self.data_id: str = data_id
        self.head: bytes = t.row_value_head(request_id, data_id)
        self.size: int = len(self.head)
        self.rows: list[Row | None] = []  # None: it is not here any more
        self.ended: bytearray = bytearray()  # a bit for each row
        self.left: int = 0
        self.moves: bool = False  # with the group being committed


@final
class Kept:
    """A row, and its place in its bundle."""

    __slots__ = ("at", "bundle", "row")

    def __init__(self, row: Row, bundle: Bundle, at: int) -> None:
        self.row: Row = row
        self.bundle: Bundle = bundle
        self.at: int = at


@final
class Recent:
    """All of them."""

    __slots__ = (
        "_bundles",
        "_changed",
        "_dropped",
        "_filling",
        "_move_from_ms",
        "_moving",
        "_new",
        "_number",
        "_open",
        "_sealed_changed",
        "_sealed_dropped",
        "_sealed_new",
        "_vehicles",
        "count",
    )

    def __init__(self) -> None:
        self._vehicles: dict[bytes, list[Kept]] = {}  # by their hashes, in order
        self._bundles: dict[bytes, Bundle] = {}  # in order
        self._number: int = 0  # of the last bundle
        self._open: Bundle | None = None  # takes more rows
        self._filling: list[Bundle] = []  # of a slice which is not put yet
        self._new: list[Bundle] = []  # with the group being collected
        self._sealed_new: list[Bundle] = []  # with the one being committed; so are those below
        self._changed: dict[bytes, Bundle] = {}  # rows of them have ended
        self._sealed_changed: dict[bytes, Bundle] = {}
        self._dropped: list[bytes] = []  # of triggers which were given up
        self._sealed_dropped: list[bytes] = []
        self._moving: list[Bundle] = []
        self._move_from_ms: int = 0
        self.count: int = 0  # rows

    def load(self, view: ReadTransaction, hidden: set[int]) -> None:
        """What the last run left, but for triggers which were never complete."""
        for key, value in view.scan(api.SDV_RECENT, t.BUNDLES, t.ENDED):
            if t.bundle_time(key) in hidden:
                self._dropped.append(key)
                continue
            request_id, data_id, names = t.read_bundle(value)
            bundle = self._bundles[key] = Bundle(key, request_id, data_id)
            ended = view.get(api.SDV_RECENT, t.ended_key(key)) or b""
            for at, name in enumerate(names):
                self._put(bundle, t.name_digest(name), name)
                row = bundle.rows[at]
                if row is not None and at >> 3 < len(ended) and ended[at >> 3] >> (at & 7) & 1:
                    self._take(row.key)
                    bundle.ended[at >> 3] |= 1 << (at & 7)

    def has_room(self) -> bool:
        return self.count < ROWS_MAX

    def add(self, vehicle: bytes, name: bytes, ts_ms: int, request_id: str, data_id: str) -> int:
        """A row of the next slice; returns its size."""
        bundle = self._open
        if bundle is None or bundle.size + len(name) > BUNDLE_BYTES_MAX:
            self._number += 1
            bundle = Bundle(t.bundle_key(ts_ms, self._number), request_id, data_id)
            self._open = self._bundles[bundle.key] = bundle
            self._filling.append(bundle)
        return self._put(bundle, vehicle, name)

    def put(self) -> None:
        """The slice is part of the group being collected."""
        self._new += self._filling
        self._filling = []
        self._open = None

    def _put(self, bundle: Bundle, vehicle: bytes, name: bytes) -> int:
        bundle.size += len(name) + 2
        at = len(bundle.rows)
        if not at & 7:
            bundle.ended.append(0)
        key = t.row_key(vehicle, bundle.ts_ms, bundle.request)
        size = len(key) + len(bundle.head) + len(name)
        row = Row(key, bundle.ts_ms, name.decode(), bundle.request_id, bundle.data_id, size)
        bundle.rows.append(row)
        bundle.left += 1
        self.count += 1
        there = self._vehicles.get(vehicle)
        if there is None:
            there = self._vehicles[vehicle] = []
        there.append(Kept(row, bundle, at))
        return size

    # Looking

    def rows_of(self, vehicle: bytes) -> list[Row]:
        """In order."""
        there = self._vehicles.get(vehicle)
        return [kept.row for kept in there] if there is not None else []

    def first_after(self, vehicle: bytes, after: bytes, hidden: set[int]) -> Row | None:
        """Whoever ends a row takes it from here, so that all which are not hidden wait."""
        there = self._vehicles.get(vehicle)
        if there is not None:
            for kept in there:
                row = kept.row
                if row.key > after and row.ts_ms not in hidden:
                    return row
        return None

    def find(self, key: bytes) -> Row | None:
        for row in self.rows_of(key[: t.DIGEST_BYTES]):
            if row.key == key:
                return row
        return None

    def all_rows(self) -> list[Row]:
        return [row for one in self._bundles.values() for row in one.rows if row is not None]

    # What becomes of them

    def end(self, key: bytes) -> bool:
        """A row has come to its end. False: it is among the others, or will be with the commit
        under way."""
        kept = self._take(key)
        if kept is None:
            return False
        bundle, at = kept.bundle, kept.at
        bundle.ended[at >> 3] |= 1 << (at & 7)
        self._changed[bundle.key] = bundle
        return not bundle.moves

    def _take(self, key: bytes) -> Kept | None:
        vehicle = key[: t.DIGEST_BYTES]
        there = self._vehicles.get(vehicle)
        if there is None:
            return None
        for number, kept in enumerate(there):
            if kept.row.key == key:
                if len(there) == 1:
                    del self._vehicles[vehicle]
                else:
                    del there[number]
                kept.bundle.rows[kept.at] = None
                kept.bundle.left -= 1
                self.count -= 1
                return kept
        return None

    def _forget(self, bundle: Bundle) -> None:
        """All that is left of it."""
        for row in bundle.rows:
            if row is not None:
                self._take(row.key)
        self._bundles.pop(bundle.key, None)
        self._changed.pop(bundle.key, None)

    def drop(self, ts_ms: int) -> None:
        """The trigger of this time was given up."""
        for bundle in list(self._bundles.values()):
            if bundle.ts_ms == ts_ms:
                self._forget(bundle)
                self._dropped.append(bundle.key)

    def has_due(self, now_ms: int, hidden: set[int]) -> bool:
        """Whether some have waited too long."""
        return now_ms >= self._move_from_ms and len(self._due(now_ms, hidden)) > 0

    def _due(self, now_ms: int, hidden: set[int]) -> list[Bundle]:
        found: list[Bundle] = []
        rows = 0
        for bundle in self._bundles.values():
            if bundle.ts_ms > now_ms - STAY_MS or rows >= MOVED_PER_COMMIT:
                break
            if bundle.ts_ms not in hidden and bundle.left:
                found.append(bundle)
                rows += bundle.left
        return found

    # Commits

    def write(self, batch: Batch, log: WriteLog, now_ms: int, hidden: set[int]) -> None:
        table = batch.tables[api.SDV_RECENT]
        for bundle in self._new:
            names = [row.vin.encode() for row in bundle.rows if row is not None]
            table[bundle.key] = t.bundle_value(bundle.head, names)
        if now_ms >= self._move_from_ms:
            self._move(batch, log, self._due(now_ms, hidden))
        for key, bundle in self._changed.items():
            if bundle.left and not bundle.moves:
                table[t.ended_key(key)] = bytes(bundle.ended)
            else:
                self._dropped.append(key)
                self._bundles.pop(key, None)
        for key in self._dropped:
            table[key] = table[t.ended_key(key)] = None
        self._sealed_new, self._new = self._new, []
        self._sealed_changed, self._changed = self._changed, {}
        self._sealed_dropped, self._dropped = self._dropped, []

    def _move(self, batch: Batch, log: WriteLog, bundles: list[Bundle]) -> None:
        table = batch.tables[api.SDV_IDS]
        for bundle in bundles:
            bundle.moves = True
            self._moving.append(bundle)
            self._changed[bundle.key] = bundle
            for row in bundle.rows:
                if row is not None:
                    table[row.key] = bundle.head + row.vin.encode()
                    log.add(row.key)

    def stored(self) -> list[bytes]:
        """Returns the hashes of vehicles whose rows have moved."""
        moved: list[bytes] = []
        for bundle in self._moving:
            moved += [row.key[: t.DIGEST_BYTES] for row in bundle.rows if row is not None]
            self._forget(bundle)
        self._moving = []
        self._sealed_new = []
        self._sealed_changed = {}
        self._sealed_dropped = []
        return moved

    def rolled_back(self, now_ms: int) -> None:
        for bundle in self._sealed_new + self._new:
            self._forget(bundle)
        if self._moving:
            self._move_from_ms = now_ms + MOVE_AGAIN_MS
        gone = set(self._sealed_dropped)
        for bundle in self._moving:
            bundle.moves = False
            if bundle.left:
                self._bundles[bundle.key] = bundle
                gone.discard(bundle.key)
        for key, bundle in self._sealed_changed.items():
            if bundle.left:
                self._changed[key] = bundle
        self._dropped += gone
        self._moving = []
        self._new = []
        self._sealed_new = []
        self._sealed_changed = {}
        self._sealed_dropped = []
