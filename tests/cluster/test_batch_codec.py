"""A batch as bytes is the same batch: it does to another store what it did to the first."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuelake.settings import Storage
from queuelake.storage.api import META, SEQUENCE_MAX, TABLE_NAMES, Batch, Store
from queuelake.storage.batch_codec import BadBatchError, decode_batch, encode_batch
from queuelake.storage.lmdb_store import FORMAT_KEY, STORE_ID, LmdbStore
from queuelake.storage.memory import MemoryStore
from tests.simulation import ecq_world, fanout_world, message_queue_world, queue_world
from tests.simulation.world import World

KEYS = st.binary(min_size=1, max_size=20)
NUMBERS = st.integers(0, SEQUENCE_MAX)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    batch = Batch()
    for table in draw(st.lists(st.integers(0, len(TABLE_NAMES) - 1), max_size=5)):
        rows = st.dictionaries(KEYS, st.none() | st.binary(max_size=50), max_size=5)
        batch.tables[table] = draw(rows)
    batch.trims = draw(st.dictionaries(NUMBERS, NUMBERS, max_size=3))
    batch.chunk_deletes = draw(st.sets(KEYS, max_size=5))
    batch.chunk_trims = draw(st.dictionaries(KEYS, NUMBERS, max_size=3))
    batch.sweep_rows = draw(st.integers(0, 10_000))
    batch.replaces = draw(st.sets(KEYS, max_size=5))
    return batch


@given(batches())
def test_what_is_encoded_is_read_back(batch: Batch) -> None:
    batch.replaced = 7
    data = encode_batch(batch)
    again = decode_batch(data)
    assert again.replaced == 0
    batch.replaced = 0
    for name in Batch.__slots__:
        assert getattr(again, name) == getattr(batch, name), name
    assert encode_batch(again) == data


def test_nothing_of_a_batch_is_forgotten() -> None:
    """Whoever gives a batch another field has to give it to the codec and to these tests."""
    known = {"tables", "trims", "chunk_deletes", "chunk_trims", "sweep_rows", "replaces"}
    assert set(Batch.__slots__) == known | {"replaced"}


def test_every_process_encodes_it_alike() -> None:
    """The order of a set of bytes is different in each process."""
    program = (
        "from queuelake.storage.api import Batch\n"
        "from queuelake.storage.batch_codec import encode_batch\n"
        "batch = Batch()\n"
        "for n in range(50): batch.delete_chunk(1, 2, n); batch.replaces.add(b'%d' % n)\n"
        "print(encode_batch(batch).hex())"
    )
    one, other = [
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    ]
    assert one == other


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "version none"),
        (b"\x02\x90", "version 02"),
        (b"\x01", "of 1 bytes cannot be read"),
        (b"\x01\x90", "cannot be read"),
        (b"\x01\xc1\xc1", "cannot be read"),
        (b"\x01\x96\x81\x00\x81\xc4\x01a\x01\x80\x90\x80\x00\x90", "cannot be read"),
        (b"\x01\x96\x81\x63\x80\x80\x90\x80\x00\x90", "rows of table 99"),
        (b"\x01\x97\x80\x80\x90\x80\x00\x90\x00", "cannot be read"),
    ],
)
def test_bytes_which_are_no_batch_are_refused(data: bytes, problem: str) -> None:
    with pytest.raises(BadBatchError, match=problem):
        decode_batch(data)


def a_plain_life(seed: int) -> None:
    world = World(seed)
    for _ in range(250):
        world.step()
    world.settle()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "life",
    [
        a_plain_life,
        queue_world.run_seed,
        message_queue_world.run_seed,
        ecq_world.run_seed,
        fanout_world.run_seed,
    ],
    ids=["sessions", "queues", "message queues", "mailboxes", "fan-out"],
)
def test_other_stores_get_what_a_broker_wrote_in_its_life(
    life: Callable[[int], None], seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written: list[bytes] = []
    stores: list[MemoryStore] = []
    commit_all = MemoryStore.commit_all

    def recorded(store: MemoryStore, batches: list[Batch]) -> None:
        commit_all(store, batches)
        written.extend(map(encode_batch, batches))
        stores.append(store)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "commit_all", recorded)
        life(seed)
    memory = MemoryStore()
    for data in written:
        memory.commit(decode_batch(data))
    assert memory.tables == stores[-1].tables
    lmdb = LmdbStore(tmp_path, Storage(durability="buffered"))
    groups = 1 + seed * 10  # however many are committed at once
    for start in range(0, len(written), groups):
        lmdb.commit_all([decode_batch(data) for data in written[start : start + groups]])
    assert rows(lmdb) == rows(memory)
    lmdb.close()


def rows(store: Store) -> list[dict[bytes, bytes]]:
    with store.view() as view:
        tables = [dict(view.scan(table, b"", b"\xff" * 512)) for table in range(len(TABLE_NAMES))]
    for key in (FORMAT_KEY, STORE_ID):
        tables[META].pop(key, None)
    return tables
