"""What quorum queues keep: over crashes, failed commits and sleep, and what they keep no longer."""

from __future__ import annotations

import contextlib
import random

import pytest

from queuelake.broker.quorum import rows as quorum_rows
from queuelake.broker.quorum import service
from queuelake.broker.quorum.host import QuorumHost
from queuelake.engine.quorum.snapshot import state_hash
from queuelake.queue_settings import QueueSettings
from queuelake.storage import api, check
from queuelake.storage import queue_tables as t
from tests.conftest import BrokerFactory
from tests.harness import packets as p
from tests.harness.packets import WireError
from tests.queues.client import SUCCESS
from tests.queues.conftest import Connect
from tests.queues.node import QueueNode
from tests.queues.test_quorum_rules import QUORUM, counts, deliveries, settle

CONFIG = '[queues."tasks"]\ntype = "quorum"\n'


@pytest.fixture
def node() -> QueueNode:
    return QueueNode()


def rows(node: QueueNode, table: int) -> int:
    """How many the store has of queue `q`."""
    host = node.broker.queues.quorum.find("q")
    assert host is not None
    prefix = t.queue_key(host.id)
    return sum(1 for key in node.store.tables[table] if key.startswith(prefix))


def whole(node: QueueNode) -> None:
    """The store holds together."""
    with node.store.view() as view:
        assert check.problems(view, 100_000) == []


@pytest.mark.rule("Q36", "Q8")
@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_what_was_confirmed_survives_and_what_was_settled_stays_settled(
    fresh_broker: BrokerFactory, connect: Connect, ending: str
) -> None:
    broker = fresh_broker(config=CONFIG)
    client = connect(of=broker)
    client.subscribe("tasks", prefetch="3")
    client.publish_each("tasks", *"12345")
    first, second, third = client.receive_each(3)
    assert client.ack(first) == SUCCESS
    assert client.nack(second) == SUCCESS
    assert client.receive_payloads(2) == ["4", "2"]
    getattr(broker, ending)()
    broker.restart()
    again = connect(of=broker)
    again.subscribe("tasks")
    received = again.receive_each(4)
    found = {one.payload: one.properties["x-acquired-count"] for one in received}
    assert found == {"2": "3", "3": "2", "4": "2", "5": "1"}
    assert not any("x-delivery-count" in one.properties for one in received)
    assert third.payload == "3"
    again.expect_silence()


