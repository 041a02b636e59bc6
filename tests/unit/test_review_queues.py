"""Queues when something goes wrong between two steps: found by review, each failed before."""

from __future__ import annotations

from typing import Any

import pytest

from queuelake.broker.deliveries import Delivery
from queuelake.broker.packet_ids import DELIVERY_ID_MIN, DELIVERY_IDS
from queuelake.broker.queue_operations import QueueOperations
from queuelake.broker.redrive import redrive
from queuelake.engine.settled import Settled
from queuelake.queue_settings import (
    BadQueueSettingsError,
    Performance,
    QueueSettings,
    RetryPolicy,
)
from queuelake.settings import Mqtt, Queues, Settings
from queuelake.storage import api, queue_space, queue_tables
from tests.harness import packets as p
from tests.simulation.node import RETRY_MS, Node, Peer


def settings(**defaults: Any) -> Settings:
    return Settings(queues=Queues(defaults=QueueSettings(**defaults)))


def send(peer: Peer, topic: str, payload: bytes = b"", packet_id: int = 1, **user: str) -> None:
    """A publish at QoS 1; nothing is done with it until the node works."""
    pairs = [(key.replace("_", "-"), value) for key, value in user.items()]
    properties: p.Properties = {"user_property": pairs} if pairs else None
    peer.transport.send(
        p.publish(topic, payload, qos=1, packet_id=packet_id, properties=properties)
    )


def join(node: Node, peer: Peer, topic: str, qos: int = 1, **user: str) -> int:
    """Subscribe; returns the reason code."""
    pairs = [(key.replace("_", "-"), value) for key, value in user.items()]
    properties: p.Properties = {"user_property": pairs} if pairs else None
    peer.transport.send(p.subscribe(999, [(topic, qos)], properties=properties))
    node.work()
    answer = peer.take()
    assert answer.type == p.SUBACK
    return answer.reason_codes[0]


def codes(peer: Peer) -> list[int]:
    return [one.reason_code for one in peer.take_all() if one.type == p.PUBACK]


def message_id(packet: p.Packet) -> str:
    return dict(packet.user_properties)["message-id"]


def depth(node: Node, name: str) -> int:
    host = node.broker.queues.find(name)
    assert host is not None
    return host.machine.depth()


def test_a_queue_which_is_part_of_two_failed_groups_works_again() -> None:
    node = Node(settings(partitions=1))
    consumer, publisher = node.client("consumer"), node.client("publisher")
    join(node, consumer, "$queue/tasks")
    send(publisher, "$queue/tasks", b"1")
    node.work()
    publisher.take_all()
    node.store.fail_commits = 1
    send(publisher, "$queue/tasks", b"2")
    node.loop.run_until_idle()
    assert node.committer.is_busy()
    send(publisher, "$queue/tasks", b"3")
    node.work()
    node.pass_time(RETRY_MS)
    publisher.take_all()
    send(publisher, "$queue/tasks", b"4")
    node.work()
    assert codes(publisher) == [0]
    assert consumer.payloads() == [b"1", b"1", b"4"]


def test_a_dead_letter_which_a_seal_makes_is_in_that_commit() -> None:
    """Its queue wrote its part of the group before the message was found to have expired."""
    node = Node(settings(partitions=1, expire_to_dlq=True, performance=Performance(prefetch=3)))
    consumer, publisher = node.client("consumer"), node.client("publisher")
    join(node, consumer, "$queue/tasks")
    for number in range(3):
        send(publisher, "$queue/tasks", b"%d" % number)
    short: p.Properties = {"message_expiry_interval": 1}
    publisher.transport.send(
        p.publish("$queue/tasks", b"short", qos=1, packet_id=9, properties=short)
    )
    send(publisher, "$queue/dlq/tasks", b"made")
    node.work()
    node.pass_time(990)
    held = [one for one in consumer.take_all() if one.type == p.PUBLISH]
    node.loop.now_ns += 20_000_000  # over, and nobody has looked yet
    send(publisher, "$queue/dlq/tasks", b"first in the group")
    send(consumer, "$queue/tasks/$ack", message_id=message_id(held[0]))
    node.work()
    node.crash()
    assert depth(node, "tasks") == 2
    assert depth(node, "dlq/tasks") == 3


def deliveries(peer: Peer) -> list[p.Packet]:
    return [one for one in peer.take_all() if one.type == p.PUBLISH]


