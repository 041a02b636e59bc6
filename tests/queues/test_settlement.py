"""Settling a delivery: every answer of section 5, timeouts (D18), and who settles how (D15-D17)."""

from __future__ import annotations

import pytest

from tests.queues.client import (
    NO_MATCH,
    NOT_AUTHORIZED,
    SPECIFIC,
    SUCCESS,
    TOPIC_NAME_INVALID,
    QueueClient,
    key_of,
)
from tests.queues.conftest import Connect, MakeQueue

VERDICTS = ["ack", "nack", "reject"]


def comes_no_more(connect: Connect, queue: str, group: str) -> None:
    """A fresh consumer of the group finds nothing left."""
    successor = connect()
    successor.subscribe(queue, group=group)
    successor.expect_silence()


def holding(connect: Connect, queue: str, payload: str = "x") -> QueueClient:
    """A consumer in group `g`; a message is on its way to it."""
    client = connect()
    assert client.subscribe(queue, group="g") == 1
    client.publish_each(queue, payload)
    return client


@pytest.mark.rule("acceptance 5", "section 5")
def test_an_ack_deletes_the_message_for_the_group(connect: Connect, queue: str) -> None:
    client = holding(connect, queue)
    assert client.ack(client.receive()) == SUCCESS
    client.abort()
    comes_no_more(connect, queue, "g")


@pytest.mark.rule("acceptance 5", "section 5")
def test_a_nack_brings_the_message_back_at_once_with_the_next_count(
    connect: Connect, queue: str
) -> None:
    client = holding(connect, queue)
    delivery = client.receive()
    for count in (2, 3, 4):
        assert client.nack(delivery) == SUCCESS
        delivery = client.receive()
        assert (delivery.payload, delivery.count) == ("x", count)
    assert client.ack(delivery) == SUCCESS


@pytest.mark.rule("section 5")
def test_a_nack_may_ask_for_a_delay(connect: Connect, queue: str) -> None:
    client = holding(connect, queue)
    first = client.receive()
    assert client.nack(first, delay_ms="1200") == SUCCESS
    second = client.receive()
    assert second.count == 2
    assert second.received_at - first.received_at >= 1.2


@pytest.mark.rule("acceptance 5", "section 5")
def test_a_reject_moves_the_message_to_the_dead_letter_queue(connect: Connect, queue: str) -> None:
    client = holding(connect, queue)
    assert client.reject(client.receive()) == SUCCESS
    client.expect_silence(0.2)
    watcher = connect()
    watcher.subscribe(f"dlq/{queue}")
    assert watcher.receive().payload == "x"


