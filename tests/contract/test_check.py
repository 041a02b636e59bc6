"""The check of a store finds what does not fit together among the queues."""

from __future__ import annotations

import sys

import pytest

from queuelake.storage import api, queue_records, queue_tables, quorum_tables
from queuelake.storage.api import Batch, Store
from queuelake.storage.check import problems
from queuelake.storage.chunk import encode_chunk
from queuelake.storage.delayed import Delayed, put_delayed
from queuelake.storage.queue_records import GroupRecord, QueueRecord
from queuelake.storage.queue_tables import put_chunk
from tests.contract.chunks import record

Q = 5
LONG = 100 * 1024


def one_of_everything() -> Batch:
    batch = Batch()
    queue = QueueRecord("tasks", "durable", 1)
    batch.put(api.QUEUES, queue_tables.queue_key(Q), queue_records.encode(queue))
    put_chunk(batch, Q, 0, 1, [record(1), record(2), record(3, size=LONG), record(4)])
    put_delayed(batch, Q, Delayed(100, 1, 0, record(1, size=LONG)))
    group = GroupRecord("workers", False, b"", 0)
    batch.put(
        api.PARTITIONS, queue_tables.partition_key(Q, 0), queue_tables.partition_state(0, 4, 9)
    )
    batch.put(api.GROUPS, queue_tables.group_key(Q, 1), queue_records.encode(group))
    batch.put(api.LANES, queue_tables.lane_key(Q, 1, 0), queue_tables.lane_state(0, 1))
    batch.put(api.SETTLED, queue_tables.settled_key(Q, 1, 0, 0), b"\1")
    everybody = queue_tables.settled_key(Q, queue_tables.EVERYBODY, 0, 0)
    batch.put(api.SETTLED, everybody, b"\1")
    batch.put(api.TALLIES, queue_tables.tally_key(Q, 1, 0, 1), queue_tables.tally(1, 0, 5))
    batch.put(api.DEDUPE, queue_tables.dedupe_key(Q, 100, 1), b"h" * 32)
    batch.put(api.LATEST, queue_tables.latest_key(Q, 7), queue_tables.latest_value(4, 9))
    head = quorum_tables.Head({}, 0, False, 0)
    batch.put(api.QUORUM, quorum_tables.head_key(Q), quorum_tables.encode(head))
    return batch


def found(store: Store, batch: Batch, rows_max: int = sys.maxsize) -> list[str]:
    store.commit(batch)
    with store.view() as view:
        return problems(view, rows_max)


def test_a_store_of_queues_holds_together(store: Store) -> None:
    assert found(store, one_of_everything()) == []


def test_rows_of_a_queue_which_is_being_deleted_are_no_problem(store: Store) -> None:
    batch = one_of_everything()
    batch.drop_queue(Q)
    assert found(store, batch) == []


def test_rows_without_their_queue_are_found(store: Store) -> None:
    batch = one_of_everything()
    batch.delete(api.QUEUES, queue_tables.queue_key(Q))
    lines = found(store, batch)
    assert {line.split()[0] for line in lines} == {
        api.TABLE_NAMES[table] for table in queue_tables.TABLES
    }
    assert all("belongs to no queue" in line for line in lines)


def test_rows_without_their_group_are_found(store: Store) -> None:
    batch = one_of_everything()
    batch.delete(api.GROUPS, queue_tables.group_key(Q, 1))
    lines = found(store, batch)
    assert [line.split()[0] for line in lines] == ["lanes", "settled", "tallies"]
    assert all("belongs to no group" in line for line in lines)


@pytest.mark.parametrize("piece", [0, 1])
def test_a_chunk_which_lacks_a_piece_is_found(store: Store, piece: int) -> None:
    batch = one_of_everything()
    batch.delete(api.CHUNKS, queue_tables.chunk_key(Q, 0, 3, piece))
    (line,) = found(store, batch)
    assert line.endswith("lacks a piece")


def test_a_chunk_which_lacks_its_end_is_found(store: Store) -> None:
    batch = one_of_everything()
    batch.delete(api.CHUNKS, queue_tables.chunk_key(Q, 0, 3, 3))
    (line,) = found(store, batch)
    assert "cannot be read: chunk of sequence 3 has" in line


def test_chunks_in_the_wrong_place_are_found(store: Store) -> None:
    batch = one_of_everything()
    batch.put(api.CHUNKS, queue_tables.chunk_key(Q, 0, 2), encode_chunk(7, [record(1)]))
    begins, overlaps = found(store, batch)
    assert begins.endswith("begins with sequence 7")
    assert overlaps.endswith("overlaps the one before it")


def test_a_broken_delayed_message_is_found(store: Store) -> None:
    batch = one_of_everything()
    key = next(iter(batch.tables[api.DELAYED]))
    batch.delete(api.DELAYED, key)
    (line,) = found(store, batch)
    assert line.endswith("is not whole")


@pytest.mark.parametrize(
    "table",
    [api.QUEUES, api.PARTITIONS, api.GROUPS, api.LANES, api.TALLIES, api.DEDUPE, api.LATEST],
)
def test_values_which_cannot_be_read_are_found(store: Store, table: int) -> None:
    batch = one_of_everything()
    key = next(iter(batch.tables[table]))
    batch.put(table, key, b"\xc1")
    (line,) = found(store, batch)
    assert line.startswith(f"{api.TABLE_NAMES[table]} row {key.hex()} cannot be read")


def test_no_more_rows_are_looked_at_than_asked_for(store: Store) -> None:
    batch = one_of_everything()
    batch.put(api.CHUNKS, queue_tables.chunk_key(Q, 9, 1), b"no chunk")
    assert found(store, batch, rows_max=3) == []
    assert len(found(store, batch, rows_max=4)) == 1