def test_time_goes_on_when_a_stored_queue_contradicts_the_configuration() -> None:
    node = Node()
    node.broker.queues.configure(
        "odd", {"type": "stream", "retry_policy": {"initial_backoff": "2m"}}
    )
    node.work()
    node._settings = settings(retry_policy=RetryPolicy(max_backoff="1m"))
    node.crash()
    consumer, publisher = node.client("consumer"), node.client("publisher")
    join(node, consumer, "$queue/tasks")
    node.pass_time(3000)
    send(publisher, "$queue/tasks", b"later", delay_ms="500")
    send(publisher, "$queue/odd")
    node.work()
    assert codes(publisher) == [0, 0]
    host = node.broker.queues.get("odd")
    assert host.settings.type == "stream"
    assert host.settings.retry_policy.initial_backoff == "2m"
    node.pass_time(3000)
    assert consumer.payloads() == [b"later"]


def test_a_silent_consumer_which_hangs_up_is_forgotten() -> None:
    node = Node(settings(partitions=1))
    consumer, publisher = node.client("consumer"), node.client("publisher")
    join(node, consumer, "$queue/tasks")
    send(publisher, "$queue/tasks", b"1")
    node.work()
    node.pass_time(35_000)
    consumer.hang_up()
    assert not node.broker.queues.get("tasks").subscribers


def test_a_dead_letter_finds_its_queue_when_there_may_be_no_more_queues() -> None:
    node = Node(Settings(queues=Queues(queues_max=1)))
    consumer, publisher = node.client("consumer"), node.client("publisher")
    join(node, consumer, "$queue/tasks")
    send(publisher, "$queue/tasks", b"1")
    node.work()
    (delivery,) = deliveries(consumer)
    send(consumer, "$queue/tasks/$reject", message_id=message_id(delivery))
    node.work()
    assert codes(consumer) == [0]
    assert depth(node, "tasks") == 0
    assert depth(node, "dlq/tasks") == 1


def test_replies_are_limited_as_queues_are() -> None:
    node = Node(Settings(queues=Queues(queues_max=2, response_ttl_s=60)))
    publisher = node.client("publisher")
    for number in range(3):
        send(publisher, f"$queue/responses/{number}")
    node.work()
    assert codes(publisher) == [0, 0, 0x97]
    node.pass_time(62_000)
    send(publisher, "$queue/responses/3")
    node.work()
    assert codes(publisher) == [0]


def test_no_two_delayed_messages_have_one_number() -> None:
    node = Node()
    queues = node.broker.queues
    first = queues.new_number()
    queues._last_number += (1 << 20) - 1
    assert queues.new_number() != first


def test_messages_are_delayed_after_thousands_of_starts() -> None:
    node = Node()
    node.store.tables[api.META][b"epoch"] = b"5000"
    node.crash()
    publisher = node.client("publisher")
    send(publisher, "$queue/tasks", b"later", delay_ms="500")
    node.work()
    assert codes(publisher) == [0]


def test_a_purge_deletes_delayed_messages_which_are_being_stored() -> None:
    node = Node()
    publisher = node.client("publisher")
    send(publisher, "$queue/tasks", b"later", delay_ms="5000")
    node.loop.run_until_idle()
    assert node.committer.is_busy()
    assert node.broker.queues.get("tasks").purge(node.broker.clock.now_ms()) == 1
    node.work()
    assert not node.store.tables[api.DELAYED]


def test_a_message_which_was_delayed_for_hours_may_be_retried() -> None:
    node = Node(settings(partitions=1))
    consumer, publisher = node.client("consumer"), node.client("publisher")
    join(node, consumer, "$queue/tasks")
    send(publisher, "$queue/tasks", b"1", delay_ms=str(4 * 3_600_000))
    node.work()
    node.pass_time(4 * 3_600_000 + 1000)
    (delivery,) = deliveries(consumer)
    send(consumer, "$queue/tasks/$nack", message_id=message_id(delivery))
    node.work()
    assert consumer.payloads() == [b"1"]


def test_a_new_queue_takes_its_messages_from_the_one_above() -> None:
    node = Node()
    publisher = node.client("publisher")
    node.broker.queues.configure("tasks", {"sublevels": True})
    send(publisher, "$queue/tasks/image")
    node.work()
    node.broker.queues.configure("tasks/image", {})
    send(publisher, "$queue/tasks/image")
    node.work()
    assert depth(node, "tasks/image") == 1


