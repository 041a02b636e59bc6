"""Who owns a shard, and for how long. Time is virtual, the engine is that of the simulation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from queuelake.cluster.engine import Lease, UnavailableError
from tests.cluster.members import LEASE_S, Members
from tests.simulation.cluster_engine import RECORD

SOON_S = 0.5  # after it was given up
NOTICED_S = 3.0  # after a process is gone


@pytest.fixture
def members() -> Iterator[Members]:
    """Three, one of which is the owner."""
    with Members("a", "b", "c") as members:
        members.run(SOON_S)
        yield members


def test_one_of_several_becomes_the_owner_and_stays_it(members: Members) -> None:
    owner, others = members.owner(), members.others()
    members.run(20 * LEASE_S)
    assert members.owner() is owner
    assert members.center.lease == Lease(1, owner.name)
    assert owner.told == []
    assert [one.ownership.lease for one in others] == [members.center.lease] * 2


def test_a_lost_process_is_replaced_long_before_its_lease_is_over(members: Members) -> None:
    owner, others = members.owner(), members.others()
    owner.crash()
    gone_s = members.run_until(lambda: any(one.ownership.is_owner for one in others), NOTICED_S)
    assert gone_s < LEASE_S
    assert members.center.lease is not None
    assert members.center.lease.epoch == 2


def test_a_process_that_hangs_is_replaced_when_its_lease_is_over_and_knows_it_at_once(
    members: Members,
) -> None:
    owner, others = members.owner(), members.others()
    owner.loop.paused = True
    members.run(LEASE_S - 1)
    assert not any(one.ownership.is_owner for one in others)
    members.run_until(lambda: any(one.ownership.is_owner for one in others), LEASE_S)
    assert not owner.ownership.is_owner  # before a single callback of it has run
    assert owner.told == []
    owner.loop.paused = False
    members.run(LEASE_S)
    assert len(owner.told) == 1
    assert members.owner() is not owner


def test_a_node_that_starts_again_takes_what_was_its_own_at_once(members: Members) -> None:
    owner = members.owner()
    owner.crash()
    owner.start()
    members.run_until_owned(owner.name, SOON_S)
    assert owner.epochs == [1, 2]


@pytest.mark.parametrize("which", [0, 1])
def test_the_heir_is_next(members: Members, which: int) -> None:
    owner, heir = members.owner(), members.others()[which].name
    owner.release(heir)
    members.run_until_owned(heir, SOON_S)
    assert owner.told == []
    assert members.center.lease == Lease(2, heir)


def test_without_an_heir_anybody_is_next_at_once(members: Members) -> None:
    owner, others = members.owner(), members.others()
    owner.release()
    members.run_until(lambda: any(one.ownership.is_owner for one in others), SOON_S)


def test_an_heir_that_is_gone_is_not_waited_for(members: Members) -> None:
    owner, (heir, other) = members.owner(), members.others()
    heir.crash()
    members.run(NOTICED_S)
    owner.release(heir.name)
    members.run_until_owned(other.name, NOTICED_S)


def test_an_heir_that_does_not_come_is_waited_for_as_long_as_for_an_owner(members: Members) -> None:
    owner, (heir, other) = members.owner(), members.others()
    heir.fit = False
    owner.release(heir.name)
    assert members.run_until_owned(other.name, 2 * LEASE_S) >= LEASE_S - SOON_S


def test_who_is_not_fit_never_claims(members: Members) -> None:
    owner, (one, other) = members.owner(), members.others()
    one.fit = other.fit = False
    owner.crash()
    members.run(5 * LEASE_S)
    assert not one.epochs
    other.fit = True
    members.run_until_owned(other.name, NOTICED_S)


def test_a_record_written_by_another_ends_the_tenure(members: Members) -> None:
    owner = members.owner()
    members.center.write(Lease(7, "z"), members.center.revision)
    members.run(LEASE_S / 2)
    assert not owner.ownership.is_owner
    assert owner.told == ["another node has the lease"]


def test_renewals_whose_answers_are_lost_keep_the_lease(members: Members) -> None:
    owner = members.owner()

    def lose_answers() -> None:
        members.fate.lost_answer = 1.0
        members.time.after(LEASE_S / 2, find_them)

    def find_them() -> None:
        members.fate.lost_answer = 0.0
        members.time.after(LEASE_S / 2, lose_answers)

    lose_answers()
    members.run(10 * LEASE_S)
    assert members.owner() is owner
    assert members.center.lease == Lease(1, owner.name)


def test_an_owner_that_reaches_nobody_stops_when_its_lease_is_over_and_not_before(
    members: Members,
) -> None:
    owner, others = members.owner(), members.others()
    members.center.leaderless.add(RECORD)
    members.run(LEASE_S / 2)
    assert members.owner() is owner
    members.run(LEASE_S / 2)
    assert not owner.ownership.is_owner
    assert owner.told == ["the lease of 5 s was not renewed in time"]
    members.center.leaderless.clear()
    members.run(LEASE_S)
    assert members.owner() in [owner, *others]
    assert len(owner.told) == 1


def test_who_is_cut_off_loses_it_to_the_others(members: Members) -> None:
    owner, others = members.owner(), members.others()
    owner.engine.cut(off=True)
    members.run_until(lambda: any(one.ownership.is_owner for one in others), LEASE_S)
    members.run(LEASE_S)
    assert len(owner.told) == 1
    owner.engine.cut(off=False)
    members.run(2 * LEASE_S)
    assert members.owner() is not owner


def test_who_cannot_take_over_leaves_it_to_others(members: Members) -> None:
    owner, (one, other) = members.owner(), members.others()

    async def refuse(epoch: int) -> bool:
        if epoch % 2:
            raise UnavailableError("no leader")
        return False

    one.take_over = refuse
    owner.crash()
    members.run_until_owned(other.name, 2 * LEASE_S)
    assert one.told == []


def test_the_lease_is_renewed_while_taking_over() -> None:
    async def read_a_long_log(epoch: int) -> bool:
        await asyncio.sleep(4 * LEASE_S)
        return True

    with Members("a", "b", "c") as members:
        for member in members.all:
            member.take_over = read_a_long_log
        members.run(4 * LEASE_S + SOON_S)
        assert members.center.lease == Lease(1, members.owner().name)


def test_taking_over_ends_when_the_lease_is_lost() -> None:
    ended: list[str] = []

    async def read_for_ever(epoch: int) -> bool:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("yes")
        return True

    with Members("a") as members:
        members["a"].take_over = read_for_ever
        members.run(SOON_S)
        members.center.write(Lease(7, "z"), members.center.revision)
        members.run(LEASE_S / 2)
        assert ended == ["yes"]
        assert members["a"].told == []


def test_a_release_that_nobody_answers_ends_with_the_lease(members: Members) -> None:
    owner, others = members.owner(), members.others()
    members.center.leaderless.add(RECORD)
    owner.release()
    assert not owner.ownership.is_owner
    members.center.leaderless.clear()
    members.run_until(lambda: any(one.ownership.is_owner for one in others), 2 * LEASE_S)
    assert owner.told == []


@pytest.mark.parametrize("seed", range(30))
def test_with_even_clocks_no_two_believe_to_be_the_owner(seed: int) -> None:
    """Whatever the engine answers and however long a process hangs; who is cut off learns of it
    only by its clock, and is kept out by the log alone."""
    with Members("a", "b", "c", seed=seed) as members:
        dice = members.time.dice
        for _ in range(100):
            members.run(dice.uniform(0, LEASE_S))
            if dice.random() < 0.3:
                members.fate.worsen()
            if dice.random() < 0.2:
                one = dice.choice(members.all)
                one.loop.paused = not one.loop.paused
            owners = [one.name for one in members.all if one.ownership.is_owner]
            assert len(owners) <= 1, owners
        members.fate.mend()
        for one in members.all:
            one.loop.paused = False
        members.run(3 * LEASE_S)
        assert members.owner().ownership.lease == members.center.lease


def test_who_gives_way_is_not_the_next_owner_and_no_time_is_lost(members: Members) -> None:
    for _ in range(5):
        owner = members.owner()
        first, other = members.others()
        first.gives_way_s, other.gives_way_s = 0.0, 2 * LEASE_S
        owner.crash()
        members.run_until_owned(first.name, NOTICED_S)
        owner.start()
        owner.gives_way_s = 0.0


def test_who_gives_way_to_nobody_is_the_owner_in_the_end(members: Members) -> None:
    owner = members.owner()
    first, other = members.others()
    first.fit = False
    other.gives_way_s = 1.0
    owner.crash()
    members.run_until_owned(other.name, NOTICED_S + 1.0)