@pytest.mark.rule("Q8", "Q36")
def test_kills_in_the_middle_of_work_lose_nothing_confirmed_and_undo_nothing_settled(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker(config=CONFIG)
    confirmed, settled = set[str](), set[str]()
    for life in range(3):
        client = connect(of=broker)
        sent = {
            client.wire.send_publish("$queue/tasks", f"{life}:{number}", qos=1): f"{life}:{number}"
            for number in range(300)
        }
        confirmed.add(sent[client.wire.receive().packet_id])
        consumer = connect(of=broker)
        consumer.subscribe("tasks", prefetch="20")
        for delivery in consumer.receive_each(20):
            assert delivery.payload not in settled
            assert consumer.ack(delivery) == SUCCESS
            settled.add(delivery.payload)
        broker.kill()
        with contextlib.suppress(WireError, OSError):
            while True:
                confirmed.add(sent[client.wire.receive().packet_id])
        broker.restart()
    last = connect(of=broker)
    last.subscribe("tasks", ack_mode="puback")
    left = {one.payload for one in last.drain()}
    assert not left & settled
    assert confirmed <= left | settled


@pytest.mark.rule("Q36")
def test_a_crash_is_nobodys_failure_and_the_hand_out_is_known(node: QueueNode) -> None:
    node.make("q", **QUORUM)
    for payload, priority in (("low", "1"), ("a", "4"), ("b", "4"), ("c", "4")):
        node.publish("q", payload, user={"priority": priority})
    node.consumer("q", None, prefetch="2")
    node.crash()
    consumer = node.consumer("q", None)
    found = [counts(one) for one in deliveries(consumer)]
    assert found == [("a", "2", ""), ("b", "2", ""), ("c", "1", ""), ("low", "1", "")]


@pytest.mark.rule("Q21", "Q22", "Q36")
def test_lines_and_counts_are_the_same_after_a_crash(node: QueueNode) -> None:
    node.make("q", **QUORUM)
    consumer = node.consumer("q", None, ack_mode="publish", prefetch="4")
    for payload in "abcdef":
        node.publish("q", payload)
    a, b, c, d = deliveries(consumer)
    node.make("q", single_active_consumer=True)  # a note of its own, between the others
    settle(node, consumer, c, "nack", **{"delivery-failed": "true"})
    settle(node, consumer, a, "nack", **{"delay-ms": "60000"})
    settle(node, consumer, b, "ack")
    node.crash()
    whole(node)
    host = node.broker.queues.quorum.find("q")
    assert host is not None
    assert (host.machine.total, len(host.machine.delayed)) == (5, 1)
    consumer = node.consumer("q", None)
    found = {
        payload: (acquired, failed)
        for payload, acquired, failed in map(counts, deliveries(consumer))
    }
    assert found["c"][1] == "1"
    assert found["d"] == ("2", "")
    assert d.payload == b"d"
    node.after(62)
    assert counts(deliveries(consumer)[0]) == ("a", "2", "")


@pytest.mark.rule("Q36", "Q33")
def test_no_payload_is_read_to_wake_a_queue(node: QueueNode) -> None:
    node.make("q", **QUORUM)
    for number in range(50):
        node.publish("q", f"{number}" * 100)
    chunks = dict(node.store.tables[api.CHUNKS])
    node.store.tables[api.CHUNKS].clear()
    node.crash()
    host = node.broker.queues.quorum.find("q")
    assert host is not None
    assert host.machine.total == 50
    node.store.tables[api.CHUNKS].update(chunks)
    assert len(node.drain("q")) == 50


@pytest.mark.rule("Q35")
def test_one_stuck_message_keeps_only_its_own_chunk(node: QueueNode) -> None:
    node.make("q", **QUORUM)
    consumer = node.consumer("q", None, ack_mode="publish")
    for number in range(30):
        node.publish("q", str(number))
    stuck, *others = deliveries(consumer)
    for one in others:
        settle(node, consumer, one, "ack")
    assert rows(node, api.CHUNKS) == 1
    settle(node, consumer, stuck, "ack")
    assert rows(node, api.CHUNKS) == 0
    assert rows(node, api.SETTLED) == 0
    assert rows(node, api.QUORUM) == 1  # the head
    whole(node)


def test_a_queue_sleeps_and_wakes_with_all_it_has(node: QueueNode) -> None:
    node.make("q", **QUORUM)
    node.publish("q", "x", by="p1")
    node.after(40)
    assert "q" not in node.broker.queues.quorum.hosts
    node.publish("q", "y", by="p2")
    assert node.drain("q") == ["x", "y"]


def test_what_expires_in_sleep_is_gone_in_time(node: QueueNode) -> None:
    node.make("q", **QUORUM, message_ttl="100s")
    node.publish("q", "x")
    node.after(60)
    assert "q" not in node.broker.queues.quorum.hosts
    node.after(45)
    assert node.drain("dlq/q") == ["x"]


def test_a_deleted_queue_leaves_nothing_and_its_name_is_free(node: QueueNode) -> None:
    node.make("q", **QUORUM)
    for number in range(10):
        node.publish("q", str(number))
    tables = (api.CHUNKS, api.QUORUM, api.PARTITIONS)
    assert all(rows(node, table) for table in tables)
    host = node.broker.queues.quorum.find("q")
    assert host is not None
    node.broker.queues.delete("q")
    node.after(3)
    prefix = t.queue_key(host.id)
    for table in tables:
        assert not [key for key in node.store.tables[table] if key.startswith(prefix)]
    node.make("q", partitions=3)
    assert node.broker.queues.get("q").settings.type == "classic"
    whole(node)


def test_a_failed_commit_undoes_a_new_setting_too(node: QueueNode) -> None:
    node.make("q", **QUORUM, delivery_limit=7)
    node.publish("q", "x")
    node.store.fail_commits = 1
    node.broker.queues.configure("q", {"delivery_limit": 1})
    node.work()
    host = node.broker.queues.quorum.find("q")
    assert host is not None
    assert host.settings.delivery_limit == host.machine.policy.delivery_limit == 7
    node.after(2)
    assert node.drain("q") == ["x"]


@pytest.mark.parametrize("seed", range(10))
def test_whatever_happens_nothing_confirmed_is_lost_and_nothing_settled_comes_again(
    seed: int,
) -> None:
    """Publishes, settlements, crashes, failed commits and time, as the dice say."""
    dice = random.Random(seed)
    node = QueueNode()
    node.make("q", **QUORUM, delivery_limit=-1, dedupe_window=0)
    sent, done = 0, set[str]()
    consumer = node.consumer("q", None, ack_mode="publish", prefetch="5")
    held = deliveries(consumer)
    for _ in range(120):
        step = dice.random()
        if step < 0.4:
            sent += 1
            node.publish("q", str(sent), user={"priority": str(dice.choice([4, 4, 4, 9]))})
        elif step < 0.8 and held:
            one = held.pop(dice.randrange(len(held)))
            assert one.payload.decode() not in done
            verdict = dice.choice(["ack", "ack", "nack"])
            delay = {"delay-ms": "3000"} if verdict == "nack" and dice.random() < 0.5 else {}
            settle(node, consumer, one, verdict, **delay)
            if verdict == "ack":
                done.add(one.payload.decode())
        elif step < 0.85:
            node.after(dice.choice([1, 4, 50]))
        elif step < 0.9:
            node.crash()
            consumer = node.consumer("q", None, ack_mode="publish", prefetch="5")
            held = []
        elif step < 0.93:
            node.store.fail_commits = 1
            node.broker.queues.configure("q", {"delivery_limit": dice.choice([-1, 100_000])})
            node.work()
            node.after(2)
            held = []
        held += [one for one in consumer.take_all() if one.type == p.PUBLISH]
    whole(node)
    node.crash()
    whole(node)
    node.after(4)
    left = set(node.drain("q"))
    assert left == {str(number) for number in range(1, sent + 1)} - done
    assert rows(node, api.CHUNKS) == 0


@pytest.mark.parametrize("kind", ["quorum", "classic"])
def test_a_queue_which_said_it_is_not_replicated_keeps_its_settings_in_a_cluster(kind: str) -> None:
    node = QueueNode()
    node.make("q", type=kind, replication="none")
    node.publish("q", "x")
    defaults = QueueSettings(replication="quorum", dedupe_window="7m")
    moved = QueueNode(defaults=defaults)
    moved.store.tables = node.store.tables
    moved.crash()
    queues = moved.broker.queues
    host = queues.quorum.find("q") if kind == "quorum" else queues.get("q")
    assert host is not None
    assert host.settings.replication == "quorum"
    assert host.settings.dedupe_window == "7m"
    moved.make("q", dedupe_window="5m")  # and it can be changed as any other
    assert moved.drain("q") == ["x"]


def test_a_deep_queue_is_read_in_slices_at_the_start_and_does_not_sleep(
    node: QueueNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "DEEP", 20)
    monkeypatch.setattr(quorum_rows, "CHUNKS_PER_SLICE", 4)
    node.make("q", **QUORUM)
    node.make("shallow", **QUORUM)
    consumer = node.consumer("q", None, prefetch="3", ack_mode="publish")
    for number in range(30):
        node.publish("q", str(number))
    settle(node, consumer, deliveries(consumer)[0], "nack")
    node.crash()
    hosts = node.broker.queues.quorum.hosts
    waking = node.broker.queues.quorum.wake_deep()
    slices = 0
    with contextlib.suppress(StopIteration):
        while True:
            waking.send(None)
            slices += 1
            assert not hosts
    assert slices == 8  # of four chunks; one for each publish
    assert list(hosts) == ["q"]
    in_slices = state_hash(hosts["q"].machine)
    node.crash()
    host = hosts_of(node, "q")
    assert state_hash(host.machine) == in_slices
    node.after(120)
    assert node.broker.queues.quorum.hosts == {"q": host}
    assert len(node.drain("q")) == 30


def test_a_deep_queue_which_somebody_needs_at_once_is_not_read_twice(
    node: QueueNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "DEEP", 20)
    node.make("q", **QUORUM)
    for number in range(30):
        node.publish("q", str(number))
    node.crash()
    waking = node.broker.queues.quorum.wake_deep()
    waking.send(None)
    node.publish("q", "x")
    host = hosts_of(node, "q")
    with pytest.raises(StopIteration):
        waking.send(None)
    assert hosts_of(node, "q") is host
    assert len(node.drain("q")) == 31


def hosts_of(node: QueueNode, queue: str) -> QuorumHost:
    host = node.broker.queues.quorum.find(queue)
    assert host is not None
    return host
