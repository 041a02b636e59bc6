"""Message queues in the broker, where something happens between two steps; each failed before."""

from __future__ import annotations

from typing import Any

from queuelake.broker.message_queues.host import MessageQueueHost
from queuelake.broker.message_queues.latest import LatestValues
from queuelake.broker.queues.tail import RecordCache, Tail
from queuelake.engine.groups import GROUP
from queuelake.mq_settings import MqConfig, MqSettings, config_with
from queuelake.settings import Queues, Settings
from queuelake.storage import api
from queuelake.storage.api import Batch
from queuelake.storage.chunk import Record
from queuelake.storage.memory import MemoryStore
from tests.harness import packets as p
from tests.simulation.node import Node, Peer

IDLE_UNLOAD_S = 5.0
REFUSED = 0x80


def a_node() -> Node:
    """Queues are made by tests only."""
    config = config_with(MqConfig(), {"auto_create": {"lastvalue": {"enable": False}}})
    queues = Queues(auto_create=False, idle_unload_s=IDLE_UNLOAD_S)
    return Node(Settings(queues=queues, mq=config))


def create(node: Node, name: str = "jobs", **fields: Any) -> None:
    settings: dict[str, Any] = {"is_lastvalue": False, "key_expression": "", **fields}
    node.broker.message_queues.create(MqSettings(name, "t/#", **settings))
    node.work()


def host_of(node: Node, name: str = "jobs") -> MessageQueueHost:
    service = node.broker.message_queues
    return service.awake(service.known[name])


def publish(node: Node, peer: Peer, *payloads: bytes, topic: str = "t/1") -> None:
    for number, payload in enumerate(payloads):
        peer.publish(topic, payload, 1, number + 1)
    node.work()
    answers = [one.reason_code for one in peer.take_all() if one.type == p.PUBACK]
    assert answers == [0] * len(payloads)


def deliveries(peer: Peer) -> list[p.Packet]:
    return [one for one in peer.take_all() if one.type == p.PUBLISH]


def answer(node: Node, peer: Peer, packet: p.Packet, reason: int | None = None) -> None:
    peer.transport.send(p.acknowledge(p.PUBACK, packet.packet_id, reason))
    node.work()


def connected(node: Node, client_id: str, **properties: int) -> Peer:
    peer = Peer(node, client_id, 5)
    peer.transport.send(
        p.connect(client_id, clean=False, properties={"session_expiry_interval": 60, **properties})
    )
    node.work()
    assert peer.take().reason_code == 0
    return peer


def record(seq: int) -> Record:
    found = Record(b"t/1", b"", b"", b"pub", b"", b"1", 1, 4, 0, 0)
    found.seq = seq
    return found


def test_a_queue_which_sleeps_can_be_deleted() -> None:
    node = a_node()
    create(node)
    publish(node, connected(node, "pub"), b"1")
    for _ in range(20):
        node.pass_time(1000)
    assert "jobs" not in node.broker.queues.hosts, "it does not sleep"
    node.broker.message_queues.delete("jobs")
    node.pass_time(2000)
    assert not node.broker.message_queues.names()
    assert not node.store.tables[api.CHUNKS]
    create(node)
    assert host_of(node).machine.depth() == 0


def test_a_dead_letter_has_left_its_message_queue() -> None:
    node = a_node()
    create(node, max_redeliveries=1)
    worker = connected(node, "worker")
    worker.subscribe("$queue/jobs", qos=1)
    publish(node, connected(node, "pub"), b"1")
    for _ in range(2):
        (packet,) = deliveries(worker)
        answer(node, worker, packet, REFUSED)
        node.pass_time(500)
    assert host_of(node).machine.depth() == 0
    assert not host_of(node).machine.groups[GROUP].lanes[0].dying
    assert node.broker.queues.get("dlq/jobs").machine.depth() == 1
    node.crash()
    assert host_of(node).machine.depth() == 0


