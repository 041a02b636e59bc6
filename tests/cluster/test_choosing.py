"""Which node should own which shard."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from queuelake.broker.node.choosing import CLOSE, able, best_heir, fit, give_way_s, moves
from queuelake.broker.node.roster import Report

NODES = st.sets(st.sampled_from("abcdef"), min_size=1)


def report(node: str, role: str = "replica", position: int = 0, draining: bool = False) -> Report:
    return Report(node, role, position, 1, 0, 0, "", [], draining)


@given(owners=st.lists(st.sampled_from(["", *"abcdefgh"]), max_size=64), nodes=NODES)
def test_after_the_moves_all_nodes_own_equally_many(owners: list[str], nodes: set[str]) -> None:
    moved = moves(owners, nodes)
    after = dict(enumerate(owners)) | dict(moved)
    owned = Counter(dict.fromkeys(nodes, 0) | Counter([one for one in after.values() if one]))
    assert owned.keys() == nodes
    assert max(owned.values()) - min(owned.values()) <= 1
    assert len(dict(moved)) == len(moved)  # each once
    assert all(owners[shard] not in ("", heir) for shard, heir in moved)


@given(owners=st.lists(st.sampled_from("abc"), max_size=64))
def test_no_more_is_moved_than_is_too_many(owners: list[str]) -> None:
    share, rest = divmod(len(owners), 3)
    counts = sorted(Counter({**dict.fromkeys("abc", 0), **Counter(owners)}).values(), reverse=True)
    shares = [share + (index < rest) for index in range(3)]
    assert len(moves(owners, "abc")) == sum(
        max(0, count - wanted) for count, wanted in zip(counts, shares, strict=True)
    )


def test_nothing_is_moved_to_nobody() -> None:
    assert moves(["a", ""], []) == []


def test_the_heir_owns_least_of_those_which_are_close() -> None:
    load = {"a": 2, "b": 1, "c": 0}.__getitem__
    others = [report("a", position=5_000), report("b", position=4_999), report("c", position=10)]
    assert best_heir(others, load) == "b"
    assert best_heir(others, lambda node: 0) == "a"
    others[2] = report("c", position=5_001 - CLOSE)
    assert best_heir(others, load) == "c"
    assert best_heir([], load) == ""


def test_who_drains_or_is_stuck_is_not_asked() -> None:
    told = [report("a", "owner"), report("b"), report("c", "stuck"), report("d", draining=True)]
    assert [one.node for one in able(told)] == ["b"]
    assert fit(told) == ["a", "b"]


@given(shard=st.integers(0, 63), nodes=NODES, former=st.sampled_from(["", *"abcdefgh"]))
def test_one_node_goes_first_and_no_two_go_at_once(
    shard: int, nodes: set[str], former: str
) -> None:
    waits = {node: give_way_s(shard, node, nodes, former) for node in nodes - {former}}
    assert len(set(waits.values())) == len(waits)
    assert not waits or min(waits.values()) == 0


@given(nodes=NODES, former=st.sampled_from("abcdef"))
def test_shards_without_an_owner_are_spread(nodes: set[str], former: str) -> None:
    left = sorted(nodes - {former})
    if left:
        first = [
            next(node for node in left if give_way_s(shard, node, nodes, former) == 0)
            for shard in range(2 * len(left))
        ]
        assert Counter(first) == dict.fromkeys(left, 2)
