"""When a group is sealed: while clients send it collects, but nobody waits for long."""

from __future__ import annotations

from queuelake.broker.pace import ANSWERS_MAX, COLLECT_MS_MAX, SETTLE_MS_MAX, Pace
from tests.simulation.node import Node


def test_a_turn_which_brought_nothing_ends_the_wait() -> None:
    pace = Pace()
    pace.inputs += 1
    assert pace.expects_more(1, 1000)
    assert not pace.expects_more(1, 1000)


def test_publishers_are_waited_for_longer_than_settlements() -> None:
    for published, limit_ms in ((1, COLLECT_MS_MAX), (0, SETTLE_MS_MAX)):
        pace = Pace()
        for now_ms in range(1000, 1000 + limit_ms):
            pace.inputs += 1
            pace.published += published
            assert pace.expects_more(1, now_ms)
        pace.inputs += 1
        pace.published += published
        assert not pace.expects_more(1, 1000 + limit_ms)


def test_a_group_with_many_answers_does_not_wait() -> None:
    pace = Pace()
    pace.inputs += 1
    assert not pace.expects_more(ANSWERS_MAX, 1000)


def test_every_group_waits_for_those_who_send_and_not_only_the_first() -> None:
    node = Node()
    writer = node.client("writer")
    for n in range(1, 6, 2):
        node.pass_time(100)
        writer.publish("$queue/one", b"1", 1, n)
        node.loop.turn()
        assert not node.committer.is_busy()
        writer.publish("$queue/one", b"2", 1, n + 1)
        node.loop.turn()
        assert not node.committer.is_busy()
        node.loop.turn()
        assert node.committer.is_busy(), "nobody sends any more"
        node.work()
        assert [packet.packet_id for packet in writer.take_all()] == [n, n + 1]
