"""Do the events in the store of a broker which was killed agree with its messages?"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from queuelake.storage import api, queue_records, queue_tables
from queuelake.storage import pipeline_tables as t
from queuelake.storage.api import ReadTransaction
from queuelake.storage.check import problems
from queuelake.storage.lmdb_store import read_only

ROWS_MAX = 1_000_000
PARTITIONS = 10


def event_mistakes(data_dir: Path, queue: str) -> list[str]:
    """Of a queue with `events = "all"` and one group, in which everything is settled."""
    with read_only(data_dir) as view:
        found = problems(view, ROWS_MAX)
        number = _number(view, queue)
        after, upto = t.record_range(view, api.EVENTS, number)
        values = list(t.read_events(view, number, after, upto))
        ends = [queue_tables.last_sequence(view, number, one) for one in range(PARTITIONS)]
    events = [one for value in values for one in t.decode_events(value)]
    came = Counter((one.partition, one.message_seqno) for one in events if one.step == "enqueued")
    ended = Counter(
        (one.partition, one.message_seqno)
        for one in events
        if one.step in ("acked", "dead_lettered")
    )
    handed_out = {(one.partition, one.message_seqno) for one in events if one.step == "delivered"}
    found += [f"{place} came {count} times" for place, count in came.items() if count != 1]
    found += [f"{place} ended {count} times" for place, count in ended.items() if count != 1]
    found += [f"{place} came and did not end" for place in came.keys() - ended.keys()]
    found += [f"{place} ended and never came" for place in ended.keys() - came.keys()]
    found += [f"{place} ended and was never handed out" for place in ended.keys() - handed_out]
    for partition in {place[0] for place in came}:
        seqs = sorted(seq for number, seq in came if number == partition)
        if seqs != list(range(1, len(seqs) + 1)):
            found.append(f"partition {partition}: not every sequence has an event")
        if ends[partition] > len(seqs):
            found.append(f"partition {partition}: {ends[partition]} came, {len(seqs)} events")
    return found


def _number(view: ReadTransaction, queue: str) -> int:
    for key, value in view.scan(api.QUEUES, b"", b"\xff" * 9):
        if queue_records.decode_queue(value).name == queue:
            return int.from_bytes(key, "big")
    raise AssertionError(f"there is no queue {queue!r}")
