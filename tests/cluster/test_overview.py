"""What is said of a cluster with several shards, from what is known of each."""

from __future__ import annotations

from queuelake.broker.node.overview import checked, members
from queuelake.broker.node.roster import ALIVE_S, Report
from queuelake.control_cluster import Checked


def report(node: str, role: str, position: int, problem: str = "") -> Report:
    return Report(node, role, position, 1, 0, position - 1, "1.0", ["mqtt://x"], False, problem)


def test_of_one_shard_it_is_what_the_node_said() -> None:
    heard = [[(report("a", "owner", 9), 0.5), (report("b", "stuck", 7, "full"), ALIVE_S)]]
    one, other = members(heard)
    assert (one.node, one.role, one.position, one.lag, one.synced) == ("a", "owner", 9, 0, 8)
    assert (one.alive, one.owns) == (True, [0])
    assert (other.role, other.lag, other.problem, other.alive) == ("stuck", 2, "full", False)


def test_of_several_positions_are_added_and_the_worst_is_the_role() -> None:
    heard = [
        [(report("a", "owner", 9), 0.5), (report("b", "replica", 7), 0.1)],
        [(report("a", "copying", 1, "behind"), 0.5), (report("b", "owner", 4), 0.1)],
    ]
    one, other = members(heard)
    assert (one.role, one.position, one.lag, one.owns) == ("copying", 10, 3, [0])
    assert one.problem == "shard 1: behind"
    assert (other.role, other.position, other.lag, other.owns) == ("owner", 11, 2, [1])


def test_the_stores_are_equal_when_those_of_each_shard_are() -> None:
    first = Checked(5, True, {"a": "aa", "b": "aa"}, [])
    second = Checked(7, True, {"a": "bb"}, ["b"])
    assert checked([first]) is first
    both = checked([first, second])
    assert (both.position, both.equal, both.missing) == (12, True, ["b"])
    assert list(both.hashes) == ["a"]
    assert [(one.shard, one.position, one.missing) for one in both.shards] == [
        (0, 5, []),
        (1, 7, ["b"]),
    ]
    assert not checked([first, Checked(7, False, {"a": "bb", "b": "cc"}, [])]).equal
