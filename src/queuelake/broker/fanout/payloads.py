"""Payloads which were published for vehicles: each is stored once, however many wait for it.

The bytes of an id never change: publishing it again only makes it younger. What was published and
is not durable yet is not there for anybody. As in `register.py`, a deletion whose commit failed is
written again; a publish whose commit failed never was.
"""

from __future__ import annotations

from typing import Final, final

from queuelake.broker.runner import Runner
from queuelake.storage import api
from queuelake.storage import sdv_tables as t
from queuelake.storage.api import Batch, Store

CACHE_BYTES_MAX: Final = 8 * 1024 * 1024
NO_PROPERTIES: Final = b"\0"


@final
class Payloads:
    """The tables of data, and the bodies which were sent lately."""

    __slots__ = (
        "_bodies",
        "_bytes",
        "_going",
        "_leaving",
        "_new",
        "_refreshed",
        "_runner",
        "_sealed",
        "_sealed_refreshed",
        "_store",
        "totals",
    )

    def __init__(self, store: Store, runner: Runner) -> None:
        self._store: Store = store
        self._runner: Runner = runner
        self.totals: t.Totals = t.Totals()
        self._bodies: dict[bytes, bytes] = {}  # the one sent last comes last
        self._bytes: int = 0
        # Published with the group being collected, and with the one being committed.
        self._new: dict[bytes, t.DataMeta] = {}
        self._sealed: dict[bytes, t.DataMeta] = {}
        # Published again with these: the store says that they are older than they are.
        self._refreshed: set[bytes] = set()
        self._sealed_refreshed: set[bytes] = set()
        # Deleted with these.
        self._going: set[bytes] = set()
        self._leaving: set[bytes] = set()

    def put(self, data_id: str, payload: bytes, now_ms: int) -> None:
        """Part of the group being collected; the caller takes part in it."""
        key = t.digest(data_id)
        meta = self.meta(key)
        if meta is None:
            meta = t.DataMeta(data_id, now_ms, len(payload))
            self._new[key] = meta
            self._count(meta, 1)
            self._runner.put(api.SDV_DATA, key, t.data_value(data_id, payload))
        else:
            self._refreshed.add(key)
        meta.ts_ms = now_ms
        self._runner.put(api.SDV_META, key, meta.encode())

    def meta(self, key: bytes) -> t.DataMeta | None:
        """Of a payload which is stored, or is about to be."""
        known = self._new.get(key) or self._sealed.get(key)
        if known is not None or key in self._going or key in self._leaving:
            return known
        with self._store.view() as view:
            value = view.get(api.SDV_META, key)
        return t.read_meta(value) if value is not None else None

    def body(self, key: bytes) -> bytes | None:
        """What a PUBLISH holds behind its topic: no properties, and the payload."""
        body = self._bodies.pop(key, None)
        if body is not None:
            self._bodies[key] = body
            return body
        if key in self._going or key in self._leaving:
            return None
        with self._store.view() as view:
            value = view.get(api.SDV_DATA, key)
        if value is None:
            return None
        body = NO_PROPERTIES + t.read_data(value)
        if len(body) <= CACHE_BYTES_MAX:
            self._bodies[key] = body
            self._bytes += len(body)
            while self._bytes > CACHE_BYTES_MAX:
                oldest = next(iter(self._bodies))
                self._bytes -= len(self._bodies.pop(oldest))
        return body

    def is_at_hand(self, key: bytes) -> bool:
        """Whether its body is in memory."""
        return key in self._bodies

    def is_stored(self, key: bytes) -> bool:
        if key in self._bodies:
            return True
        if key in self._going or key in self._leaving:
            return False
        with self._store.view() as view:
            return view.get(api.SDV_META, key) is not None

    def remove(self, key: bytes, meta: t.DataMeta) -> None:
        """It is too old, unless published again just now; `meta` was just read from the store."""
        if key in self._refreshed or key in self._sealed_refreshed:
            return
        if self.is_stored(key):
            self._going.add(key)
            self._bytes -= len(self._bodies.pop(key, b""))
            self._count(meta, -1)

    def _count(self, meta: t.DataMeta, change: int) -> None:
        name = len(meta.data_id.encode())
        self.totals.payloads += change
        self.totals.payload_bytes += change * (t.DIGEST_BYTES + 2 + name + meta.size)
        self.totals.meta_bytes += change * (t.DIGEST_BYTES + t.META_BYTES + name)

    # Commits

    def write(self, batch: Batch) -> None:
        for key in self._going:
            if key not in self._new:
                batch.delete(api.SDV_DATA, key)
                batch.delete(api.SDV_META, key)
        self._leaving, self._going = self._going, set()
        self._sealed, self._new = self._new, {}
        self._sealed_refreshed, self._refreshed = self._refreshed, set()

    def stored(self) -> list[bytes]:
        """Returns what can be sent from now on."""
        arrived = list(self._sealed)
        self._leaving = set()
        self._sealed = {}
        self._sealed_refreshed = set()
        return arrived

    def rolled_back(self) -> None:
        for meta in self._sealed.values():
            self._count(meta, -1)
        for meta in self._new.values():
            self._count(meta, -1)
        self._sealed = {}
        self._new = {}
        self._sealed_refreshed = set()
        self._refreshed = set()
        self._going |= self._leaving
        self._leaving = set()