@pytest.mark.rule("D18", "acceptance 5")
def test_a_message_nobody_settles_comes_again_after_timeout_and_backoff(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(
        performance={"delivery_timeout": "400ms"}, retry_policy={"initial_backoff": "400ms"}
    )
    client = holding(connect, queue)
    first, second = client.receive_each(2)
    assert (second.payload, second.count) == ("x", 2)
    assert second.message_id == first.message_id
    assert second.received_at - first.received_at >= 0.75


@pytest.mark.rule("D18")
@pytest.mark.parametrize("ending", ["abort", "disconnect"])
def test_when_the_consumer_is_gone_its_messages_return_without_delay(
    connect: Connect, make_queue: MakeQueue, ending: str
) -> None:
    queue = make_queue(partitions=1, retry_policy={"initial_backoff": "60s", "max_backoff": "60s"})
    client = holding(connect, queue)
    client.receive()
    getattr(client, ending)()
    successor = connect()
    successor.subscribe(queue, group="g")
    delivery = successor.receive()
    assert (delivery.payload, delivery.count) == ("x", 2)


@pytest.mark.rule("section 5")
@pytest.mark.parametrize("given_by", ["broker", "producer"])
def test_an_ack_again_is_answered_with_success(connect: Connect, queue: str, given_by: str) -> None:
    client = connect()
    client.subscribe(queue, group="g")
    client.publish(queue, "x", user={} if given_by == "broker" else {"message-id": "mine"})
    delivery = client.receive()
    assert [client.ack(delivery) for _ in range(3)] == [SUCCESS] * 3


@pytest.mark.rule("section 5", "section 7")
@pytest.mark.parametrize("verdict", ["nack", "reject"])
def test_a_settled_message_is_not_brought_back(connect: Connect, queue: str, verdict: str) -> None:
    client = holding(connect, queue)
    delivery = client.receive()
    assert client.ack(delivery) == SUCCESS
    client.settle(verdict, delivery)
    client.expect_silence()
    watcher = connect()
    watcher.subscribe(f"dlq/{queue}")
    watcher.expect_silence()


@pytest.mark.rule("section 5")
@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize(
    "message_id", ["nobody-knows-me", "{queue}:0:4711", "{queue}:99:1", ":", ""]
)
def test_an_unknown_id_is_answered_0x10(
    connect: Connect, make_queue: MakeQueue, verdict: str, message_id: str
) -> None:
    client = connect()
    queue = make_queue(partitions=1)
    client.subscribe(queue, group="g")
    client.publish_each(queue, "x")
    name = client.receive().properties["queue"]
    unknown = message_id.replace("{queue}", name)
    code = client.settle_id(queue, verdict, unknown)
    assert code == NO_MATCH if unknown else code in (NO_MATCH, SPECIFIC)
    client.expect_silence(0.2)


@pytest.mark.rule("section 5")
@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_message_another_client_holds_is_answered_0x87(
    connect: Connect, make_queue: MakeQueue, verdict: str
) -> None:
    queue = make_queue(partitions=2)
    holder, other, stranger = connect("w-a"), connect("w-b"), connect("w-c")
    holder.subscribe(queue)
    other.subscribe(queue)
    holder.publish_each(queue, "x", key=key_of(0, 2))
    delivery = holder.receive()
    assert other.settle(verdict, delivery) == NOT_AUTHORIZED
    assert stranger.settle(verdict, delivery, group_id="w") == NOT_AUTHORIZED
    holder.expect_silence(0.2)
    other.expect_silence(0.2)
    assert holder.ack(delivery) == SUCCESS


@pytest.mark.rule("section 5")
@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_message_which_waits_for_its_retry_is_held_by_nobody(
    connect: Connect, queue: str, verdict: str
) -> None:
    client = holding(connect, queue)
    delivery = client.receive()
    assert client.nack(delivery, delay_ms="1500") == SUCCESS
    assert client.settle(verdict, delivery) == NOT_AUTHORIZED
    assert client.receive().count == 2


@pytest.mark.rule("section 5", "D18")
def test_who_lost_a_message_by_timeout_cannot_settle_it(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(
        partitions=2,
        performance={"delivery_timeout": "500ms"},
        retry_policy={"initial_backoff": "100ms"},
    )
    slow, quick = connect("w-a"), connect("w-b")
    slow.subscribe(queue)
    slow.publish_each(queue, "x", key=key_of(1, 2))
    late = slow.receive()
    quick.subscribe(queue)
    delivery = quick.receive()
    assert delivery.count == 2
    assert slow.ack(late) == NOT_AUTHORIZED
    assert quick.ack(delivery) == SUCCESS


@pytest.mark.rule("section 5")
@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_settlement_without_message_id_is_answered_0x83(
    connect: Connect, queue: str, verdict: str
) -> None:
    client = holding(connect, queue)
    delivery = client.receive()
    assert client.settle_id(queue, verdict, None) == SPECIFIC
    client.expect_silence(0.2)
    assert client.ack(delivery) == SUCCESS


@pytest.mark.rule("section 5")
def test_each_group_settles_for_itself(connect: Connect, make_queue: MakeQueue) -> None:
    queue = make_queue(partitions=1)
    one, other = connect(), connect()
    one.subscribe(queue, group="one")
    other.subscribe(queue, group="other")
    one.publish_each(queue, "x")
    mine, theirs = one.receive(), other.receive()
    assert one.ack(mine, group_id="one") == SUCCESS
    assert one.ack(theirs, group_id="other") == NOT_AUTHORIZED
    assert other.nack(theirs) == SUCCESS
    assert other.receive().count == 2
    one.expect_silence()


@pytest.mark.rule("section 5")
def test_the_payload_of_a_settlement_is_ignored(connect: Connect, queue: str) -> None:
    client = holding(connect, queue)
    user = {"message-id": client.receive().message_id}
    assert client.publish(f"{queue}/$ack", b"\x00 anything", user=user) == SUCCESS
    client.abort()
    comes_no_more(connect, queue, "g")


@pytest.mark.rule("section 5")
@pytest.mark.parametrize("qos", [0, 2])
def test_a_settlement_may_be_published_with_any_qos(connect: Connect, queue: str, qos: int) -> None:
    client = holding(connect, queue)
    delivery = client.receive()
    assert client.settle_id(queue, "ack", delivery.message_id, qos=qos) == SUCCESS
    client.disconnect()
    comes_no_more(connect, queue, "g")


@pytest.mark.rule("section 5")
def test_messages_may_be_settled_in_any_order(connect: Connect, make_queue: MakeQueue) -> None:
    client, queue = connect(), make_queue(partitions=1)
    client.subscribe(queue, group="g")
    client.publish_each(queue, "1", "2", "3", "4", "5")
    held = client.receive_each(5)
    for number in (3, 0, 4, 2):
        assert client.ack(held[number]) == SUCCESS
    client.abort()
    successor = connect()
    successor.subscribe(queue, group="g")
    delivery = successor.receive()
    assert (delivery.payload, delivery.count) == ("2", 2)
    successor.expect_silence()


@pytest.mark.rule("D1", "acceptance 17")
@pytest.mark.parametrize("suffix", ["$ack/42", "$nack/42", "$reject/42", "$ack/$ack", "$ack/"])
def test_a_settle_suffix_which_is_not_the_last_level_is_refused_0x90(
    connect: Connect, queue: str, suffix: str
) -> None:
    client = holding(connect, queue)
    delivery = client.receive()
    user = {"message-id": delivery.message_id}
    assert client.publish(f"{queue}/{suffix}", "x", user=user) == TOPIC_NAME_INVALID
    client.expect_silence(0.2)
    assert client.ack(delivery) == SUCCESS
    client.abort()
    comes_no_more(connect, queue, "g")