def test_who_comes_back_while_its_queue_is_not_there_is_attached_when_it_is() -> None:
    node = a_node()
    create(node)
    worker = connected(node, "worker")
    worker.subscribe("$queue/jobs", qos=1)
    worker.hang_up()
    node.broker.message_queues.delete("jobs")
    node.work()
    worker = connected(node, "worker")
    create(node)
    publish(node, connected(node, "pub"), b"1")
    assert [one.payload for one in deliveries(worker)] == [b"1"]


def test_a_silent_client_keeps_what_it_has() -> None:
    node = a_node()
    create(node)
    worker = connected(node, "a-worker")
    worker.subscribe("$queue/jobs", qos=1)
    publish(node, connected(node, "pub"), b"1")
    other = connected(node, "other")
    other.subscribe("$queue/jobs", qos=1)
    for _ in range(120):
        node.pass_time(1000)
    assert not deliveries(other)
    (packet,) = deliveries(worker)
    answer(node, worker, packet)
    assert host_of(node).machine.depth() == 0


def test_a_value_which_was_overwritten_before_it_left_is_not_sent() -> None:
    node = a_node()
    create(node, is_lastvalue=True, key_expression="message.topic", local_max_inflight=3)
    slow = connected(node, "slow", receive_maximum=3)
    slow.subscribe("$queue/jobs", qos=1)
    # Ordinary messages have filled its window, so a value which it was given cannot leave.
    slow.subscribe("busy", qos=1)
    pub = connected(node, "pub")
    publish(node, pub, b"a", b"b", b"c", topic="busy")
    busy = deliveries(slow)
    assert len(busy) == 3
    publish(node, pub, b"old")
    assert host_of(node).machine.groups[GROUP].lanes[0].held
    quick = connected(node, "quick")
    quick.subscribe("$queue/jobs", qos=1)
    held = host_of(node).machine.groups[GROUP].consumers
    held["slow\0$queue/jobs"].prefetch = 1  # the next one is for the other
    publish(node, pub, b"new")
    assert [one.payload for one in deliveries(quick)] == [b"new"]
    for packet in busy:
        answer(node, slow, packet)
    assert not deliveries(slow)
    assert held["slow\0$queue/jobs"].held == 0
    publish(node, pub, b"other", topic="t/2")
    assert deliveries(slow) or deliveries(quick)


def test_what_was_lost_comes_at_once_after_a_restart_with_the_clock_set_back() -> None:
    node = a_node()
    create(node)
    worker = connected(node, "worker")
    worker.subscribe("$queue/jobs", qos=1)
    publish(node, connected(node, "pub"), b"1", b"2")
    answer(node, worker, deliveries(worker)[0], REFUSED)
    worker.hang_up()
    node.loop.now_ns -= 3_600_000_000_000
    node.crash()
    worker = connected(node, "worker")
    node.pass_time(500)
    assert sorted(one.payload for one in deliveries(worker)) == [b"1", b"2"]


def test_who_subscribes_again_keeps_what_it_has() -> None:
    node = a_node()
    create(node, local_max_inflight=2)
    worker = connected(node, "worker", receive_maximum=1)
    worker.subscribe("$queue/jobs", qos=1)
    publish(node, connected(node, "pub"), b"1", b"2")
    (first,) = deliveries(worker)
    worker.subscribe("$queue/jobs", qos=0)
    assert not deliveries(worker), "the first one again"
    answer(node, worker, first)
    (second,) = deliveries(worker)
    assert (second.payload, second.qos) == (b"2", 0)
    assert host_of(node).machine.depth() == 0


def test_messages_of_queues_and_of_sessions_make_room_for_each_other() -> None:
    node = a_node()
    create(node)
    worker = connected(node, "worker", receive_maximum=1)
    worker.subscribe("$queue/jobs", qos=1)
    worker.subscribe("plain", qos=1)
    pub = connected(node, "pub")
    publish(node, pub, b"plain", topic="plain")
    publish(node, pub, b"queued")
    (packet,) = deliveries(worker)
    publish(node, pub, b"plain again", topic="plain")
    answer(node, worker, packet)
    (other,) = deliveries(worker)
    answer(node, worker, other)
    (last,) = deliveries(worker)
    assert {packet.payload, other.payload, last.payload} == {b"plain", b"queued", b"plain again"}


