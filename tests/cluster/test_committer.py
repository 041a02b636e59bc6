"""The owner's committer: what is confirmed is in the log; what is not known is not confirmed."""

from __future__ import annotations

import asyncio

import pytest

from queuelake.cluster.entry import BATCH, Entry, split
from queuelake.cluster.replica import barrier
from queuelake.storage.api import CHUNKS, Batch
from queuelake.storage.memory import MemoryStore
from tests.cluster.nodes import Node
from tests.cluster.scripted_log import ScriptedLog


@pytest.fixture
def log() -> ScriptedLog:
    return ScriptedLog()


@pytest.fixture
async def owner(log: ScriptedLog) -> Node:
    node = Node(log)
    assert await node.own(1)
    return node


async def agrees(node: Node) -> None:
    """A replica which reads the log has exactly what the owner has."""
    other = Node(node.log, name="b")
    await other.follower.catch_up()
    assert other.position == node.position == node.replica.accepted
    assert other.hash == node.hash


async def turns(count: int = 20) -> None:
    """Let the loop do what it can without time passing."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_commit_is_in_the_log_and_in_the_store(log: ScriptedLog, owner: Node) -> None:
    assert await owner.commit(b"x") == ""
    assert await owner.commit(b"y") == ""
    assert owner.rows == [b"x", b"y"]
    assert owner.position == owner.replica.accepted
    assert (owner.position.position, owner.position.number) == (3, 2)
    assert owner.notified == [2, 3]
    await agrees(owner)


async def test_an_entry_larger_than_a_part_is_split(log: ScriptedLog, owner: Node) -> None:
    log.part_bytes_max = 64
    assert await owner.commit(b"x" * 100) == ""
    assert log.last > 5
    assert all(len(value) <= 64 for value in log.values[1:])
    await agrees(owner)


@pytest.mark.parametrize(
    "script",
    [
        ["lost"],
        ["silent"],
        ["part"],
        ["lost", "part", "lost", "silent"],
        ["part", "part", "lost"],
        ["lost", "lost", "lost"],
    ],
    ids=" ".join,
)
async def test_an_append_without_answer_is_found_out(
    log: ScriptedLog, owner: Node, script: list[str]
) -> None:
    log.part_bytes_max = 64
    log.script = list(script)
    assert await owner.commit(b"x" * 100) == ""
    assert log.script == []
    assert await owner.commit(b"y") == ""
    assert owner.lost == []
    await agrees(owner)


async def test_an_earlier_try_which_arrives_late_is_not_in_the_way(
    log: ScriptedLog, owner: Node
) -> None:
    """The second try is refused because the first one came after all."""
    log.part_bytes_max = 64
    log.script = ["late"]
    log.on_append = log.let_late_arrive
    assert await owner.commit(b"x" * 100) == ""
    assert owner.lost == []
    await agrees(owner)


async def test_what_is_found_out_may_take_several_reads(log: ScriptedLog, owner: Node) -> None:
    log.part_bytes_max = 64
    log.read_limit = 1
    log.script = ["silent"]
    log.unavailable_reads = 1
    log.lagging_reads = 1
    assert await owner.commit(b"x" * 100) == ""
    await agrees(owner)


async def test_a_newer_owner_ends_it_once_and_nothing_is_confirmed(
    log: ScriptedLog, owner: Node
) -> None:
    other = Node(log, name="b")
    assert await other.own(2)
    assert await owner.commit(b"x") == "lost"
    assert len(owner.lost) == 1
    assert owner.committer is not None
    assert owner.committer.is_fenced
    assert not owner.submit(Batch()).done()
    assert owner.committer._worker is None
    assert len(owner.lost) == 1
    assert owner.rows == []


async def test_a_newer_owner_ahead_of_a_lost_append_ends_it(log: ScriptedLog, owner: Node) -> None:
    log.script = ["late"]
    other = Node(log, name="b")
    taken = asyncio.ensure_future(owner.commit(b"x"))
    await log.unanswered.wait()
    assert await other.own(2)
    log.let_late_arrive()
    assert await taken == "lost"
    assert await other.commit(b"y") == ""
    await agrees(other)


async def test_parts_cut_off_by_a_barrier_do_not_count(log: ScriptedLog, owner: Node) -> None:
    log.part_bytes_max = 64
    log.script = ["part"]
    taken = asyncio.ensure_future(owner.commit(b"x" * 100))
    await log.unanswered.wait()
    log.write(split(barrier(2, owner.replica.accepted), 64), 2)
    log.write(split(Entry(1, 1, BATCH, b"of the old owner"), 64), log.last)
    assert await taken == "lost"
    other = Node(log, name="b")
    await other.follower.catch_up()
    assert (other.position.epoch, other.position.number) == (2, 0)
    assert other.rows == []


@pytest.mark.parametrize("script", [["hangs"], ["lost"] * 100], ids=["hangs", "lost"])
async def test_who_cannot_find_out_steps_down(log: ScriptedLog, script: list[str]) -> None:
    owner = Node(log)
    assert await owner.own(1, patience_s=0.15)
    log.script = script
    assert await owner.commit(b"x") == "lost"
    assert "without outcome for 0.15 s" in owner.lost[0]
    assert owner.rows == []


async def test_a_log_which_was_lost_is_noticed(log: ScriptedLog) -> None:
    owner = Node(log)
    assert await owner.own(1, patience_s=0.15)
    assert await owner.commit(b"x") == ""
    log.values.clear()
    assert await owner.commit(b"y") == "lost"
    assert "the log ends at 0, not at 2" in owner.lost[0]
    assert not await owner.own(2)


async def test_a_store_which_fails_behind_the_log_is_behind_not_wrong(
    log: ScriptedLog, owner: Node
) -> None:
    assert isinstance(owner.store, MemoryStore)
    before = owner.replica.accepted
    owner.store.fail_commits = 1
    assert await owner.commit(b"x") == "lost"
    assert owner.lost == ["the store is behind the log at position 2: injected: commit failed"]
    assert owner.replica.applied == before == owner.position
    await owner.follower.catch_up()
    assert owner.rows == [b"x"]
    await agrees(owner)


async def test_what_is_in_the_log_is_told_before_the_store_has_it(
    log: ScriptedLog, owner: Node
) -> None:
    owner.local.is_early, owner.local.held = True, []
    before = owner.position
    assert await owner.commit(b"x") == ""
    assert log.last == 2
    assert owner.position == owner.replica.applied == before
    second = owner.submit(Batch())
    await turns()
    assert log.last == 3, "it is appended meanwhile"
    assert not second.done(), "the store is one commit behind at most"
    owner.local.release()
    assert await second == ""
    owner.local.release()
    await turns()
    assert owner.position == owner.replica.applied == owner.replica.accepted
    await agrees(owner)


async def test_a_store_which_fails_after_it_was_told_ends_it(log: ScriptedLog, owner: Node) -> None:
    assert isinstance(owner.store, MemoryStore)
    owner.local.is_early, owner.local.held = True, []
    before = owner.position
    assert await owner.commit(b"x") == ""
    owner.outcome = asyncio.get_running_loop().create_future()
    owner.store.fail_commits = 1
    owner.local.release()
    assert await owner.outcome == "lost"
    assert owner.lost == ["the store is behind the log at position 2: injected: commit failed"]
    assert owner.position == before
    await owner.follower.catch_up()
    assert owner.rows == [b"x"], "what was told is in the log"
    await agrees(owner)


async def test_a_check_waits_for_the_store(log: ScriptedLog, owner: Node) -> None:
    owner.local.is_early, owner.local.held = True, []
    assert owner.committer is not None
    assert await owner.commit(b"x") == ""
    owner.committer.check(b"one")
    await turns()
    assert log.last == 3
    assert owner.checks == []
    for _ in range(2):
        owner.local.release()
        await turns()
    assert [check[1] for check in owner.checks] == [3]
    await agrees(owner)


async def test_a_full_store_refuses_before_the_log_has_it(log: ScriptedLog, owner: Node) -> None:
    assert owner.committer is not None
    owner.committer._refusal = lambda batch: "full" if batch.tables[CHUNKS] else ""
    batch = Batch()
    batch.put(CHUNKS, b"x", b"y")
    outcome = owner.submit(batch)
    assert not outcome.done()  # never within `submit`
    assert await outcome == "full"
    assert log.last == 1
    assert await owner.commit(b"x") == ""
    await agrees(owner)


async def test_closing_leaves_what_is_under_way_to_the_next_owner(
    log: ScriptedLog, owner: Node
) -> None:
    assert owner.committer is not None
    log.script = ["late"]
    outcome = owner.submit(Batch())
    await log.unanswered.wait()
    owner.committer.close()
    log.let_late_arrive()
    assert await owner.own(2)
    assert owner.lost == []
    assert not outcome.done()
    assert owner.replica.accepted == owner.position
    assert (owner.position.position, owner.position.epoch) == (3, 2)
    await agrees(owner)


async def test_checks_tell_the_same_hash_on_every_replica(log: ScriptedLog, owner: Node) -> None:
    other = Node(log, name="b")
    assert owner.committer is not None
    owner.committer.check(b"one")
    assert await owner.commit(b"x") == ""
    owner.committer.check(b"two")
    assert await owner.commit(b"y") == ""
    await other.follower.catch_up()
    await asyncio.sleep(0)
    assert other.checks == owner.checks
    assert [(check[0], check[1]) for check in owner.checks] == [(b"one", 2), (b"two", 4)]
    assert owner.checks[0][2] != owner.checks[1][2]
