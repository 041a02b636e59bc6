"""Which nodes there are, from what each of them says."""

from __future__ import annotations

from queuelake.broker.node.roster import ALIVE_S, Report, Roster
from queuelake.cluster.shard_messenger import messenger_of
from tests.cluster.wires import Wires


def report(node: str, role: str = "replica", epoch: int = 1) -> Report:
    return Report(node, role, 1, epoch, 0, 1, "", [])


async def test_another_node_is_met_once_and_oneself_never() -> None:
    wires = Wires()
    met: list[str] = []
    here = Roster(wires.messenger("a"), lambda: 0.0, lambda former, owner: None, met.append)
    there = Roster(wires.messenger("b"), lambda: 0.0, lambda former, owner: None)
    await here.start()
    here.say(report("a"))
    for _ in range(2):
        there.say(report("b"))
    wires.deliver()
    assert met == ["b"]


async def test_the_owner_is_who_has_the_highest_epoch_and_is_heard() -> None:
    wires = Wires()
    now_s = 0.0
    changes: list[tuple[str, str]] = []
    here = Roster(wires.messenger("a"), lambda: now_s, lambda *change: changes.append(change))
    there = Roster(wires.messenger("b"), lambda: now_s, lambda former, owner: None)
    await here.start()
    for one in (report("b", "owner", 2), report("c", "owner", 1), report("b")):
        there.say(one)
    wires.deliver()
    assert changes == [("", "b"), ("b", "")]
    there.say(report("b", "owner", 3))
    wires.deliver()
    assert here.owner() == "b"
    now_s = ALIVE_S
    assert here.owner() == ""


async def test_what_is_said_of_one_shard_is_not_heard_of_another() -> None:
    wires = Wires()
    rosters = []
    for shard in range(3):
        messenger = messenger_of(wires.messenger("a"), shard)
        rosters.append(Roster(messenger, lambda: 0.0, lambda former, owner: None))
        await rosters[-1].start()
    other = messenger_of(wires.messenger("b"), 1)
    Roster(other, lambda: 0.0, lambda former, owner: None).say(report("b", "owner"))
    wires.deliver()
    assert [one.owner() for one in rosters] == ["", "b", ""]


async def test_an_owner_whose_old_words_arrive_late_is_the_owner_again_with_its_next_ones() -> None:
    wires = Wires()
    changes: list[tuple[str, str]] = []
    here = Roster(wires.messenger("a"), lambda: 0.0, lambda *change: changes.append(change))
    there = Roster(wires.messenger("b"), lambda: 0.0, lambda former, owner: None)
    await here.start()
    for one in (report("b", "owner", 2), report("b", "replica", 1), report("b", "owner", 2)):
        there.say(one)
    wires.deliver()
    assert changes == [("", "b"), ("b", ""), ("", "b")]
