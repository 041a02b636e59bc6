"""Compaction of streams: the last value of each key stays (section 8)."""

from __future__ import annotations

import pytest

from queuelake.broker.queues import compaction, upkeep
from queuelake.errors import RefusedError
from queuelake.storage import queue_tables as t
from tests.harness import packets as p
from tests.queues.client import wait_until
from tests.queues.conftest import Connect, MakeQueue
from tests.queues.node import QueueNode

COMPACTED = {"enabled": True, "lag": "10s", "interval": "60s"}
RUN_S = 65  # long enough for one run


def node_with_stream(**compaction: object) -> tuple[QueueNode, str]:
    node = QueueNode()
    queue = node.make("s", type="stream", partitions=1, compaction={**COMPACTED, **compaction})
    return node, queue


def publish_values(node: QueueNode, queue: str, *values: str) -> None:
    """`a1` is a message with the key `a`."""
    for value in values:
        node.publish(queue, value, key=value[0])


@pytest.mark.rule("section 8")
def test_the_last_value_of_each_key_is_left() -> None:
    node, queue = node_with_stream()
    publish_values(node, queue, "a1", "b1", "a2", "c1", "b2", "a3")
    assert node.replay(queue) == ["a1", "b1", "a2", "c1", "b2", "a3"]
    node.after(RUN_S)
    assert node.replay(queue) == ["c1", "b2", "a3"]


@pytest.mark.rule("section 8")
def test_nothing_is_compacted_before_the_interval_is_over() -> None:
    node, queue = node_with_stream()
    publish_values(node, queue, "a1", "a2")
    node.after(50)
    assert node.replay(queue) == ["a1", "a2"]


@pytest.mark.rule("section 8")
def test_what_is_younger_than_the_lag_stays_until_a_later_run() -> None:
    node, queue = node_with_stream(lag="30s")
    publish_values(node, queue, "a1", "b1")
    node.after(45)
    publish_values(node, queue, "a2", "a3")
    node.after(20)  # the run of the first minute
    assert node.replay(queue) == ["b1", "a2", "a3"]
    node.after(60)
    assert node.replay(queue) == ["b1", "a3"]


@pytest.mark.rule("section 8")
def test_messages_without_a_key_stay() -> None:
    node, queue = node_with_stream()
    node.publish(queue, "x")
    node.publish(queue, "y")
    node.after(RUN_S)
    assert node.replay(queue) == ["x", "y"]


@pytest.mark.rule("section 8")
def test_the_key_may_be_a_user_property() -> None:
    node, queue = node_with_stream(key="device")
    for value, device in (("1", "d1"), ("2", "d2"), ("3", "d1")):
        node.publish(queue, value, key="same", user={"device": device})
    node.publish(queue, "4", key="same")
    node.after(RUN_S)
    assert node.replay(queue) == ["2", "3", "4"]


def test_long_keys_are_told_apart() -> None:
    node, queue = node_with_stream()
    for value, key in (("1", "k" * 40), ("2", "k" * 41), ("3", "k" * 40)):
        node.publish(queue, value, key=key)
    node.after(RUN_S)
    assert node.replay(queue) == ["2", "3"]


def test_each_partition_is_compacted_by_itself() -> None:
    node = QueueNode()
    queue = node.make("s", type="stream", partitions=4, compaction=COMPACTED)
    for number in range(40):
        node.publish(queue, f"{number}", key=f"k{number % 10}")
    node.after(RUN_S)
    assert sorted(map(int, node.replay(queue))) == list(range(30, 40))


def test_more_keys_than_can_be_noted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "KEYS_MAX", 3)
    node, queue = node_with_stream()
    for number in range(40):
        node.publish(queue, f"{number}", key=f"k{number % 10}")
    node.after(RUN_S)
    assert node.replay(queue) == [str(number) for number in range(30, 40)]


def test_compaction_goes_on_where_it_was() -> None:
    node, queue = node_with_stream()
    publish_values(node, queue, "a1", "b1", "a2")
    node.after(RUN_S)
    publish_values(node, queue, "b2", "c1")
    node.after(RUN_S)
    assert node.replay(queue) == ["a2", "b2", "c1"]


@pytest.mark.rule("section 8")
def test_what_is_compacted_stays_so_after_a_crash() -> None:
    node, queue = node_with_stream()
    publish_values(node, queue, "a1", "b1", "a2", "b2", "a3")
    node.after(RUN_S)
    node.crash()
    assert node.replay(queue) == ["b2", "a3"]
    publish_values(node, queue, "b3")
    node.after(RUN_S)
    assert node.replay(queue) == ["a3", "b3"]


@pytest.mark.rule("section 8")
def test_a_replay_from_an_offset_which_is_gone_begins_at_the_next() -> None:
    node, queue = node_with_stream()
    publish_values(node, queue, "a1", "b1", "a2", "b2")
    node.after(RUN_S)
    assert node.replay(queue, "offset=1") == ["a2", "b2"]
    assert node.replay(queue, "offset=4") == ["b2"]


