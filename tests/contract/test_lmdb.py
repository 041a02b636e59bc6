"""What only the store on disk promises: it survives, grows, does not drift, and is ours alone."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from queuelake.errors import StorageError, StoreFormatError, StoreLockedError
from queuelake.settings import Storage
from queuelake.storage.api import FORMAT_VERSION, META, RETAINED, SESSIONS, Batch
from queuelake.storage.lmdb_store import LmdbStore
from queuelake.storage.queue_rows import u64
from tests.contract.rows import Queues, message, payloads, row_counts
from tests.harness.broker import ROOT, package_root

MIB = 1024 * 1024
SMALL = Storage(map_size_bytes_initial=MIB)
NO_SYNC = Storage(map_size_bytes_initial=MIB, durability="buffered")
LOOP_BLOCKED_S_MAX = 1.0  # far above what was measured, far below what a client would notice


def one_row(table: int, key: bytes, value: bytes) -> Batch:
    batch = Batch()
    batch.put(table, key, value)
    return batch


def test_everything_is_there_after_close_and_open(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    Queues(store).store([message(1), message(2, size=100_000)], [1, 2])
    store.close()
    store = LmdbStore(tmp_path)
    assert (
        payloads(store, 1)
        == payloads(store, 2)
        == [
            message(1).payload(),
            message(2, size=100_000).payload(),
        ]
    )
    store.close()


def test_a_store_larger_than_its_initial_map_opens_again(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, SMALL)
    Queues(store).store([message(1, size=5 * MIB)], [1])
    store.close()
    store = LmdbStore(tmp_path, SMALL)
    assert payloads(store, 1) == [message(1, size=5 * MIB).payload()]
    store.commit(one_row(META, b"x", b"y"))
    store.close()


def test_what_commit_returned_for_survives_kill_9(tmp_path: Path) -> None:
    dice = random.Random(5)
    claimed = 0
    for _ in range(5):
        claimed = _write_until_killed(tmp_path, claimed + 1, dice.uniform(0.02, 0.4))
        store = LmdbStore(tmp_path)
        found = payloads(store, 1)
        with store.view() as view:
            last = int(view.get(SESSIONS, u64(1)) or b"0")
        numbers = [int(payload.split(b":")[0]) for payload in found]
        assert numbers == list(range(1, last + 1)), "whole groups, in order, without a gap"
        assert last >= claimed, "what commit returned for is there"
        assert found[-1] == message(last, size=2000 * (last % 7)).payload()
        assert len(payloads(store, 2)) <= 100 + 2 * 5
        claimed = last
        store.close()


def _write_until_killed(directory: Path, first: int, seconds: float) -> int:
    """Returns the last number the writer said it had committed."""
    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.contract.killed_writer", str(directory), str(first)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{package_root()}{os.pathsep}{ROOT}"},
        text=True,
    )
    assert writer.stdout is not None
    said = [writer.stdout.readline()]
    time.sleep(seconds)
    writer.kill()
    said += writer.stdout.readlines()
    writer.wait()
    whole = [line for line in said if line.endswith("\n")]
    assert whole, "the writer committed nothing"
    return int(whole[-1])


def test_the_map_grows_under_readers_and_the_reader_never_waits_long(tmp_path: Path) -> None:
    """The loop reads while the commit thread grows the map from 1 MiB to 64."""
    store = LmdbStore(tmp_path, NO_SYNC)
    queues = Queues(store)
    queues.store([message(0)], [1])
    failures: list[BaseException] = []

    def commit_much() -> None:
        try:
            for number in range(1, 200):
                queues.store([message(number, size=200_000)], [2])
        except BaseException as error:
            failures.append(error)

    committer = threading.Thread(target=commit_much)
    committer.start()
    longest_s = 0.0
    reads = 0
    while committer.is_alive():
        start = time.monotonic()
        with store.view() as view:
            assert view.get(SESSIONS, b"none") is None
        assert payloads(store, 1) == [message(0).payload()]
        longest_s = max(longest_s, time.monotonic() - start)
        reads += 1
    committer.join()
    assert failures == []
    assert reads > 10
    assert longest_s < LOOP_BLOCKED_S_MAX
    assert store.size_bytes()[1] >= 32 * MIB
    assert len(payloads(store, 2)) == 199
    store.close()


def test_growing_waits_for_an_open_view_but_no_new_view_waits_for_growing(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, NO_SYNC)
    store.commit(one_row(SESSIONS, b"a", b"1"))
    committer = threading.Thread(target=Queues(store).store, args=([message(1, 4 * MIB)], [1]))
    with store.view() as outer:
        committer.start()
        time.sleep(0.2)
        assert committer.is_alive(), "it waits: the map moves only when nobody reads"
        start = time.monotonic()
        with store.view() as inner:
            assert inner.get(SESSIONS, b"a") == b"1"
        assert time.monotonic() - start < LOOP_BLOCKED_S_MAX
        assert outer.get(SESSIONS, b"a") == b"1"
    committer.join(10)
    assert not committer.is_alive()
    assert payloads(store, 1) == [message(1, 4 * MIB).payload()]
    store.close()


def test_a_view_which_could_not_begin_does_not_stop_growing(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, NO_SYNC)
    store.commit(one_row(SESSIONS, b"a", b"1"))
    with contextlib.ExitStack() as stack, pytest.raises(StorageError, match="READERS"):
        _open_views_without_end(store, stack)
    committer = threading.Thread(
        target=Queues(store).store, args=([message(1, 4 * MIB)], [1]), daemon=True
    )
    committer.start()
    committer.join(10)
    assert not committer.is_alive()
    store.close()


def _open_views_without_end(store: LmdbStore, stack: contextlib.ExitStack) -> None:
    while True:
        stack.enter_context(store.view())


@pytest.mark.parametrize("size", [300, 3000, 40_000])
def test_at_the_limit_messages_are_refused_and_room_made_by_trimming_is_used_again(
    tmp_path: Path, size: int
) -> None:
    """A full store must still be able to delete, or it would be full for ever."""
    limit = 4 * MIB
    store = LmdbStore(
        tmp_path,
        Storage(map_size_bytes_initial=MIB, map_size_bytes_max=limit, durability="buffered"),
    )
    queues = Queues(store)
    for _ in range(3):
        stored = _fill(queues, size)
        assert stored * (size + 1000) > 2 * MIB
        assert store.size_bytes()[0] <= limit
        assert len(payloads(store, 1)) == stored
        with pytest.raises(StorageError, match=f"map_size_bytes_max = {limit}"):
            queues.store([message(0, size=100_000)], [9])
        # What clients settle, and who they are, is still written.
        for number in range(200):
            store.commit(one_row(SESSIONS, u64(number), b"x" * 100))
        queues.trim(1, 2**60)
        assert payloads(store, 1) == []
    store.close()


def test_a_store_behind_a_log_says_that_it_is_full_before_and_takes_what_the_log_has(
    tmp_path: Path,
) -> None:
    limit = 4 * MIB
    store = LmdbStore(
        tmp_path,
        Storage(map_size_bytes_initial=limit, map_size_bytes_max=limit, durability="buffered"),
        replicated=True,
    )
    queues = Queues(store)
    batch = Batch()
    while not store.refusal(batch):
        store.commit(batch)
        batch = Batch()
        queues.add(batch, [message(0, size=30_000)], [1])
    assert store.refusal(batch) == f"store has reached storage.map_size_bytes_max = {limit} bytes"
    assert store.refusal(one_row(SESSIONS, b"k", b"v")) == ""
    stored = len(payloads(store, 1))
    assert stored * 30_000 > 2 * MIB
    store.commit(batch)
    assert len(payloads(store, 1)) == stored + 1
    queues.trim(1, 2**60)
    assert store.refusal(batch) == ""
    store.close()


def _fill(queues: Queues, size: int) -> int:
    stored = 0
    try:
        while True:
            queues.store([message(stored, size=size)], [1])
            stored += 1
    except StorageError:
        return stored


def test_what_was_freed_is_told(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, NO_SYNC)
    queues = Queues(store)
    queues.store([message(n, 3000) for n in range(300)], [1])
    before, (used, _) = store.free_bytes(), store.size_bytes()
    queues.trim(1, 300)
    assert row_counts(store) == (0, 0, 0)
    assert before < used / 4
    assert 900_000 < store.free_bytes() < store.size_bytes()[0]
    store.close()


def test_many_rounds_of_storing_and_settling_need_no_more_space(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, NO_SYNC)
    queues = Queues(store)
    dice = random.Random(3)
    used = []
    done = 0
    for _ in range(40):
        for _ in range(10):
            sizes = [dice.choice([20, 300, 3000, 70_000]) for _ in range(20)]
            queues.store([message(n, size) for n, size in enumerate(sizes)], [1, 2])
        done += 200
        queues.trim(1, done)
        queues.trim(2, done - 50)
        used.append(store.size_bytes()[0])
    assert max(used[20:]) <= 1.1 * max(used[:10])
    queues.trim(2, done)
    assert row_counts(store) == (0, 0, 0)
    store.close()


def test_a_second_process_is_refused_in_one_clear_line(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    code = (
        "import sys; from pathlib import Path\n"
        "from queuelake.errors import StoreLockedError\n"
        "from queuelake.storage.lmdb_store import LmdbStore\n"
        "try: LmdbStore(Path(sys.argv[1]))\n"
        "except StoreLockedError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": package_root()},
        capture_output=True,
        text=True,
        check=True,
    )
    expected = f"data directory {tmp_path} is in use by process {os.getpid()}"
    assert done.stdout.strip() == expected
    store.close()
    LmdbStore(tmp_path).close()


def test_the_same_process_is_refused_too(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    with pytest.raises(StoreLockedError):
        LmdbStore(tmp_path)
    store.commit(one_row(SESSIONS, b"a", b"1"))
    store.close()


def test_another_format_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    store.commit(one_row(META, b"format", b"7"))
    store.close()
    for _ in range(2):
        with pytest.raises(StoreFormatError, match=f"7, this version reads {FORMAT_VERSION}"):
            LmdbStore(tmp_path)


def test_a_file_which_is_no_store_is_refused_and_the_lock_given_back(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "data.mdb").write_bytes(b"no store at all" * 1000)
    for _ in range(2):
        with pytest.raises(StorageError, match="cannot be opened"):
            LmdbStore(tmp_path)


def test_a_reader_in_another_process_sees_commits_over_growing_maps(tmp_path: Path) -> None:
    """As `queuelake backup` and the child processes do; it opens the store before it grows."""
    store = LmdbStore(tmp_path, NO_SYNC)
    store.commit(one_row(RETAINED, b"k", b"small"))
    code = (
        "import lmdb, sys\n"
        "env = lmdb.open(sys.argv[1], readonly=True, max_dbs=64)\n"
        "table = env.open_db(b'retained', create=False)\n"
        "for _ in sys.stdin:\n"
        "    try: txn = env.begin()\n"
        "    except lmdb.MapResizedError:\n"
        "        env.set_mapsize(0); txn = env.begin()\n"
        "    print(len(txn.get(b'k', db=table)), flush=True)\n"
        "    txn.abort()\n"
    )
    reader = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "store")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdin is not None
    assert reader.stdout is not None
    for size in (5, 3 * MIB, 20 * MIB, 1):
        store.commit(one_row(RETAINED, b"k", bytes(size)))
        reader.stdin.write("read\n")
        reader.stdin.flush()
        assert int(reader.stdout.readline()) == size
    reader.stdin.close()
    assert reader.wait(10) == 0
    store.close()
