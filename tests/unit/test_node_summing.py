"""Answers of several brokers become one: most is added up, and what is not has its reason."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from queuelake.broker.node.summing import RULES, total
from queuelake.control import Histogram, MetricsSnapshot, Readiness, Status
from queuelake.control_ecq import EcqPlace, EcqRange, EcqStatus
from queuelake.control_mq import MqFigures, MqStats
from queuelake.control_queues import GroupStats, PartitionStats, QueueMetrics, QueueStats
from queuelake.control_sdv import SdvFigures, SdvRequest
from queuelake.storage.ecq_tables import digest


def a_snapshot(number: int) -> MetricsSnapshot:
    return MetricsSnapshot(
        version="1",
        compiled=True,
        ready=True,
        started_at_s=float(number),
        connections=7,
        messages_received_by_qos=[number, 1, 0],
        messages_dropped_by_reason={"full": number, f"only-{number}": 1},
        bytes_received=10 * number,
        commit_duration_s=Histogram([0.1, 1.0], [number, 1, 0], 0.5),
        resident_memory_bytes=1000,
        store_bytes=100,
        disk_free_bytes=500 + number,
        queues=2,
        queue_metrics=[QueueMetrics("$queue/dlq/x", depth=number, latency_p50_s=None)],
        mq=MqFigures(3, named={"jobs": MqStats(messages=number, subscribers=2)}),
        sdv=SdvFigures(unique_payloads=4, requests=[a_request("r", number)]),
    )


def a_request(request_id: str, number: int) -> SdvRequest:
    return SdvRequest(request_id, 100 + number, number, 0, 0, number, 0, 0, 0, 0)


def test_metrics_of_two_brokers_of_one_process() -> None:
    found = total([a_snapshot(1), a_snapshot(2)])
    assert (found.version, found.compiled, found.ready, found.started_at_s) == ("1", True, True, 1)
    assert found.connections == 7  # each client has a connection to every broker
    assert found.messages_received_by_qos == [3, 2, 0]
    assert found.messages_dropped_by_reason == {"full": 3, "only-1": 1, "only-2": 1}
    assert found.bytes_received == 30
    assert found.commit_duration_s == Histogram([0.1, 1.0], [3, 2, 0], 1.0)
    assert (found.resident_memory_bytes, found.disk_free_bytes) == (1000, 501)
    assert (found.store_bytes, found.queues) == (200, 4)
    assert found.queue_metrics == [QueueMetrics("$queue/dlq/x", depth=3)]
    assert found.mq == MqFigures(3, named={"jobs": MqStats(messages=3, subscribers=2)})
    assert found.sdv.unique_payloads == 4
    assert found.sdv.requests == [SdvRequest("r", 102, 3, 0, 0, 3, 0, 0, 0, 0)]


def test_one_broker_is_its_own_sum() -> None:
    assert total([a_snapshot(3)]) == a_snapshot(3)


def test_what_a_replica_has_not_counted_adds_nothing() -> None:
    replica = MetricsSnapshot("1", True)
    assert total([replica, a_snapshot(1)]).commit_duration_s == a_snapshot(1).commit_duration_s


def test_all_have_to_be_ready_and_all_reasons_are_told_once() -> None:
    parts = [Readiness(True), Readiness(False, ["a", "b"]), Readiness(False, ["b"])]
    assert total(parts) == Readiness(False, ["a", "b"])
    assert total([Readiness(True), Readiness(True)]) == Readiness(True)


def test_a_session_is_counted_once_and_retained_messages_in_each_shard() -> None:
    first = Status("1", True, 5, 2.0, {"mqtt": "here"}, 3, 4, 5, 6)
    second = Status("1", True, 4, 3.0, {"mqtt": "there"}, 2, 4, 6, 7)
    assert total([first, second]) == Status("1", True, 4, 3.0, {"mqtt": "here"}, 3, 4, 6, 13)


def test_a_queue_in_parts_has_the_groups_and_partitions_of_all() -> None:
    one = QueueStats(
        "$queue/dlq/x",
        5,
        [PartitionStats(0, 5, 3, 8)],
        [GroupStats("g", 5, 2)],
        latency_p50_s=0.5,
    )
    other = QueueStats(
        "$queue/dlq/x",
        1,
        [PartitionStats(0, 1, 1, 2), PartitionStats(1, 0)],
        [GroupStats("h", 1, 1), GroupStats("g", 1, 2)],
    )
    found = total([one, other])
    assert (found.depth, found.latency_p50_s) == (6, 0.5)
    assert found.partitions == [PartitionStats(0, 6, 1, 8), PartitionStats(1, 0)]
    assert found.groups == [GroupStats("g", 6, 2), GroupStats("h", 1, 1)]


@given(st.lists(st.text("abc", min_size=1), unique=True, min_size=2, max_size=9), st.integers(1, 8))
def test_the_range_of_mailboxes_is_that_of_one_table(owners: list[str], cut: int) -> None:
    def status(names: list[str]) -> EcqStatus:
        if not names:
            return EcqStatus("empty", "empty", 0)
        names = sorted(names, key=lambda name: digest(name.encode()))
        found = EcqRange(EcqPlace(names[0], 1), EcqPlace(names[-1], 2))
        return EcqStatus(found, "empty", len(names))

    assert total([status(owners[:cut]), status(owners[cut:])]) == status(owners)


def test_rules_are_about_fields_there_are() -> None:
    for kind, rules in RULES.items():
        fields = {field.name for field in msgspec.structs.fields(kind)}
        assert rules.keys() <= fields, kind
