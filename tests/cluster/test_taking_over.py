"""Taking over: the new owner's barrier is behind everything the old one managed to write."""

from __future__ import annotations

import asyncio

import pytest

from queuelake.cluster.entry import BARRIER, GENESIS, read_part, split
from queuelake.cluster.replica import barrier
from queuelake.storage.api import RETAINED, Batch
from tests.cluster.nodes import Node
from tests.cluster.scripted_log import ScriptedLog


@pytest.fixture
def log() -> ScriptedLog:
    return ScriptedLog()


def kinds(log: ScriptedLog) -> list[int]:
    return [part.kind for part in map(read_part, log.values) if part is not None]


async def test_the_first_owner_begins_the_cluster(log: ScriptedLog) -> None:
    node = Node(log)
    assert await node.own(1)
    assert kinds(log) == [GENESIS]
    assert node.position == node.replica.accepted
    assert (node.position.position, node.position.epoch, node.position.number) == (1, 1, 0)


async def test_of_two_first_owners_one_begins_and_the_other_follows_it(log: ScriptedLog) -> None:
    one, other = Node(log, name="a"), Node(log, name="b")
    assert await asyncio.gather(one.own(1), other.own(2)) == [True, True]
    assert kinds(log) == [GENESIS, BARRIER]
    assert await one.commit(b"x") == "lost"
    assert await other.commit(b"y") == ""


async def test_a_new_owner_has_everything_the_old_one_confirmed(log: ScriptedLog) -> None:
    one, other = Node(log, name="a"), Node(log, name="b")
    assert await one.own(1)
    assert await one.commit(b"x") == ""
    assert await other.own(2)
    assert other.rows == [b"x"]
    assert await one.own(3)
    assert one.hash == Node(log, one.store).hash
    await other.follower.catch_up()
    assert other.hash == one.hash


async def test_what_comes_between_reading_and_the_barrier_is_read_too(log: ScriptedLog) -> None:
    one, other = Node(log, name="a"), Node(log, name="b")
    assert await one.own(1)
    log.script = ["late"]
    outcome = one.submit(a_row(b"late"))
    await log.unanswered.wait()
    assert one.committer is not None
    one.committer.close()
    log.on_append = log.let_late_arrive  # just before the barrier
    assert await other.own(2)
    assert other.rows == [b"late"]
    assert kinds(log)[-1] == BARRIER
    assert not outcome.done()


@pytest.mark.parametrize("script", [["lost"], ["silent"], ["late"]], ids=str)
async def test_a_barrier_without_answer_is_found_out(log: ScriptedLog, script: list[str]) -> None:
    one, other = Node(log, name="a"), Node(log, name="b")
    assert await one.own(1)
    log.script = list(script)
    log.on_append = log.let_late_arrive
    assert await other.own(2)
    assert kinds(log) == [GENESIS, BARRIER]
    assert await other.commit(b"x") == ""


async def test_an_epoch_which_is_over_cannot_begin(log: ScriptedLog) -> None:
    one, other = Node(log, name="a"), Node(log, name="b")
    assert await one.own(5)
    assert not await other.own(4)
    assert not await other.own(5)
    assert kinds(log) == [GENESIS]


async def test_a_newer_owner_which_comes_between_wins(log: ScriptedLog) -> None:
    one, other = Node(log, name="a"), Node(log, name="b")
    assert await one.own(1)

    def overtake() -> None:
        log.on_append = lambda: None
        log.write(split(barrier(3, one.position), 100), log.last)

    log.on_append = overtake
    assert not await other.own(2)
    assert other.position.epoch == 3


@pytest.mark.parametrize("script", [["hangs"], ["lost"] * 50], ids=["hangs", "lost"])
async def test_who_gets_no_answer_does_not_own(log: ScriptedLog, script: list[str]) -> None:
    node = Node(log)
    log.script = script
    assert not await node.own(1, patience_s=0.15)
    log.script = []
    assert await node.own(2)


async def test_who_cannot_read_to_the_end_does_not_own(log: ScriptedLog) -> None:
    one, other = Node(log, name="a"), Node(log, name="b")
    assert await one.own(1)
    log.lagging_reads = 1000
    assert not await other.own(2, patience_s=0.15)
    assert kinds(log) == [GENESIS]


async def test_a_log_without_a_leader_is_waited_for(log: ScriptedLog) -> None:
    one, other = Node(log, name="a"), Node(log, name="b")
    assert await one.own(1)
    log.unavailable_reads = 2
    assert await other.own(2, patience_s=10.0)


async def test_parts_the_old_owner_left_are_not_in_the_way(log: ScriptedLog) -> None:
    one, other = Node(log, name="a"), Node(log, name="b")
    assert await one.own(1)
    log.part_bytes_max = 64
    log.script = ["part"]
    one.submit(a_row(b"x" * 100))
    await log.unanswered.wait()
    assert one.committer is not None
    one.committer.close()
    assert await other.own(2)
    assert other.rows == []
    assert await other.commit(b"y") == ""
    await one.follower.catch_up()
    assert one.rows == [b"y"]
    assert (one.position, one.replica.accepted) == (other.position, other.position)


def a_row(key: bytes) -> Batch:
    batch = Batch()
    batch.put(RETAINED, key, b"")
    return batch
