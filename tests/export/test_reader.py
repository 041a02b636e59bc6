"""The store while another process writes it, and what readers may hold of it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import flight as pyflight

from queuelake import flight as contract
from queuelake.control import ExportStart
from queuelake.errors import StorageError
from queuelake.export import messages, server
from queuelake.export.ranges import read_range
from queuelake.export.stores import Stores
from queuelake.settings import Storage
from queuelake.storage.lmdb_store import LmdbStore
from queuelake.storage.reader import StoreReader
from tests.api.live import wait_until
from tests.export.writer import PARTITION, QUEUE, Writer


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    opened = Writer(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def reader(tmp_path: Path, writer: Writer) -> Iterator[StoreReader]:
    opened = StoreReader(tmp_path)
    yield opened
    opened.close()


def whole(reader: StoreReader, upto: int) -> contract.Range:
    return contract.Range("messages", f"{reader.id}-{QUEUE}", PARTITION, 0, upto)


def test_a_store_which_grows_while_it_is_read(
    writer: Writer, reader: StoreReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "BATCH_BYTES", 100_000)
    writer.fill(1, 500)
    _, rows = read_range(reader, whole(reader, 1 << 40))
    seen = next(rows).num_rows
    for n in range(1, 40):  # the map grows from 1 MiB over 16 MiB
        writer.fill(1 + 500 * n, 500)
    seen += sum(batch.num_rows for batch in rows)
    assert seen == 20_000


def test_a_store_which_takes_over_the_id_of_its_cluster_has_it_at_once(tmp_path: Path) -> None:
    LmdbStore(tmp_path, Storage()).close()
    reader = StoreReader(tmp_path)
    assert reader.id
    program = f"""
from queuelake.storage.lmdb_store import *
from queuelake.storage.api import Batch
batch = Batch()
batch.put(META, STORE_ID, b"adopted")
LmdbStore(Path({str(tmp_path)!r}), Storage()).commit(batch)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert reader.id == "adopted"
    reader.close()


def test_a_view_waits_for_others_before_it_follows_the_map(
    writer: Writer, reader: StoreReader
) -> None:
    writer.fill(1, 10)
    seen: list[int] = []

    def look() -> None:
        _, rows = read_range(reader, whole(reader, 1 << 40))
        seen.append(sum(batch.num_rows for batch in rows))

    before = reader._env.info()["map_size"]
    with reader.view():
        for n in range(1, 40):
            writer.fill(1 + 10 * n, 10, size=100_000)
        others = [threading.Thread(target=look) for _ in range(4)]
        for one in others:
            one.start()
        wait_until(lambda: reader._resizing)
        assert reader._env.info()["map_size"] == before, "the map does not move below a view"
        assert seen == []
    for one in others:
        one.join(30)
    assert seen == [400] * 4


@pytest.mark.rule("P5")
def test_nothing_is_pinned_between_two_batches(
    writer: Writer, reader: StoreReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "BATCH_BYTES", 100_000)
    writer.fill(1, 1000)
    _, rows = read_range(reader, whole(reader, 1000))
    next(rows)
    assert reader._readers == 0
    lines = reader._env.readers().splitlines()[1:]
    transactions = [line.split()[-1] for line in lines]
    assert set(transactions) <= {"-"}, "a slow client holds no transaction"


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be opened"):
        StoreReader(tmp_path)
    assert not (tmp_path / "store").exists()


def test_too_many_streams_wait_and_then_are_refused(
    monkeypatch: pytest.MonkeyPatch, writer: Writer, reader: StoreReader, tmp_path: Path
) -> None:
    """A stream gives its place back when its client is gone."""
    monkeypatch.setattr(server, "STREAMS_MAX", 1)
    monkeypatch.setattr(server, "STREAM_WAIT_S", 0.1)
    (tmp_path / "api-key").write_text("k:s\n")
    for n in range(60):
        writer.fill(1 + n, 1, size=1_000_000)
    serving = server.FlightServer(
        ExportStart(str(tmp_path), "127.0.0.1", 0), Stores(tmp_path, [reader])
    )
    headers = [(b"authorization", b"Bearer k:s")]
    options = pyflight.FlightCallOptions(headers=headers)
    ticket = pyflight.Ticket(contract.encode(whole(reader, 100)))
    first = pyflight.connect(f"grpc://127.0.0.1:{serving.port}")
    slow = first.do_get(ticket, options)
    slow.read_chunk()
    with pyflight.connect(f"grpc://127.0.0.1:{serving.port}") as second:
        with pytest.raises(pyflight.FlightUnavailableError, match="TOO_MANY_REQUESTS: 1 reads"):
            second.do_get(ticket, options).read_all()
        slow.cancel()
        del slow
        first.close()

        def reads() -> bool:
            try:
                return bool(second.do_get(ticket, options).read_all().num_rows == 60)
            except pyflight.FlightUnavailableError:
                return False

        wait_until(reads)
    serving.shutdown()
