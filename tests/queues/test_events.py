"""Events of queues: each step in the life of a message, with clients of a simulated node."""

from __future__ import annotations

from queuelake import names
from queuelake.ecq_settings import EcqConfig
from queuelake.engine.commands import Extend, Purge
from queuelake.engine.events import ALL, DROPPED, ENQUEUED
from queuelake.engine.kinds.durable import DurableQueue
from queuelake.engine.machine import Meta
from queuelake.engine.policy.settings import Policy
from queuelake.engine.state import PURGED
from queuelake.storage import api
from queuelake.storage import pipeline_tables as t
from queuelake.storage.check import problems
from queuelake.tables import ECQ_QUEUE_ID, SDV_QUEUE_ID
from tests.ecq.node import DAY_MS, MailboxNode
from tests.harness import packets as p
from tests.harness.packets import Packet
from tests.queues.node import QueueNode
from tests.simulation.node import RETRY_MS, Node, Peer
from tests.unit.fanout_node import FanoutNode
from tests.unit.test_message_queues import a_node, answer, create, deliveries, host_of, publish
from tests.unit.test_message_queues import connected as connected_to

ONE = {"partitions": 1, "ordering": "none"}


def events(node: Node, queue_id: int) -> list[t.Event]:
    with node.store.view() as view:
        assert problems(view, 100_000) == []
        after, upto = t.record_range(view, api.EVENTS, queue_id)
        values = list(t.read_events(view, queue_id, after, upto))
    found = [one for value in values for one in t.decode_events(value)]
    numbers = [one.seqno for one in found]
    assert numbers == sorted(set(numbers)), "each has a sequence of its own"
    return found


def of_queue(node: QueueNode, queue: str) -> list[t.Event]:
    return events(node, node.host(queue).id)


def steps(found: list[t.Event]) -> list[str]:
    return [one.step for one in found]


def take(peer: Peer) -> Packet:
    """The one delivery which is here."""
    (packet,) = [one for one in peer.take_all() if one.type == p.PUBLISH]
    return packet


def tell(
    node: QueueNode, peer: Peer, queue: str, outcome: str, packet: Packet, **user: str
) -> None:
    """Settle a delivery by a publish to the queue."""
    pairs = {"message-id": dict(packet.user_properties)["message-id"], "group-id": "g"} | user
    peer.transport.send(
        p.publish(
            f"$queue/{queue}/${outcome}",
            b"",
            qos=1,
            packet_id=77,
            properties=[("user_property", pair) for pair in pairs.items()],
        )
    )
    node.work()


def worker(node: QueueNode, queue: str) -> Peer:
    return node.consumer(queue, "g", client_id="worker", ack_mode="publish")


def test_all_steps_of_a_message_which_is_acknowledged() -> None:
    node = QueueNode()
    queue = node.make("q", **ONE, events="all")
    peer = node.consumer(queue, "g", client_id="worker")
    node.publish(queue, "x")
    node.settle_all(peer)
    found = of_queue(node, queue)
    assert steps(found) == ["enqueued", "delivered", "acked"]
    assert [one.seqno for one in found] == [1, 2, 3]
    assert {(one.partition, one.message_seqno) for one in found} == {(0, 1)}
    assert [(one.group, one.consumer, one.attempt) for one in found[1:]] == [("g", "worker", 1)] * 2
    assert all(one.ts_ms >= 1_700_000_000_000 for one in found)


def test_a_message_which_fares_well_makes_no_event_by_default() -> None:
    node = QueueNode()
    queue = node.make("q", **ONE)
    node.publish(queue, "x")
    assert node.drain(queue) == ["x"]
    assert of_queue(node, queue) == []


def test_events_can_be_off() -> None:
    node = QueueNode()
    queue = node.make("q", **ONE, events="off")
    peer = worker(node, queue)
    node.publish(queue, "x")
    tell(node, peer, queue, "reject", take(peer))
    assert of_queue(node, queue) == []
    assert node.host(queue).machine.counters.dead == {"rejected": 1}


