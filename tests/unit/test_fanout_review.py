"""What a review of fan-out found; each was wrong once."""

from __future__ import annotations

from queuelake.broker.fanout.register import COUNTS_KEPT_MAX
from tests.unit.fanout_node import HOUR_MS, FanoutNode


def test_requests_are_forgotten_while_a_commit_with_many_counts_is_under_way() -> None:
    """`Register.stored` looked for the counts of what was just forgotten."""
    node = FanoutNode(data_retention="1h", gc_interval="30d")
    node.trigger([], "task_old_1", "d")
    node.leap(2 * HOUR_MS)
    vehicle = node.vehicle("V")
    node.trigger(["V"], "task_a_1", "late")
    for number in range(COUNTS_KEPT_MAX + 10):
        node.trigger([], f"task_b_{number}", "d")
    for number in range(COUNTS_KEPT_MAX + 10):
        assert node.fanout.request(f"task_b_{number}").pending == 0
    node.platform().publish("$SDV-FANOUT/data/late", b"1", 1, node.next_id())
    node.loop.run_until_idle()
    assert node.committer.is_busy()
    assert node.fanout.collect_garbage()
    for _ in range(4):
        node.loop.advance(150)
    node.work()
    assert node.drain(vehicle) == [("task_a_1", b"1")]
    node.check()