def test_a_chunk_which_cannot_be_read_stops_its_own_queue_and_only_while_it_cannot() -> None:
    node = Node(settings(partitions=1))
    publisher = node.client("publisher")
    send(publisher, "$queue/broken", b"1")
    node.work()
    node.crash()
    chunks = node.store.tables[api.CHUNKS]
    (key,) = chunks
    whole = chunks[key]
    chunks[key] = whole[:-3]
    consumer, publisher = node.client("consumer"), node.client("publisher")
    consumer.transport.send(p.subscribe(1, [("$queue/broken", 1)]))
    node.work()
    send(publisher, "$queue/tasks", b"2")
    node.work()
    assert codes(publisher) == [0]
    assert depth(node, "tasks") == 1
    chunks[key] = whole
    node.pass_time(2000)
    assert consumer.payloads() == [b"1"]


def test_replies_which_are_settled_leave_memory() -> None:
    node = Node()
    requester, worker = node.client("requester"), node.client("worker")
    join(node, requester, "$queue/responses/1", ack_mode="puback")
    for number in range(50):
        send(worker, "$queue/responses/1", b"reply", message_id=str(number))
        node.work()
        (delivery,) = deliveries(requester)
        requester.acknowledge(p.PUBACK, delivery.packet_id)
    node.pass_time(1100)
    host = node.broker.queues.get("responses/1")
    (tail,) = host.tails
    assert not tail.records
    assert not tail.pending
    assert not host.machine.ids.added


def test_a_refused_subscription_leaves_the_former_one_in_the_store() -> None:
    node = Node()
    consumer = node.client("consumer")
    assert join(node, consumer, "$queue/tasks") == 1
    assert join(node, consumer, "$queue/tasks", qos=0) == 0x80
    node.crash()
    consumer, publisher = node.client("consumer"), node.client("publisher")
    assert consumer.session_present
    send(publisher, "$queue/tasks", b"1")
    node.work()
    assert consumer.payloads() == [b"1"]


def test_dead_letters_whose_story_is_made_up_are_shown_and_redriven() -> None:
    node = Node(settings(partitions=1))
    publisher = node.client("publisher")
    send(publisher, "$queue/tasks", b"1")
    send(
        publisher,
        "$queue/dlq/tasks",
        b"2",
        dlq_original_queue="$queue/tasks",
        dlq_delivery_count="many",
        dlq_original_partition="first",
    )
    node.work()
    page = QueueOperations(node.broker.queues).dead_letters({"name": "tasks"})
    assert [one.dlq_delivery_count for one in page.messages] == [0]
    host = node.broker.queues.get("tasks")
    assert redrive(host, page.messages[0].id, node.broker.clock.now_ms()).partition == 0


def test_a_dead_letter_which_is_too_large_for_its_consumer_is_not_offered_without_end() -> None:
    node = Node()
    publisher = node.client("publisher")
    send(publisher, "$queue/dlq/tasks", bytes(1000))
    node.work()
    consumer = Peer(node, "consumer", 5)
    consumer.transport.send(p.connect("consumer", properties={"maximum_packet_size": 200}))
    node.work()
    consumer.transport.send(p.subscribe(1, [("$queue/dlq/tasks", 1)]))
    node.work()
    node.pass_time(1000)
    assert node.broker.queues.get("dlq/tasks").machine.counters.delivered == 1
    node.pass_time(6000)
    assert node.broker.queues.get("dlq/tasks").machine.counters.delivered == 2


def test_a_group_begins_where_it_was_told_though_the_first_commit_failed() -> None:
    node = Node(settings(partitions=1))
    consumer, publisher = node.client("consumer"), node.client("publisher")
    send(publisher, "$queue/tasks", b"old")
    node.work()
    latest: p.Properties = {"user_property": [("group-start", "latest")]}
    consumer.transport.send(p.subscribe(1, [("$queue/tasks", 1)], properties=latest))
    node.fail_commit()
    node.pass_time(RETRY_MS)
    send(publisher, "$queue/tasks", b"new")
    node.work()
    assert consumer.payloads() == [b"new"]


def test_a_client_with_all_packet_ids_out_is_sent_nothing_more() -> None:
    node = Node(Settings(mqtt=Mqtt(inflight_max=65535)))
    consumer, publisher = node.client("consumer"), node.client("publisher")
    join(node, consumer, "$queue/tasks")
    send(publisher, "$queue/tasks", b"1")
    node.work()
    out = node.session("consumer").deliveries
    assert out is not None
    first = out.inflight.get(DELIVERY_ID_MIN)
    assert first is not None
    for number in range(1, DELIVERY_IDS):
        other = Delivery(first.consumer, first.record, first.partition, first.attempt, first.qos)
        out.inflight.put(DELIVERY_ID_MIN + number, other)
    send(publisher, "$queue/tasks", b"2")
    node.work()  # it looked for a free one for ever
    assert consumer.payloads() == [b"1"]