def test_nacked_timed_out_and_given_up() -> None:
    node = QueueNode()
    queue = node.make(
        "q",
        **ONE,
        retry_policy={"max_retries": 2, "initial_backoff": "1s"},
        performance={"delivery_timeout": "5s"},
    )
    peer = worker(node, queue)
    node.publish(queue, "x")
    tell(node, peer, queue, "nack", take(peer))
    node.after(3)
    node.after(30)
    found = of_queue(node, queue)
    assert steps(found) == ["nacked", "timed_out", "timed_out", "dead_lettered"]
    assert [one.attempt for one in found] == [1, 2, 3, 3]
    assert found[-1].reason == "max_retries"
    assert {one.consumer for one in found} == {"worker"}


def test_rejected_with_the_words_of_the_consumer() -> None:
    node = QueueNode()
    queue = node.make("q", **ONE)
    peer = worker(node, queue)
    node.publish(queue, "x")
    tell(node, peer, queue, "reject", take(peer), reason="no such customer")
    found = of_queue(node, queue)
    assert [(one.step, one.reason) for one in found] == [
        ("rejected", "no such customer"),
        ("dead_lettered", "rejected"),
    ]


def test_expired_with_and_without_a_copy() -> None:
    node = QueueNode()
    node.make("plain", **ONE)
    node.make("copied", **ONE, expire_to_dlq=True)
    for queue in ("plain", "copied"):
        node.publish(queue, "x", expiry_s=2)
    node.after(5)
    assert steps(of_queue(node, "plain")) == ["expired"]
    found = of_queue(node, "copied")
    assert [(one.step, one.reason) for one in found] == [
        ("expired", ""),
        ("dead_lettered", "expired"),
    ]


def test_dropped_by_the_limit_and_by_a_purge() -> None:
    node = QueueNode()
    queue = node.make("q", **ONE, overflow="drop_head", limits={"max_queue_depth": 2})
    for payload in "abc":
        node.publish(queue, payload)
    node.host(queue).purge(node.broker.clock.now_ms())
    node.work()
    found = of_queue(node, queue)
    assert [(one.step, one.message_seqno, one.reason) for one in found] == [
        ("dropped", 1, "limit"),
        ("dropped", 2, "purged"),
        ("dropped", 3, "purged"),
    ]


def test_a_purge_of_very_many_tells_of_them_in_ranges() -> None:
    node = QueueNode()
    queue = node.make("q", **ONE)
    peer = worker(node, queue)
    node.publish(queue, "settled")
    tell(node, peer, queue, "ack", take(peer))
    node.publish(queue, "in hand")
    take(peer)
    host = node.host(queue)
    now_ms = node.broker.clock.now_ms()
    machine = host.machine
    machine.apply(host.meta(now_ms), Extend([3000], 1, 3000))
    (lane,) = machine.groups["g"].lanes
    lane.settled.add(1500)
    machine.apply(host.meta(now_ms), Purge())
    assert machine.events.steps == [], "one by one they would take seconds"
    ranges = [(one.step, one.first, one.last, one.reason) for one in machine.events.ranges]
    assert ranges == [(DROPPED, 3, 1499, PURGED), (DROPPED, 1501, 3002, PURGED)]


def test_an_event_is_gone_with_the_commit_it_belongs_to() -> None:
    node = QueueNode()
    queue = node.make("q", **ONE)
    peer = worker(node, queue)
    node.publish(queue, "x")
    packet = take(peer)
    node.store.fail_commits = 1
    tell(node, peer, queue, "reject", packet)
    node.pass_time(RETRY_MS)
    assert of_queue(node, queue) == []
    again = take(peer)
    tell(node, peer, queue, "reject", again)
    assert steps(of_queue(node, queue)) == ["rejected", "dead_lettered"]


def test_sequences_go_on_when_the_queue_slept_and_after_a_crash() -> None:
    node = QueueNode(idle_unload_s=5.0)
    queue = node.make("q", **ONE)
    for count in range(1, 4):
        peer = worker(node, queue)
        node.publish(queue, "x")
        tell(node, peer, queue, "reject", take(peer))
        peer.leave()
        assert [one.seqno for one in of_queue(node, queue)] == list(range(1, 2 * count + 1))
        if count == 1:
            node.after(20)
            assert node.awake(queue) is None
        else:
            node.crash()


