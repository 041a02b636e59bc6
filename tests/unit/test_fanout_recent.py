"""Rows of vehicles which are connected: stored together, and moved to all others if they stay."""

from __future__ import annotations

import pytest

from queuelake.broker.fanout import recent as recent_module
from queuelake.broker.fanout import register as register_module
from queuelake.broker.fanout.recent import MOVE_AGAIN_MS, ROWS_MAX, STAY_MS
from queuelake.storage import api
from queuelake.storage.memory import MemoryView
from tests.simulation.node import RETRY_MS, Peer
from tests.unit.fanout_node import DAY_MS, FanoutNode


def node_with_vehicles(count: int) -> tuple[FanoutNode, list[Peer]]:
    node = FanoutNode()
    node.data("d", b"1")
    return node, [node.vehicle(f"V{number}") for number in range(count)]


def vins(peers: list[Peer]) -> list[str]:
    return [peer.client_id for peer in peers]


def ids(node: FanoutNode) -> int:
    return len(node.store.tables[api.SDV_IDS])


def test_rows_which_are_acknowledged_at_once_never_join_the_others() -> None:
    node, peers = node_with_vehicles(3)
    node.trigger([*vins(peers), "offline"], "task_a_1", "d")
    assert (ids(node), len(node.recent_rows())) == (1, 3)
    assert node.pending("V0") == ["task_a_1"]
    node.check()
    for left, peer in zip((2, 1, 0), peers, strict=True):
        assert node.drain(peer) == [("task_a_1", b"1")]
        assert len(node.recent_rows()) == left
        node.check()
    assert node.store.tables[api.SDV_RECENT] == {}
    assert ids(node) == 1
    assert node.fanout.request("task_a_1").acked == 3


def test_rows_which_stay_move_to_the_others_and_are_acknowledged_there() -> None:
    node, peers = node_with_vehicles(2)
    node.trigger(vins(peers), "task_a_1", "d")
    node.trigger(vins(peers), "task_a_2", "d")
    [sent] = node.take(peers[0])
    node.drain(peers[1])
    node.pass_time(STAY_MS + 1_500)
    assert (ids(node), node.recent_rows()) == (2, [])
    node.check()
    node.acknowledge(peers[0], sent)
    assert node.drain(peers[0]) == [("task_a_2", b"1")]
    assert node.rows() == 0
    node.check()


def test_older_rows_of_a_vehicle_come_first_wherever_they_are() -> None:
    node = FanoutNode()
    node.data("d", b"1")
    node.trigger(["V0"], "task_a_1", "d")
    peer = node.vehicle("V0")
    node.trigger(["V0"], "task_a_2", "d")
    assert (ids(node), len(node.recent_rows())) == (1, 1)
    assert node.pending("V0") == ["task_a_1", "task_a_2"]
    assert [request for request, _ in node.drain(peer)] == ["task_a_1", "task_a_2"]
    peer.hang_up()
    node.trigger(["V0"], "task_a_3", "d")
    peer = node.vehicle("V0")
    assert [request for request, _ in node.drain(peer)] == ["task_a_3"]
    node.check()


def test_a_crash_forgets_neither_rows_nor_what_became_of_them() -> None:
    node, peers = node_with_vehicles(20)
    node.trigger(vins(peers), "task_a_1", "d")
    for peer in peers[:9]:
        node.drain(peer)
    node.crash()
    node.check()
    assert node.fanout.status().remaining_messages == 11
    assert node.drain(node.vehicle("V3")) == []
    assert node.drain(node.vehicle("V9")) == [("task_a_1", b"1")]
    node.pass_time(STAY_MS + 1_500)
    assert (ids(node), node.recent_rows()) == (10, [])
    assert node.drain(node.vehicle("V10")) == [("task_a_1", b"1")]
    node.check()


def test_a_commit_which_fails_moves_nothing() -> None:
    node, peers = node_with_vehicles(2)
    node.trigger(vins(peers), "task_a_1", "d")
    sent = [node.take(peer)[0] for peer in peers]
    node.store.fail_commits = 1
    node.pass_time(STAY_MS + 1_500)
    node.pass_time(RETRY_MS)
    assert (ids(node), len(node.recent_rows())) == (0, 2)
    node.acknowledge(peers[0], sent[0])
    assert len(node.recent_rows()) == 1
    node.check()
    node.pass_time(MOVE_AGAIN_MS)
    assert (ids(node), node.recent_rows()) == (1, [])
    node.acknowledge(peers[1], sent[1])
    assert node.rows() == 0
    node.check()