def test_a_purge_of_more_chunks_than_one_commit_deletes_frees_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (queue_space, queue_tables):
        monkeypatch.setattr(module, "TRIM_CHUNKS_MAX", 3)
    node = Node(settings(partitions=1))
    consumer, publisher = node.client("consumer"), node.client("publisher")
    join(node, consumer, "$queue/tasks")
    for _ in range(30):
        send(publisher, "$queue/tasks")
        node.work()
    consumer.hang_up()
    assert node.broker.queues.get("tasks").purge(node.broker.clock.now_ms()) == 30
    for _ in range(12):
        node.pass_time(1000)
    assert not node.store.tables[api.CHUNKS]


def test_replies_and_dead_letters_do_not_meet() -> None:
    node = Node()
    requester, worker = node.client("requester"), node.client("worker")
    join(node, requester, "$queue/responses/1")
    send(worker, "$queue/responses/1")
    node.work()
    (delivery,) = deliveries(requester)
    send(requester, "$queue/responses/1/$reject", message_id=message_id(delivery))
    node.work()
    assert node.broker.queues.names() == ["responses/1"]
    with pytest.raises(BadQueueSettingsError, match="not one of replies"):
        node.broker.queues.configure("tasks", {"dlq_config": {"topic": "$queue/responses/1"}})


def test_what_a_client_holds_returns_when_it_leaves_though_it_had_unsubscribed() -> None:
    node = Node(settings(partitions=1))
    publisher = node.client("publisher")
    consumers = [node.client("worker-1"), node.client("worker-2")]
    join(node, consumers[0], "$queue/tasks")
    send(publisher, "$queue/tasks", b"1")
    node.work()
    consumers[0].transport.send(p.unsubscribe(1, ["$queue/tasks"]))
    join(node, consumers[1], "$queue/tasks")
    assert consumers[1].payloads() == []
    consumers[0].hang_up()
    assert consumers[1].payloads() == [b"1"]


def test_a_stream_stays_one_under_other_defaults() -> None:
    node = Node(settings(type="stream"))
    publisher = node.client("publisher")
    send(publisher, "$queue/history")
    node.work()
    node._settings = settings()
    node.crash()
    assert node.broker.queues.get("history").settings.type == "stream"


def test_a_queue_has_a_limited_number_of_groups() -> None:
    node = Node(Settings(queues=Queues(groups_per_queue_max=2)))
    clients = [node.client(name) for name in ("a-1", "b-1", "c-1", "a-2")]
    assert [join(node, one, "$queue/tasks") for one in clients] == [1, 1, 0x97, 1]


def test_message_ids_are_forgotten_though_nobody_publishes() -> None:
    node = Node(settings(dedupe_window="2s"))
    consumer, publisher = node.client("consumer"), node.client("publisher")
    join(node, consumer, "$queue/tasks")
    for number in range(10):
        send(publisher, "$queue/tasks", message_id=str(number))
    node.work()
    ids = node.broker.queues.get("tasks").machine.ids
    assert len(ids.until) == 10
    node.pass_time(5000)
    assert not ids.until


@pytest.mark.parametrize(
    ("before", "after"), [(5, 6), (5, 7), (5, 3000), (1023, 1025), (1024, 2048)]
)
def test_a_range_is_settled_as_its_members_are(before: int, after: int) -> None:
    at_once, one_by_one = Settled(4), Settled(4)
    for settled in (at_once, one_by_one):
        settled.add(1500)
    at_once.add_between(before, after)
    for seq in one_by_one.unsettled(before + 1, after - 1):
        one_by_one.add(seq)
    assert at_once.blocks == one_by_one.blocks
    assert at_once.count_above == one_by_one.count_above
    assert at_once.upto == one_by_one.upto
    assert at_once.dirty >= one_by_one.dirty


def test_a_refused_subscription_makes_no_queue() -> None:
    node = Node()
    consumer = node.client("consumer")
    assert join(node, consumer, "$queue/tasks", prefetch="many") == 0x83
    assert join(node, consumer, "$queue/tasks", ack_mode="never") == 0x83
    assert node.broker.queues.names() == []