def test_a_group_in_the_middle_goes_on_with_what_is_left() -> None:
    node = QueueNode()
    patient = {"delivery_timeout": "1h", "heartbeat_timeout": "1h"}
    queue = node.make("s", type="stream", partitions=1, compaction=COMPACTED, performance=patient)
    publish_values(node, queue, "a1", "b1", "a2", "b2", "a3")
    peer = node.consumer(queue, "g", prefetch="1", x_stream_offset="first")
    (first,) = peer.take_all()
    assert first.payload == b"a1"
    node.after(RUN_S)
    assert node.settle_all(peer) == ["b2", "a3"]
    peer.acknowledge(p.PUBACK, first.packet_id)  # too late, and harmless
    node.work()
    publish_values(node, queue, "c1")
    assert node.settle_all(peer) == ["c1"]


def test_the_space_of_what_is_gone_is_used_again() -> None:
    node, queue = node_with_stream()
    for number in range(100):
        node.publish(queue, f"{number}".ljust(1000), key=f"k{number % 5}")
    node.consumer(queue, "g")  # so that new messages come into chunks of their own
    before = node.stored_bytes(queue)
    node.after(2 * RUN_S)
    assert node.stored_bytes(queue) < before / 5
    left = [str(number) for number in range(95, 100)]
    assert [one.strip() for one in node.replay(queue)] == left
    node.crash()
    assert [one.strip() for one in node.replay(queue)] == left


def test_a_long_message_which_is_gone_leaves_no_piece() -> None:
    node, queue = node_with_stream()
    node.consumer(queue, "g")
    node.publish(queue, "x" * 100_000, key="a")
    node.publish(queue, "y", key="a")
    node.publish(queue, "z", key="b")
    node.after(2 * RUN_S)
    assert node.replay(queue) == ["y", "z"]
    assert node.stored_bytes(queue) < 1000


def test_times_are_kept_where_messages_were() -> None:
    node, queue = node_with_stream()
    node.consumer(queue, "g")
    for number in range(20):
        node.publish(queue, f"{number}".ljust(1000), key="k")
        node.after(1)
    moment_ms = node.broker.clock.now_ms()
    node.publish(queue, "last", key="k")
    node.publish(queue, "other", key="o")
    node.after(2 * RUN_S)
    assert node.replay(queue, f"timestamp={moment_ms}") == ["last", "other"]


def test_a_commit_which_fails_takes_nothing_away() -> None:
    node, queue = node_with_stream()
    publish_values(node, queue, "a1", "b1", "a2", "b2")
    node.after(59)
    node.store.fail_commits = 3
    node.after(10)
    assert node.store.fail_commits == 0
    assert node.replay(queue)[-2:] == ["a2", "b2"]
    node.after(2 * RUN_S)
    assert node.replay(queue) == ["a2", "b2"]


def test_a_slice_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "RECORDS_PER_SLOT", 1)
    node, queue = node_with_stream()
    node.consumer(queue, "g")
    for number in range(60):
        node.publish(queue, f"{number}", key="k")
    node.after(62)
    assert node.host(queue).machine.partitions[0].stored() == 60  # still noting keys
    node.after(60)
    assert node.replay(queue) == ["59"]


def test_a_stream_which_is_being_compacted_does_not_sleep() -> None:
    node, queue = node_with_stream()
    publish_values(node, queue, "a1", "a2")
    node.after(50)
    assert node.awake(queue) is not None
    node.after(60)
    assert node.awake(queue) is None
    assert node.replay(queue) == ["a2"]


def test_a_stream_which_nobody_uses_is_compacted_after_a_restart() -> None:
    node, queue = node_with_stream()
    publish_values(node, queue, "a1", "a2")
    node.crash()
    node.after(RUN_S + 5)
    with node.store.view() as view:
        assert t.last_sequence(view, node.host(queue).id, 0) == 2
    assert node.replay(queue) == ["a2"]


def test_a_stream_with_retention_and_compaction_obeys_both() -> None:
    node = QueueNode()
    settings = {"retention": {"max_messages": 3}, "compaction": COMPACTED}
    queue = node.make("s", type="stream", partitions=1, **settings)
    publish_values(node, queue, "a1", "b1", "a2", "c1", "d1", "e1")
    node.after(2)
    assert node.replay(queue) == ["c1", "d1", "e1"]
    publish_values(node, queue, "e2")
    node.after(RUN_S)
    assert node.replay(queue) == ["d1", "e2"]


@pytest.mark.rule("section 8")
def test_a_classic_queue_cannot_be_compacted() -> None:
    node = QueueNode()
    with pytest.raises(RefusedError, match=r"compaction\.enabled"):
        node.make("q", compaction={"enabled": True})


@pytest.mark.rule("section 8")
def test_a_stream_is_compacted_while_clients_use_it(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(
        type="stream",
        partitions=1,
        compaction={"enabled": True, "lag": "0s", "interval": "1s"},
    )
    client = connect()
    for number in range(30):
        client.publish(queue, f"{number}", user={"partition-key": f"k{number % 3}"})

    def only_the_last_are_left() -> bool:
        reader = connect()
        reader.subscribe(queue, group=reader.client_id, x_stream_offset="first")
        found = [reader.receive().payload]
        while found[-1] != "29":
            found.append(reader.receive().payload)
            reader.wire.ping()
        reader.disconnect()
        return found == ["27", "28", "29"]

    wait_until(only_the_last_are_left)