def test_the_age_of_the_oldest_message_is_known_when_only_the_store_has_it() -> None:
    node = a_node()
    create(node)
    publish(node, connected(node, "pub"), b"1")
    node.pass_time(2000)
    node.crash()
    host_of(node)
    assert node.broker.message_queues.stats("jobs").oldest_age_ms >= 2000


def test_what_was_overwritten_in_hand_is_in_flight_and_does_not_hide_what_is_ready() -> None:
    node = a_node()
    create(node, is_lastvalue=True, key_expression="message.topic", local_max_inflight=1)
    worker = connected(node, "worker")
    worker.subscribe("$queue/jobs", qos=1)
    pub = connected(node, "pub")
    publish(node, pub, b"old")
    publish(node, pub, b"new")
    stats = node.broker.message_queues.stats("jobs")
    assert (stats.messages, stats.ready, stats.in_flight) == (1, 1, 1)


def test_values_which_lie_far_apart_are_forgotten_one_by_one() -> None:
    cache = RecordCache(1)
    tail = Tail(cache)
    tail.cached([record(1), record(1 << 50)])  # no loop over all numbers between ever ends
    assert not tail.records
    assert cache.bytes == 0


def test_what_expires_behind_an_older_message_is_garbage() -> None:
    node = a_node()
    create(node)
    pub = connected(node, "pub")
    publish(node, pub, b"stays")
    brief: p.Properties = {"message_expiry_interval": 3}
    pub.transport.send(p.publish("t/1", b"goes", qos=1, packet_id=1, properties=brief))
    node.work()
    node.pass_time(5000)
    node.broker.message_queues.collect_garbage()
    node.pass_time(2000)
    stats = node.broker.message_queues.stats("jobs")
    assert (stats.messages, stats.expired) == (1, 1)


def test_a_durable_queue_below_the_name_of_a_message_queue_is_meant_by_its_own_name() -> None:
    node = a_node()
    node.broker.queues.create("jobs/late", {})
    create(node)
    worker = connected(node, "worker")
    worker.subscribe("$queue/jobs/late", qos=1)
    pub = connected(node, "pub")
    publish(node, pub, b"durable", topic="$queue/jobs/late")
    publish(node, pub, b"message")
    assert [one.payload for one in deliveries(worker)] == [b"durable"]


def test_what_is_too_large_for_one_client_goes_to_another() -> None:
    node = a_node()
    create(node, dispatch_strategy="round_robin")
    small = connected(node, "a-small", maximum_packet_size=100)
    small.subscribe("$queue/jobs", qos=1)
    publish(node, connected(node, "pub"), b"x" * 1000)
    node.pass_time(500)
    assert not deliveries(small)
    large = connected(node, "large")
    large.subscribe("$queue/jobs", qos=1)
    node.pass_time(500)
    (packet,) = deliveries(large)
    answer(node, large, packet)
    assert host_of(node).machine.depth() == 0


def test_many_queues_share_the_memory_for_their_keys() -> None:
    store = MemoryStore()
    values = LatestValues(store, 1)
    for key in range(1_000):
        values.put(key, key + 1, 10)
    for queues in (1, 1_000):
        batch = Batch()
        values.write(batch, queues)
        store.commit(batch)
        assert len(values._known) == (1_000 if queues == 1 else 0)
    assert values.find(7) == (8, 10)


def test_which_queues_have_a_part_in_each_shard() -> None:
    node = a_node()
    create(node)
    node.broker.message_queues.create(MqSettings("/t/+", "t/+"))
    node.broker.queues.make("tasks")
    node.work()
    everywhere = ["jobs", "jobs/t/#", "dlq/jobs", "dlq/t/%2B", "dlq/sdv-fanout", "dlq/ecq/device-1"]
    for name in everywhere:
        assert node.broker.message_queues.is_everywhere(name), name
    for name in ["tasks", "dlq/tasks", "tasks/a", "other", "dlq/other", "responses/1"]:
        assert not node.broker.message_queues.is_everywhere(name), name
