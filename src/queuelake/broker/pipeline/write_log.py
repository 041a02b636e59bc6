"""The log of what was written to mailboxes, or for vehicles: one row for each commit and shard.

What is written joins the log in its own commit, so the two always agree. A commit which fails takes
its rows with it; the sequences they had are not given again.
"""

from __future__ import annotations

from typing import final

from queuelake.broker.runner import Runner
from queuelake.storage import api
from queuelake.storage import log_tables as t
from queuelake.storage.api import Batch, Store
from queuelake.tables import LOG_SHARDS


@final
class WriteLog:
    """One of the two; whose it is takes part in commits."""

    __slots__ = ("_changed", "_pending", "_runner", "failures", "state", "store", "table")

    def __init__(self, store: Store, runner: Runner, table: int) -> None:
        self.store: Store = store
        self._runner: Runner = runner
        self.table: int = table
        self.state: t.LogState = t.LogState()
        self.failures: int = 0  # of commits: what was to be cleaned away is there again
        self._changed: bool = False
        self._pending: list[list[bytes]] = [[] for _ in range(LOG_SHARDS)]

    def load(self) -> None:
        with self.store.view() as view:
            self.state = t.read_state(view, self.table)

    def add(self, key: bytes) -> None:
        """Of what is written with the group being collected."""
        self._pending[key[0] & LOG_SHARDS - 1].append(key)
        self._changed = True

    def dropped(self, entries: int) -> None:
        """So many went from the rows of the log, with the group being collected."""
        self.state.entries -= entries
        self._changed = True

    def write(self, batch: Batch) -> None:
        if not self._changed:
            return
        self._changed = False
        state = self.state
        for shard in range(LOG_SHARDS):
            keys = self._pending[shard]
            if keys:
                t.put_rows(batch, self.table, shard, state.next[shard], keys)
                state.next[shard] += len(keys)
                state.entries += len(keys)
                self._pending[shard] = []
        batch.put(api.META, t.META_KEYS[self.table], state.encode())

    def rolled_back(self) -> None:
        """What belonged to the group being collected has failed with it."""
        self.failures += 1
        self._pending = [[] for _ in range(LOG_SHARDS)]
        with self.store.view() as view:
            self.state.entries = t.read_state(view, self.table).entries
        # In place of what the commit which failed would have said.
        self._runner.put(api.META, t.META_KEYS[self.table], self.state.encode())
