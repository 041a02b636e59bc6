"""Following the log: every replica gets the same, once, whatever happens while it reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from queuelake.cluster.checking import T
from queuelake.cluster.entry import split
from queuelake.cluster.follower import Follower, LostLogError, Stuck
from queuelake.cluster.founding import MARK_KEY, Behind, ForeignStoreError
from queuelake.cluster.replica import DivergedError, Position, Replica, barrier
from queuelake.settings import Storage
from queuelake.storage.api import META, RETAINED, Batch
from queuelake.storage.lmdb_store import STORE_ID, LmdbStore
from queuelake.storage.memory import MemoryStore
from tests.cluster.nodes import Node, put
from tests.cluster.scripted_log import ScriptedLog


@pytest.fixture
def log() -> ScriptedLog:
    return ScriptedLog(part_bytes_max=100)


@pytest.fixture
async def owner(log: ScriptedLog) -> Node:
    """Owns the log, and has written three entries to it, one of them in parts."""
    node = Node(log)
    assert await node.own(1)
    for row in (b"x", b"y" * 100, b"z"):
        assert await node.commit(row) == ""
    return node


@pytest.mark.parametrize("read_limit", [1, 2, 3, 1000])
async def test_a_replica_gets_what_the_owner_has(
    log: ScriptedLog, owner: Node, read_limit: int
) -> None:
    log.read_limit = read_limit
    node = Node(log, name="b")
    await node.follower.catch_up()
    assert node.position == owner.position == node.replica.accepted == node.replica.applied
    assert node.follower.end == log.last
    assert node.hash == owner.hash


async def test_it_goes_on_where_its_store_is(log: ScriptedLog, owner: Node) -> None:
    node = Node(log, name="b")
    await node.follower.catch_up()
    assert await owner.commit(b"more") == ""
    await log.truncate(node.position.position)
    again = Node(log, node.store)
    await again.follower.catch_up()
    assert again.hash == owner.hash


async def test_running_it_follows_what_it_is_told_of(log: ScriptedLog, owner: Node) -> None:
    node = Node(log, name="b")
    node.follower._interval_s = 1000
    stored = commits_of(node)
    log.unavailable_reads = 1
    running = asyncio.create_task(node.follower.run())
    await log.unread.wait()
    for row in (b"one", b"two"):
        node.follower.notify(log.last)
        await stored.wait()
        assert node.hash == owner.hash
        stored.clear()
        assert await owner.commit(row) == ""
    running.cancel()


@pytest.mark.parametrize("turns", range(8))
async def test_it_can_be_ended_in_the_moment_in_which_there_are_news(
    log: ScriptedLog, owner: Node, turns: int
) -> None:
    """Whoever takes over waits until it has ended."""
    node = Node(log, name="b")
    node.follower._interval_s = 1000
    running = asyncio.create_task(node.follower.run())
    await asyncio.sleep(0.1)
    assert node.follower.end == log.last
    node.follower.notify()
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running], timeout=5)
    assert running.cancelled()


async def test_what_it_was_told_of_and_is_not_here_yet_is_looked_for(
    log: ScriptedLog, owner: Node
) -> None:
    node = Node(log, name="b")
    node.follower._interval_s = 1000
    stored = commits_of(node)
    log.lagging_reads = 3
    node.follower.notify(log.last)
    running = asyncio.create_task(node.follower.run())
    await stored.wait()
    assert node.hash == owner.hash
    running.cancel()


async def test_without_a_call_it_looks_now_and_then(log: ScriptedLog, owner: Node) -> None:
    node = Node(log, name="b")
    stored = commits_of(node)
    log.unavailable_reads = 2
    running = asyncio.create_task(node.follower.run())
    await stored.wait()
    assert node.hash == owner.hash
    running.cancel()


def commits_of(node: Node) -> asyncio.Event:
    """Set when something was applied."""
    stored = asyncio.Event()
    commit_all = node.store.commit_all

    def told(batches: list[Batch]) -> None:
        commit_all(batches)
        stored.set()

    node.store.commit_all = told  # type: ignore[method-assign]
    return stored


# Which store may follow


async def test_an_untouched_store_takes_the_id_of_the_cluster(
    log: ScriptedLog, owner: Node, tmp_path: Path
) -> None:
    store = LmdbStore(tmp_path, Storage(durability="buffered"), replicated=True)
    node = Node(log, store)
    await node.follower.catch_up()
    assert node.rows == owner.rows
    with store.view() as view:
        assert view.get(META, STORE_ID) == b"a"
    store.close()


@pytest.mark.parametrize("truncated", [False, True])
async def test_a_store_with_data_of_its_own_is_not_mixed_in(
    log: ScriptedLog, owner: Node, truncated: bool
) -> None:
    if truncated:
        await log.truncate(2)
    node = Node(log, name="b")
    put(node.store, RETAINED, b"own", b"1")
    with pytest.raises(ForeignStoreError, match="not this cluster's"):
        await node.follower.catch_up()
    with pytest.raises(ForeignStoreError):
        await node.follower.run()
    assert not await node.own(2)
    assert node.rows == [b"own"]


async def test_a_row_of_meta_is_data_too(log: ScriptedLog, owner: Node) -> None:
    node = Node(log, name="b")
    put(node.store, META, b"epoch", b"1")
    with pytest.raises(ForeignStoreError):
        await node.follower.catch_up()


async def test_a_cluster_may_begin_with_the_data_of_one_node(log: ScriptedLog) -> None:
    first = Node(log)
    put(first.store, RETAINED, b"old", b"1")
    assert await first.own(1)
    assert await first.commit(b"new") == ""
    node = Node(log, name="b")
    with pytest.raises(Behind, match="had data already"):
        await node.follower.catch_up()
    assert node.position == Position()
    again = Node(log, first.store)  # with its position it is no stranger any more
    assert await again.own(2)
    assert again.rows == [b"new", b"old"]


async def test_a_founder_which_crashed_knows_its_own_entry(log: ScriptedLog) -> None:
    """It was appended, and the store does not say so yet."""
    first = Node(log)
    put(first.store, RETAINED, b"old", b"1")
    log.script = ["late"]
    assert not await first.own(1, patience_s=0.05)
    log.let_late_arrive()
    again = Node(log, first.store)
    assert await again.own(2)
    assert (again.rows, again.position.epoch) == ([b"old"], 2)
    with again.store.view() as view:
        assert view.get(META, MARK_KEY) is None


async def test_an_old_copy_of_the_founder_is_a_stranger(log: ScriptedLog) -> None:
    first, copy = Node(log), Node(log)  # of the same id
    for node in (first, copy):
        put(node.store, RETAINED, b"old", b"1")
    assert await first.own(1)
    with pytest.raises(ForeignStoreError):
        await copy.follower.catch_up()


async def test_what_is_cut_off_needs_a_copy(log: ScriptedLog, owner: Node) -> None:
    await log.truncate(2)
    node = Node(log, name="b")
    with pytest.raises(Behind, match="position 1 is not in the log"):
        await node.follower.catch_up()
    with pytest.raises(Behind):
        await node.follower.run()


async def test_a_log_shorter_than_the_store_is_not_followed(log: ScriptedLog, owner: Node) -> None:
    del log.values[3:]
    with pytest.raises(LostLogError, match="ends at position 3, this node has applied 9"):
        await owner.follower.catch_up()
    with pytest.raises(LostLogError):
        await owner.follower.run()


async def test_a_log_which_began_anew_is_not_followed_however_long_it_is(
    log: ScriptedLog, owner: Node
) -> None:
    applied = owner.position
    other = ScriptedLog()
    stranger = Node(other, name="c")
    assert await stranger.own(applied.epoch)
    while other.last <= applied.position:
        assert await stranger.commit(b"row", b"another") == ""
    log.values[:] = other.values
    with pytest.raises(LostLogError, match=f"position {applied.position} of the log is entry"):
        await owner.follower.catch_up()


async def test_a_log_which_was_cut_behind_what_a_replica_has_is_followed(
    log: ScriptedLog, owner: Node
) -> None:
    node = Node(log, name="b")
    await node.follower.catch_up()
    await log.truncate(log.last)
    await node.follower.catch_up()
    assert node.position == owner.position


async def test_a_replica_which_went_another_way_is_told_so(log: ScriptedLog, owner: Node) -> None:
    node = Node(log, name="b")
    await node.follower.catch_up()
    batch = Batch()
    msgspec.structs.replace(node.position, chain=1).put(batch)
    node.store.commit(batch)
    log.write(split(barrier(2, owner.position), 100), log.last)
    with pytest.raises(DivergedError):
        await node.follower.catch_up()
    assert node.position.epoch == 1


# When something fails


async def test_a_store_which_fails_is_stuck_and_goes_on_later(
    log: ScriptedLog, owner: Node
) -> None:
    node = Node(log, name="b")
    assert isinstance(node.store, MemoryStore)
    node.store.fail_commits = 1
    with pytest.raises(Stuck, match="injected: commit failed"):
        await node.follower.run()
    assert node.position == Position()
    await node.follower.catch_up()
    assert node.hash == owner.hash


async def test_an_entry_of_a_newer_version_is_not_skipped(log: ScriptedLog, owner: Node) -> None:
    part = split(barrier(2, owner.position), 100)[0]
    log.write([part[:2] + b"\x09" + part[3:]], log.last)
    with pytest.raises(Stuck, match="entry of version 9"):
        await owner.follower.catch_up()


async def test_a_commit_left_by_a_cancelled_run_is_waited_for(
    log: ScriptedLog, owner: Node
) -> None:
    """It is under way in its thread: what it applies must not be applied once more."""
    store = MemoryStore()
    put(store, META, STORE_ID, b"b")
    commits: list[Callable[[], None]] = []
    applied: list[int] = []
    begun = asyncio.Event()
    commit_all = store.commit_all

    def counted(batches: list[Batch]) -> None:
        applied.append(len(batches))
        commit_all(batches)

    store.commit_all = counted  # type: ignore[method-assign]

    def slow_thread(work: Callable[[], T]) -> asyncio.Future[T]:
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        commits.append(lambda: result.set_result(work()))
        begun.set()
        return result

    replica = Replica(Position())
    follower = Follower(log, store, replica, slow_thread)
    running = asyncio.create_task(follower.run())
    await begun.wait()
    assert replica.accepted == owner.position
    assert replica.applied == Position()  # what the store has: the log may not be cut before
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    catching_up = asyncio.create_task(follower.catch_up())
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(commits) == 1
    assert not catching_up.done()
    commits[0]()
    await catching_up
    assert applied == [4]
    assert Position.read(store.view()) == owner.position == replica.applied


async def test_two_at_a_time_are_a_mistake(log: ScriptedLog, owner: Node) -> None:
    node = Node(log, name="b")
    running = asyncio.create_task(node.follower.run())
    await asyncio.sleep(0)
    with pytest.raises(AssertionError, match="twice"):
        await node.follower.catch_up()
    running.cancel()


# Checks


async def test_a_check_sees_what_is_before_it_and_nothing_behind(
    log: ScriptedLog, owner: Node, tmp_path: Path
) -> None:
    """Two stores on disk, hashed by a thread while more is applied."""
    assert owner.committer is not None
    owner.committer.check(b"id")
    assert await owner.commit(b"behind it") == ""
    found: asyncio.Queue[tuple[bytes, int, bytes]] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
        return loop.run_in_executor(None, work)

    results = []
    for name, read_limit in (("b", 1), ("c", 1000)):
        log.read_limit = read_limit
        store = LmdbStore(tmp_path / name, Storage(durability="buffered"), replicated=True)
        follower = Follower(
            log,
            store,
            Replica(Position()),
            in_thread,
            on_check=lambda check_id, at, digest: found.put_nowait((check_id, at, digest)),
        )
        await follower.catch_up()
        assert follower.end == log.last
        results.append(await found.get())
        await follower.close()
        store.close()
    assert results[0] == results[1]
    assert results[0][:2] == (b"id", log.last - 1)


async def test_closing_abandons_a_check(tmp_path: Path) -> None:
    log = ScriptedLog()
    node = Node(log)
    work: list[Callable[[], object]] = []
    results: list[asyncio.Future[object]] = []

    def later(one: Callable[[], T]) -> asyncio.Future[T]:
        work.append(one)
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        results.append(result)  # type: ignore[arg-type]
        return result

    told: list[bytes] = []
    node.follower.checks._in_thread = later
    node.follower.checks._on_check = lambda check_id, position, digest: told.append(digest)
    node.follower.checks.begin(b"id", 1)
    closing = asyncio.create_task(node.follower.close())
    await asyncio.sleep(0)
    assert not closing.done()
    with pytest.raises(Exception, match="the node is stopping") as abandoned:
        work[0]()
    results[0].set_exception(abandoned.value)
    await closing
    assert told == []