def test_an_answer_which_fails_to_be_stored_counts_with_the_next_commit() -> None:
    node, peers = node_with_vehicles(2)
    node.trigger(vins(peers), "task_a_1", "d")
    [sent] = node.take(peers[0])
    node.store.fail_commits = 1
    node.acknowledge(peers[0], sent)
    node.pass_time(RETRY_MS)
    assert len(node.recent_rows()) == 1
    node.drain(peers[1])
    assert node.store.tables[api.SDV_RECENT] == {}
    node.check()


def test_a_trigger_whose_commit_fails_leaves_nothing() -> None:
    node, peers = node_with_vehicles(3)
    node.fanout.storing.rows_per_slice = 2
    platform = node.platform()
    for failing in (1, 2):
        body = b'{"ids": ["V0", "V1", "V2"], "request_id": "task_a_1", "data_id": "d"}'
        platform.publish("$SDV-FANOUT/trigger", body, 1, failing)
        if failing == 2:
            node.loop.run_until_idle()
        node.store.fail_commits = 1
        node.work()
        node.pass_time(RETRY_MS)
        assert node.recent_rows() == []
        assert node.fanout.status().remaining_messages == 0
        platform = node.platform()
    node.pass_time(5_000)
    assert node.store.tables[api.SDV_RECENT] == {}
    node.check()
    node.trigger(vins(peers), "task_a_2", "d")
    assert [node.requests(peer) for peer in peers] == [["task_a_2"]] * 3


def test_the_others_are_searched_again_only_when_rows_joined_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[bytes] = []
    first_from = MemoryView.first_from

    def spy(view: MemoryView, table: int, key: bytes) -> tuple[bytes, bytes] | None:
        if table == api.SDV_IDS:
            searched.append(key)
        return first_from(view, table, key)

    monkeypatch.setattr(MemoryView, "first_from", spy)
    node, [peer] = node_with_vehicles(1)
    others: list[list[str]] = [[], [], ["offline"], []]
    for times, offline in zip((1, 1, 2, 2), others, strict=True):
        node.trigger(["V0", *offline], "task_a_1", "d")
        assert node.drain(peer) == [("task_a_1", b"1")]
        assert len(searched) == times


def test_a_row_which_joins_the_others_is_found_by_a_vehicle_which_had_none() -> None:
    node, [peer] = node_with_vehicles(1)
    node.trigger(["V0"], "task_a_1", "d")
    assert node.drain(peer) == [("task_a_1", b"1")]
    peer.hang_up()
    node.work()
    node.trigger(["V0"], "task_a_2", "d")
    assert ids(node) == 1
    assert node.drain(node.vehicle("V0")) == [("task_a_2", b"1")]


def test_recent_rows_can_be_cancelled_and_grow_too_old() -> None:
    node, peers = node_with_vehicles(2)
    for peer in peers:
        node.trigger([peer.client_id], "task_b_1", "missing")
    assert sum(one.cancelled for one in node.fanout.cancel("task_b_1", [])) == 2
    node.work()
    assert node.store.tables[api.SDV_RECENT] == {}
    node.trigger(["V0"], "task_b_2", "missing")
    node.loop.now_ns += 8 * DAY_MS * 1_000_000
    assert node.fanout.collect_garbage()
    node.work()
    assert node.fanout.request("task_b_2").expired == 1
    node.check()


def test_memory_for_them_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ROWS_MAX <= 20_000
    if recent_module.__file__.endswith(".so"):
        pytest.skip("the limit is compiled in")
    monkeypatch.setattr(recent_module, "ROWS_MAX", 2)
    node, peers = node_with_vehicles(3)
    node.trigger(vins(peers), "task_a_1", "d")
    assert (ids(node), len(node.recent_rows())) == (1, 2)
    for peer in peers:
        assert node.drain(peer) == [("task_a_1", b"1")]
    node.check()


def test_vehicles_which_have_no_others_are_remembered_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert register_module.BARE_MAX <= 50_000
    if register_module.__file__.endswith(".so"):
        pytest.skip("the limit is compiled in")
    monkeypatch.setattr(register_module, "BARE_MAX", 2)
    node, peers = node_with_vehicles(3)
    for request in ("task_a_1", "task_a_2"):
        node.trigger(vins(peers), request, "d")
        for peer in peers:
            assert node.drain(peer) == [(request, b"1")]
        assert 0 < len(node.fanout.register._bare) <= 2


def test_recent_rows_are_collected_however_short_their_time_is() -> None:
    """T9: a run which found them young said that there were none."""
    node = FanoutNode(data_retention="1s", gc_interval="30d")
    node.client("V")
    node.trigger(["V"], "task_a_1", "d")
    for waited_ms in (500, 600):
        node.pass_time(waited_ms)
        assert len(node.recent_rows()) == 1
        assert node.fanout.collect_garbage()
        node.pass_time(10)
    assert node.fanout.status().remaining_messages == 0
    node.check()