def test_a_setting_which_changes_counts_from_then_on() -> None:
    node = QueueNode()
    queue = node.make("q", **ONE)
    node.publish(queue, "x")
    node.make(queue, events="all")
    node.publish(queue, "y")
    assert [(one.step, one.message_seqno) for one in of_queue(node, queue)] == [("enqueued", 2)]


def test_what_a_deleted_queue_did_is_kept_and_its_name() -> None:
    node = QueueNode()
    queue = node.make("q", **ONE, events="all")
    node.publish(queue, "x")
    number = node.host(queue).id
    node.broker.queues.delete(queue)
    node.work()
    node.after(5)
    assert steps(events(node, number)) == ["enqueued"]
    with node.store.view() as view:
        record = t.read_deleted(view, number)
    assert record is not None
    assert record.name == "q"


def test_messages_which_came_as_a_range_are_told_of_one_by_one() -> None:
    policy = Policy()
    policy.events = ALL
    policy.partitions = 2
    machine = DurableQueue(policy)
    for index in (1, 2):
        machine.apply(Meta(index, 1000), Extend([2, 1], 1, 3))
    found = list(zip(machine.events.partitions, machine.events.seqs, strict=True))
    assert found == [(0, 1), (0, 2), (1, 1), (0, 3), (0, 4), (1, 2)]
    assert set(machine.events.steps) == {ENQUEUED}


def test_replies_make_no_events() -> None:
    node = QueueNode()
    node.broker.queues.ensure(f"{names.RESPONSES}1")
    host = node.broker.queues.get(f"{names.RESPONSES}1")
    assert host.ephemeral
    assert host.machine.policy.events == 0


def test_message_queues_tell_of_failures() -> None:
    node = a_node()
    create(node, count_max=2)
    writer = node.client("writer")
    publish(node, writer, b"a", b"b", b"c")
    reader = connected_to(node, "reader")
    reader.subscribe("$queue/jobs", qos=1)
    first = deliveries(reader)[0]
    answer(node, reader, first, 0x80)
    found = events(node, host_of(node).id)
    assert [(one.step, one.message_seqno, one.reason) for one in found] == [
        ("dropped", 1, "limit"),
        ("rejected", 2, ""),
    ]


def test_mailboxes_tell_what_was_refused_and_what_expired() -> None:
    node = MailboxNode(
        ecq=EcqConfig(reject_policy="dlq", data_retention="1d", gc_interval="1h"),
    )
    node.write("car", "a", "v")
    node.write("bus", "b", "w")
    peer = node.listener("car")
    peer.transport.send(p.acknowledge(p.PUBACK, take(peer).packet_id, 0x80))
    node.work()
    found = events(node, ECQ_QUEUE_ID)
    assert [(one.step, one.consumer, one.message_seqno, one.reason) for one in found] == [
        ("rejected", "car", 1, "0x80"),
        ("dead_lettered", "car", 1, "rejected"),
    ]
    node.leap(2 * DAY_MS)
    expired = [one for one in events(node, ECQ_QUEUE_ID) if one.step == "expired"]
    assert sorted(one.consumer for one in expired) == ["bus", "car"]


def test_a_refusal_of_an_owner_is_told_of_even_when_its_commit_failed() -> None:
    node = MailboxNode()
    node.write("car", "a", "v")
    peer = node.listener("car")
    node.store.fail_commits = 1
    peer.transport.send(p.acknowledge(p.PUBACK, take(peer).packet_id, 0x80))
    node.work()
    node.pass_time(RETRY_MS)
    assert [one.step for one in events(node, ECQ_QUEUE_ID)] == ["rejected"]


def test_fan_out_tells_what_did_not_reach_its_vehicle() -> None:
    node = FanoutNode(on_reject="dlq")
    node.data("d", b"payload")
    node.trigger(["v1", "v2"], "r1", "d")
    peer = node.vehicle("v1")
    node.acknowledge(peer, node.take(peer)[0], 0x83)
    list(node.fanout.cancel("r1", ["v2"]))
    node.work()
    found = events(node, SDV_QUEUE_ID)
    assert sorted((one.step, one.consumer, one.group, one.reason) for one in found) == [
        ("dead_lettered", "v1", "r1", "rejected"),
        ("dropped", "v2", "r1", "cancelled"),
        ("rejected", "v1", "r1", ""),
    ]
