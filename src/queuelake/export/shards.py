"""How far the shards of queues reach: the answer to the action `shards`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from queuelake.control_pipeline import QUEUE_FLAGS, QueueFlags
from queuelake.export.places import first_at, reach
from queuelake.export.queues import (
    FANOUT,
    MAILBOXES,
    Pattern,
    ShownQueue,
    queue_of,
    shown_id,
    stored_queues,
)
from queuelake.export.stores import Stores
from queuelake.flight import Shard, ShardsAsked
from queuelake.storage.api import EVENTS, STATS, ReadTransaction
from queuelake.storage.archive_tables import read_archived
from queuelake.storage.pipeline_tables import recorded_queues
from queuelake.storage.reader import StoreReader

SHARDS_PER_VIEW_MAX: Final = 2000
CALL_TIMEOUT_S: Final = 10.0

Flags = dict[int, QueueFlags]


def find_shards(store: StoreReader, flags: Flags, asked: ShardsAsked) -> Iterator[list[Shard]]:
    """A view for some of them at a time, in the order of the queues' numbers."""
    finder = _Finder(store.id, flags, asked)
    number = 0
    while number >= 0:
        with store.view() as view:
            number = finder.find(view, number)
        yield finder.found


class _Finder:
    def __init__(self, store_id: str, flags: Flags, asked: ShardsAsked) -> None:
        self.found: list[Shard] = []
        self._store_id = store_id
        self._flags = flags
        self._asked = asked
        self._pattern = Pattern(asked.queue)

    def find(self, view: ReadTransaction, number: int) -> int:
        """Begin `found` anew with the queues from this number on. Returns the number to go on
        with; -1: there is nothing more."""
        self.found = []
        queues = self._messages if self._asked.table == "messages" else self._records
        for queue in queues(view, number):
            if len(self.found) >= SHARDS_PER_VIEW_MAX:
                return queue.number
            if self._pattern.matches(queue.name):
                for shard in range(queue.shards):
                    self.found.append(self._shard(view, queue, shard))
        return -1

    def _messages(self, view: ReadTransaction, number: int) -> Iterator[ShownQueue]:
        yield from stored_queues(view, number)
        for queue in (MAILBOXES, FANOUT):
            if queue.number >= number:
                yield queue

    def _records(self, view: ReadTransaction, number: int) -> Iterator[ShownQueue]:
        table = EVENTS if self._asked.table == "events" else STATS
        for recorded in recorded_queues(view, table):
            queue = queue_of(view, recorded) if recorded >= number else None
            if queue is not None:
                yield ShownQueue(recorded, queue.name, queue.kind, 1)

    def _shard(self, view: ReadTransaction, queue: ShownQueue, shard: int) -> Shard:
        table, ts_ms = self._asked.table, self._asked.ts_ms
        after, upto = reach(view, table, queue, shard)
        if ts_ms and after < upto:
            after = min(max(after, first_at(view, table, queue, shard, ts_ms, after) - 1), upto)
        archived = read_archived(view, table, queue.number, shard)
        flag = self._flags.get(queue.number)
        return Shard(
            queue=queue.name,
            queue_id=shown_id(self._store_id, queue.number),
            kind=queue.kind,
            shard=shard,
            after=after,
            upto=upto,
            archive=flag is not None and flag.archive,
            archived=archived.upto,
            lost=archived.lost,
            schema=None if flag is None else flag.schema,
        )


def queue_flags(stores: Stores, number: int) -> Flags:
    """What the settings of queues of a store say, by their numbers."""
    answer = stores.ask(number, QUEUE_FLAGS, {}, CALL_TIMEOUT_S)
    return {one.number: one for one in msgspec.convert(answer, list[QueueFlags])}
