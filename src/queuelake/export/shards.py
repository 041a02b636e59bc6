"""How far the shards of queues reach: the answer to the action `shards`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from queuelake import control
from queuelake.control_pipeline import QUEUE_FLAGS, QueueFlags
from queuelake.errors import AnswerError
from queuelake.export.queues import Pattern, StoredQueue, queues_from, shown_id
from queuelake.flight import Shard, ShardsAsked
from queuelake.storage import queue_tables as t
from queuelake.storage.api import PARTITIONS, ReadTransaction
from queuelake.storage.reader import StoreReader

SHARDS_PER_VIEW_MAX: Final = 2000
CALL_TIMEOUT_S: Final = 10.0

Flags = dict[int, QueueFlags]

log = logging.getLogger("queuelake.export")


def find_shards(store: StoreReader, flags: Flags, asked: ShardsAsked) -> Iterator[list[Shard]]:
    """In the order of the queues' numbers; a view for some of them at a time."""
    pattern = Pattern(asked.queue)
    number = 0
    while number >= 0:
        found: list[Shard] = []
        with store.view() as view:
            number = _some_shards(view, store.id, flags, asked, pattern, number, found)
        yield found


def _some_shards(
    view: ReadTransaction,
    store_id: str,
    flags: Flags,
    asked: ShardsAsked,
    pattern: Pattern,
    number: int,
    found: list[Shard],
) -> int:
    """Returns the number of the queue to go on with; -1: there are no more."""
    if asked.table != "messages":
        return -1
    for queue in queues_from(view, number):
        if len(found) >= SHARDS_PER_VIEW_MAX:
            return queue.number
        if pattern.matches(queue.name):
            for shard in range(queue.shards):
                found.append(_shard(view, store_id, flags, queue, shard, asked.ts_ms))
    return -1


def _shard(
    view: ReadTransaction, store_id: str, flags: Flags, queue: StoredQueue, shard: int, ts_ms: int
) -> Shard:
    number = queue.number
    state = view.get(PARTITIONS, t.partition_key(number, shard))
    upto = t.last_sequence(view, number, shard)
    if state is not None:
        upto = max(upto, t.read_partition_state(state)[1])
    first = t.first_at_time(view, number, shard, ts_ms) if ts_ms else 0
    first = max(first, t.first_sequence(view, number, shard)) or upto + 1
    flag = flags.get(number)
    return Shard(
        queue=queue.name,
        queue_id=shown_id(store_id, number),
        kind=queue.kind,
        shard=shard,
        after=min(first - 1, upto),
        upto=upto,
        archive=flag is not None and flag.archive,
        schema=None if flag is None else flag.schema,
    )


def queue_flags(data_dir: Path) -> Flags:
    """What the settings of queues say, by their numbers."""
    try:
        answer = control.call(data_dir, QUEUE_FLAGS, {}, CALL_TIMEOUT_S)
    except AnswerError as error:
        if error.code != "NOT_FOUND":
            raise
        return {}
    return {one.number: one for one in msgspec.convert(answer, list[QueueFlags])}
