"""The log of fan-out rows: all rows of a trigger appear at once, and none below what was read."""

from __future__ import annotations

from queuelake.storage import api
from queuelake.storage import log_tables as t
from queuelake.storage.check import problems
from queuelake.tables import LOG_SHARDS
from tests.simulation.node import RETRY_MS
from tests.unit.fanout_node import DAY_MS, FanoutNode, trigger_json


class LogReader:
    """Reads all shards on and on, as the pipeline does: what it has passed it never sees again."""

    def __init__(self, node: FanoutNode) -> None:
        self._node = node
        self.positions = [0] * LOG_SHARDS
        self.seen: list[tuple[str, str]] = []  # vehicle, request

    def read(self) -> list[tuple[str, str]]:
        """What is new."""
        found: list[tuple[str, str]] = []
        with self._node.store.view() as view:
            assert problems(view, 1_000_000) == []
            for shard, after in enumerate(self.positions):
                upto = t.log_range(view, api.SDV_LOG, shard)[1]
                assert upto >= after, "positions never go back"
                for one in t.read_fanout(view, shard, after, upto):
                    assert after < one.seqno <= upto
                    found.append((one.row.vin, one.row.request_id))
                self.positions[shard] = upto
        self.seen += found
        return sorted(found)


def vins(count: int) -> list[str]:
    return [f"vin{number:05}" for number in range(count)]


def test_rows_are_in_the_log_until_they_are_settled() -> None:
    node = FanoutNode()
    node.data("d", b"payload")
    node.trigger(["v1", "v2"], "r1", "d")
    assert LogReader(node).read() == [("v1", "r1"), ("v2", "r1")]
    node.drain(node.vehicle("v1"))
    assert LogReader(node).read() == [("v2", "r1")]


def test_rows_of_a_trigger_in_slices_appear_at_once() -> None:
    node = FanoutNode()
    reader = LogReader(node)
    node.trigger(["before"], "r0", "d")
    platform = node.platform()
    platform.publish("$SDV-FANOUT/trigger", trigger_json(vins(2000), "r1", "d"), 1, node.next_id())
    counts: list[int] = []
    for _ in range(100):
        node.loop.run_until_idle()
        counts.append(len(reader.read()))
        if not node.committer.is_busy():
            break
        node.committer.commit()
    assert node.rows() == 2001
    assert [count for count in counts if count] == [1, 2000]
    assert len(set(reader.seen)) == len(reader.seen)


def test_rows_of_a_trigger_which_was_given_up_never_appear_and_hold_up_nobody() -> None:
    node = FanoutNode()
    node.fanout.storing.rows_per_slice = 1_000
    reader = LogReader(node)
    platform = node.platform()
    platform.publish("$SDV-FANOUT/trigger", trigger_json(vins(2000), "r1", "d"), 1, node.next_id())
    while node.rows() < 1000:
        node.loop.run_until_idle()
        node.committer.commit()
    node.fail_commit()
    node.pass_time(RETRY_MS)
    assert node.rows() >= 1000
    node.trigger(["v1", "v2"], "r2", "d")
    assert reader.read() == [("v1", "r2"), ("v2", "r2")]


def test_nor_do_those_of_a_trigger_which_a_crash_interrupted() -> None:
    node = FanoutNode()
    node.fanout.storing.rows_per_slice = 1_000
    reader = LogReader(node)
    platform = node.platform()
    platform.publish("$SDV-FANOUT/trigger", trigger_json(vins(2000), "r1", "d"), 1, node.next_id())
    while node.rows() < 1000:
        node.loop.run_until_idle()
        node.committer.commit()
    node.crash()
    after = LogReader(node)
    after.positions = reader.positions
    node.work()
    node.trigger(["v1"], "r2", "d")
    assert after.read() == [("v1", "r2")]
    for _ in range(30):
        node.pass_time(1_000)
    assert node.rows() == 1
    assert after.read() == []
    node.check()


def test_a_log_of_settled_rows_is_cleaned_and_sequences_go_on() -> None:
    node = FanoutNode()
    node.fanout.cleaning.entries_spare = 0
    node.data("d", b"payload")
    for number in range(5):
        node.trigger(["v1"], f"r{number}", "d")
    assert len(node.drain(node.vehicle("v1"))) == 5
    node.pass_time(3_000)
    assert node.store.tables[api.SDV_LOG] == {}
    node.crash()
    reader = LogReader(node)
    reader.read()
    assert max(reader.positions) == 5
    node.trigger(["v1"], "r9", "d")
    assert reader.read() == [("v1", "r9")]
    assert max(reader.positions) == 6


def test_expired_rows_are_absent() -> None:
    node = FanoutNode(data_retention="1d", gc_interval="1h")
    node.trigger(["v1"], "r1", "d")
    node.leap(2 * DAY_MS)
    assert LogReader(node).read() == []
