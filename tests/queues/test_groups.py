"""Consumer groups: who belongs to one, what it sees, and how long it is known (section 1, D10)."""

from __future__ import annotations

import pytest

from tests.queues.client import QUOTA_EXCEEDED, SUCCESS, wait_until
from tests.queues.conftest import Connect, MakeQueue


@pytest.mark.rule("D10")
@pytest.mark.parametrize(
    ("client_id", "group", "expected"),
    [
        ("worker-1", "image-workers-v1", "image-workers-v1"),
        ("worker-1", None, "worker"),
        ("worker-1-2-3", None, "worker"),
        ("worker", None, "worker"),
    ],
)
def test_the_group_is_the_property_or_the_client_id_before_the_first_hyphen(
    connect: Connect, queue: str, client_id: str, group: str | None, expected: str
) -> None:
    client = connect(client_id)
    client.subscribe(queue, group=group)
    client.publish_each(queue, "x")
    assert client.receive().group == expected


@pytest.mark.rule("acceptance 2", "section 1")
def test_each_of_two_groups_sees_every_message(connect: Connect, make_queue: MakeQueue) -> None:
    queue = make_queue(partitions=1)
    one, other = connect(), connect()
    one.subscribe(queue, group="one")
    other.subscribe(queue, group="other")
    connect().publish_each(queue, "a", "b", "c")
    for client, group in ((one, "one"), (other, "other")):
        received = client.receive_and_ack(3)
        assert [delivery.payload for delivery in received] == ["a", "b", "c"]
        assert {delivery.group for delivery in received} == {group}


@pytest.mark.rule("section 1")
def test_inside_a_group_each_message_goes_to_one_consumer(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=4, ordering="none")
    workers = [connect(), connect()]
    for worker in workers:
        worker.subscribe(queue, group="g")
    producer = connect()
    producer.publish_each(queue, *map(str, range(12)))
    seen: list[str] = []

    def all_seen() -> bool:
        for worker in workers:
            delivery = worker.poll()
            if delivery is not None:
                assert worker.ack(delivery) == SUCCESS
                seen.append(delivery.payload)
        return len(seen) >= 12

    wait_until(all_seen)
    for worker in workers:
        worker.expect_silence()
    assert sorted(map(int, seen)) == list(range(12))


@pytest.mark.rule("section 1", "section 7")
def test_a_message_is_deleted_when_every_known_group_has_settled_it(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(limits={"max_queue_depth": 1})
    one, other, producer = connect(), connect(), connect()
    one.subscribe(queue, group="one")
    other.subscribe(queue, group="other")
    producer.publish_each(queue, "a")
    one.receive_and_ack(1)
    assert producer.publish(queue, "b") == QUOTA_EXCEEDED
    other.receive_and_ack(1)
    assert producer.publish(queue, "b") == SUCCESS


@pytest.mark.rule("section 1")
def test_a_new_group_starts_at_the_oldest_message_still_stored(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1, performance={"prefetch": 1})
    first, late = connect(), connect()
    first.subscribe(queue, group="first")
    first.publish_each(queue, "a", "b", "c")
    first.receive_and_ack(1)
    late.subscribe(queue, group="late")
    assert [one.payload for one in late.receive_and_ack(2)] == ["b", "c"]
    late.expect_silence()


@pytest.mark.rule("section 1")
def test_a_group_which_starts_at_latest_sees_only_what_comes_then(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(partitions=1)
    client.publish_each(queue, "before")
    client.subscribe(queue, group="g", group_start="latest")
    client.publish_each(queue, "after")
    assert client.receive().payload == "after"
    client.expect_silence()


@pytest.mark.rule("section 1")
def test_a_known_group_goes_on_where_it_was_whatever_start_is_asked(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1)
    client = connect()
    client.subscribe(queue, group="g")
    client.publish_each(queue, "a")
    client.receive_and_ack(1)
    client.disconnect()
    connect().publish_each(queue, "b")
    again = connect()
    again.subscribe(queue, group="g", group_start="latest")
    assert again.receive().payload == "b"


@pytest.mark.rule("section 1")
def test_a_group_without_consumers_keeps_its_messages(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1)
    away, there = connect(), connect()
    away.subscribe(queue, group="away")
    away.disconnect()
    there.subscribe(queue, group="there")
    there.publish_each(queue, "a", "b")
    there.receive_and_ack(2)
    back = connect()
    back.subscribe(queue, group="away")
    assert back.receive_payloads(2) == ["a", "b"]


@pytest.mark.rule("section 1")
def test_a_group_nobody_uses_is_forgotten_after_its_expiry(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(group_expiry="1s", limits={"max_queue_depth": 1})
    away, there = connect(), connect()
    away.subscribe(queue, group="away")
    there.subscribe(queue, group="there")
    away.disconnect()
    there.publish_each(queue, "a")
    there.receive_and_ack(1)
    wait_until(lambda: there.publish(queue, "b") == SUCCESS)
    assert there.receive().payload == "b"


@pytest.mark.rule("section 1")
def test_a_group_with_a_consumer_does_not_expire(connect: Connect, make_queue: MakeQueue) -> None:
    queue = make_queue(partitions=1, group_expiry="1s", limits={"max_queue_depth": 1})
    brief, lasting, producer = connect(), connect(), connect()
    lasting.subscribe(queue, group="lasting")
    brief.subscribe(queue, group="brief")
    brief.disconnect()
    producer.publish_each(queue, "a")
    lasting.receive_and_ack(1)
    # When the group without a consumer is gone, the other one had as much time to go.
    wait_until(lambda: producer.publish(queue, "b") == SUCCESS)
    delivery = lasting.receive()
    assert (delivery.payload, delivery.group) == ("b", "lasting")
    assert lasting.ack(delivery) == SUCCESS


@pytest.mark.rule("section 1")
def test_one_client_may_consume_several_queues(connect: Connect, make_queue: MakeQueue) -> None:
    client = connect()
    queues = [make_queue(partitions=1) for _ in range(3)]
    for queue in queues:
        client.subscribe(queue)
    for queue in queues:
        client.publish_each(queue, queue)
    received = client.receive_and_ack(3)
    assert sorted(one.payload for one in received) == sorted(queues)
    assert all(one.packet.topic == f"$queue/{one.payload}" for one in received)


@pytest.mark.rule("section 1")
def test_subscribing_again_to_the_same_queue_does_not_deliver_twice(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(partitions=1)
    client.subscribe(queue, group="g")
    client.publish_each(queue, "a")
    held = client.receive()
    assert client.subscribe(queue, group="g") == 1
    client.expect_silence()
    assert client.ack(held) == SUCCESS
    client.publish_each(queue, "b")
    assert client.receive().payload == "b"


@pytest.mark.rule("section 1", "D12")
def test_after_unsubscribe_nothing_more_is_delivered(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(partitions=1)
    client.subscribe(queue, group="g")
    client.publish_each(queue, "a")
    client.receive_and_ack(1)
    assert client.wire.unsubscribe(f"$queue/{queue}").reason_codes == [0]
    client.publish_each(queue, "b")
    client.expect_silence()
    client.subscribe(queue, group="g")
    assert client.receive().payload == "b"
