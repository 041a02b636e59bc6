"""`queuelake backup`: a whole copy of a store in use, or nothing."""

from __future__ import annotations

import stat
import subprocess
import sys
import time
from pathlib import Path

import lmdb
import pytest

from queuelake.cli import main as cli
from queuelake.storage import backup
from queuelake.storage.lmdb_store import LmdbStore
from queuelake.storage.reader import StoreReader


def make_store(data_dir: Path, entries: int = 100) -> lmdb.Environment:
    store = data_dir / "store"
    store.mkdir(parents=True)
    environment = lmdb.open(str(store), map_size=64 * 2**20, max_dbs=4)
    table = environment.open_db(b"rows")
    with environment.begin(write=True) as transaction:
        for number in range(entries):
            transaction.put(b"%08d" % number, b"x" * 100, db=table)
    return environment


def count(store: Path) -> int:
    with lmdb.open(str(store), readonly=True, max_dbs=4) as environment:
        table = environment.open_db(b"rows", create=False)
        with environment.begin(db=table) as transaction:
            return int(transaction.stat()["entries"])


def test_the_copy_is_a_data_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_store(tmp_path / "data").close()
    target = tmp_path / "deep" / "copy"
    assert cli.run(["backup", str(target), "--data-dir", str(tmp_path / "data")]) == 0
    assert str(target) in capsys.readouterr().out
    assert count(target / "store") == 100
    assert stat.S_IMODE((target / "store" / "data.mdb").stat().st_mode) == 0o600
    assert [one.name for one in target.iterdir()] == ["store"]


def test_a_node_of_several_shards_is_copied_whole(tmp_path: Path) -> None:
    data, target = tmp_path / "data", tmp_path / "copy"
    for number, folder in enumerate(("", "shards/1", "shards/2"), 1):
        make_store(data / folder, number * 10).close()
    assert cli.run(["backup", str(target), "--data-dir", str(data)]) == 0
    copies = [target / folder / "store" for folder in ("", "shards/1", "shards/2")]
    assert [count(copy) for copy in copies] == [10, 20, 30]


def test_a_target_with_something_in_it_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_store(tmp_path / "data").close()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("")
    assert cli.run(["backup", str(tmp_path / "full"), "--data-dir", str(tmp_path / "data")]) == 1
    assert "holds 'precious'" in capsys.readouterr().err
    assert [one.name for one in (tmp_path / "full").iterdir()] == ["precious"]


def test_without_a_store_there_is_nothing_to_back_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["backup", str(tmp_path / "copy"), "--data-dir", str(tmp_path)]) == 1
    assert "nothing to back up" in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()


def test_a_failed_copy_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "data" / "store"
    store.mkdir(parents=True)
    (store / "data.mdb").write_bytes(b"this is no LMDB file" * 1000)
    assert cli.run(["backup", str(tmp_path / "copy"), "--data-dir", str(tmp_path / "data")]) == 1
    assert capsys.readouterr().err.startswith("error: backup of ")
    assert list((tmp_path / "copy").iterdir()) == []


def test_a_copy_made_while_a_writer_works_holds_whole_transactions(tmp_path: Path) -> None:
    """The writer is another process, as the broker is: LMDB opens a file once per process."""
    make_store(tmp_path / "data", entries=0).close()
    code = (
        "import lmdb, sys\n"
        "e = lmdb.open(sys.argv[1], map_size=2**28, max_dbs=4, sync=False)\n"
        "t = e.open_db(b'rows')\n"
        "print('ready', flush=True)\n"
        "for n in range(10**9):\n"
        "    with e.begin(write=True, db=t) as x:\n"
        "        for k in range(10): x.put(b'%08d' % (n % 1000 * 10 + k), b'y' * 100)\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "data" / "store")], stdout=subprocess.PIPE
    )
    try:
        assert writer.stdout is not None
        writer.stdout.readline()
        for number in range(3):
            target = tmp_path / f"copy{number}"
            target.mkdir()
            time.sleep(0.05)
            assert backup.copy_store(tmp_path / "data" / "store", target) > 0
            assert count(target / "store") % 10 == 0
    finally:
        writer.kill()
        writer.wait()


def test_the_copy_has_an_id_of_its_own(tmp_path: Path) -> None:
    """The lake must not take its messages for those of the original."""
    LmdbStore(tmp_path / "data").close()
    assert cli.run(["backup", str(tmp_path / "copy"), "--data-dir", str(tmp_path / "data")]) == 0
    ids = []
    for directory in ("data", "copy"):
        reader = StoreReader(tmp_path / directory)
        ids.append(reader.id)
        reader.close()
    assert len(set(ids)) == 2
    assert all(len(one) == 16 for one in ids)
