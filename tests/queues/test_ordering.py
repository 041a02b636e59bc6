"""Order, prefetch and what a waiting retry holds back (D13, D14)."""

from __future__ import annotations

import pytest

from tests.queues.client import SUCCESS, keys_of
from tests.queues.conftest import Connect, MakeQueue


@pytest.mark.rule("D13")
@pytest.mark.parametrize("ordering", ["partition", "strict"])
@pytest.mark.parametrize("prefetch", [1, 5])
def test_messages_of_a_partition_come_first_in_first_out(
    connect: Connect, make_queue: MakeQueue, ordering: str, prefetch: int
) -> None:
    client = connect()
    queue = make_queue(partitions=1, ordering=ordering, performance={"prefetch": prefetch})
    numbers = [str(number) for number in range(20)]
    client.publish_each(queue, *numbers)
    client.subscribe(queue)
    received = client.receive_and_ack(20)
    assert [one.payload for one in received] == numbers
    assert [one.offset for one in received] == list(range(1, 21))


@pytest.mark.rule("D13")
def test_with_a_prefetch_of_one_a_partition_has_one_unsettled_message(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=2, performance={"prefetch": 1})
    first, second = connect("w-a"), connect("w-b")
    first.subscribe(queue)
    second.subscribe(queue)
    for partition, client in enumerate((first, second)):
        client.publish_each(queue, "1", "2", key=keys_of(partition, 2)[0])
    for client in (first, second):
        held = client.receive()
        client.expect_silence()
        assert client.ack(held) == SUCCESS
        assert client.receive().payload == "2"


@pytest.mark.rule("D13")
def test_without_ordering_any_consumer_of_the_group_gets_any_partition(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1, ordering="none", performance={"prefetch": 2})
    first, second = connect("w-a"), connect("w-b")
    first.subscribe(queue)
    second.subscribe(queue)
    first.publish_each(queue, "1", "2", "3", "4")
    received = first.receive_payloads(2) + second.receive_payloads(2)
    assert sorted(received) == ["1", "2", "3", "4"]


@pytest.mark.rule("D14")
def test_prefetch_bounds_the_unsettled_messages_of_a_consumer(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(partitions=3, performance={"prefetch": 3})
    client.subscribe(queue)
    client.publish_each(queue, *map(str, range(6)))
    held = client.receive_each(3)
    client.expect_silence()
    assert client.ack(held[1]) == SUCCESS
    client.receive()
    client.expect_silence()


@pytest.mark.rule("D14", "section 8")
def test_the_prefetch_is_ten_unless_told_otherwise(connect: Connect, queue: str) -> None:
    client = connect()
    client.subscribe(queue)
    client.publish_each(queue, *map(str, range(12)))
    held = client.receive_each(10)
    client.expect_silence()
    for delivery in held[:2]:
        assert client.ack(delivery) == SUCCESS
    client.receive_each(2)


@pytest.mark.rule("D14")
def test_prefetch_is_for_each_consumer(connect: Connect, make_queue: MakeQueue) -> None:
    queue = make_queue(partitions=1, performance={"prefetch": 2})
    one, other = connect(), connect()
    one.subscribe(queue, group="one")
    other.subscribe(queue, group="other")
    one.publish_each(queue, "1", "2", "3")
    for client in (one, other):
        assert client.receive_payloads(2) == ["1", "2"]
        client.expect_silence()


@pytest.mark.rule("D14")
def test_the_receive_maximum_bounds_what_is_unacknowledged_under_any_prefetch(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1, performance={"prefetch": 10})
    client = connect(properties={"receive_maximum": 1})
    client.subscribe(queue)
    client.publish_each(queue, "1", "2", "3")
    for payload in ("1", "2", "3"):
        delivery = client.receive(puback=False)
        assert delivery.payload == payload
        client.expect_silence(0.2)
        client.puback(delivery)
        assert client.ack(delivery) == SUCCESS
    client.expect_silence()


@pytest.mark.rule("D14")
def test_settling_before_the_puback_is_taken_too(connect: Connect, make_queue: MakeQueue) -> None:
    queue = make_queue(partitions=1)
    client = connect(properties={"receive_maximum": 1})
    client.subscribe(queue)
    client.publish_each(queue, "1", "2")
    first = client.receive(puback=False)
    assert client.ack(first) == SUCCESS
    client.expect_silence(0.2)
    client.puback(first)
    assert client.receive().payload == "2"


@pytest.mark.rule("D14", "section 8")
@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_any_batch_size_hands_over_everything_in_order(
    connect: Connect, make_queue: MakeQueue, batch_size: int
) -> None:
    client = connect()
    queue = make_queue(partitions=1, performance={"batch_size": batch_size, "prefetch": 10})
    numbers = [str(number) for number in range(25)]
    client.publish_each(queue, *numbers)
    client.subscribe(queue)
    assert [one.payload for one in client.receive_and_ack(25)] == numbers


@pytest.mark.rule("D13")
@pytest.mark.parametrize(
    ("ordering", "retry_blocks", "expected"),
    [
        ("partition", "partition", ["a1", "a2", "b1"]),
        ("partition", "key", ["b1", "a1", "a2"]),
        ("partition", None, ["b1", "a1", "a2"]),
        ("partition", "none", ["a2", "b1", "a1"]),
        ("strict", None, ["a1", "a2", "b1"]),
        ("strict", "key", ["b1", "a1", "a2"]),
    ],
)
def test_a_waiting_retry_holds_back_its_partition_its_key_or_nothing(
    connect: Connect,
    make_queue: MakeQueue,
    ordering: str,
    retry_blocks: str | None,
    expected: list[str],
) -> None:
    client = connect()
    settings = {} if retry_blocks is None else {"retry_blocks": retry_blocks}
    queue = make_queue(partitions=1, ordering=ordering, performance={"prefetch": 1}, **settings)
    client.publish_each(queue, "a1", "a2", key="a")
    client.publish_each(queue, "b1", key="b")
    client.subscribe(queue)
    first = client.receive()
    assert first.payload == "a1"
    assert client.nack(first, delay_ms="1500") == SUCCESS
    received = client.receive_and_ack(3)
    assert [one.payload for one in received] == expected
    assert {one.payload: one.count for one in received} == {"a1": 2, "a2": 1, "b1": 1}


@pytest.mark.rule("D13", "D18")
def test_a_timed_out_message_comes_again_before_later_ones_of_its_key(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client = connect()
    queue = make_queue(
        partitions=1,
        performance={"prefetch": 1, "delivery_timeout": "500ms"},
        retry_policy={"initial_backoff": "500ms"},
    )
    client.publish_each(queue, "1", "2", key="a")
    client.subscribe(queue)
    assert client.receive().payload == "1"
    received = client.receive_and_ack(2)
    assert [(one.payload, one.count) for one in received] == [("1", 2), ("2", 1)]


@pytest.mark.rule("D13")
def test_messages_without_a_key_do_not_block_one_another(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(partitions=1, performance={"prefetch": 1})
    client.publish_each(queue, "1", "2")
    client.subscribe(queue)
    assert client.nack(client.receive(), delay_ms="1500") == SUCCESS
    received = client.receive_and_ack(2)
    assert [one.payload for one in received] == ["2", "1"]


@pytest.mark.rule("D13")
def test_key_inflight_of_one_serialises_each_key_under_any_prefetch(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(partitions=1, key_inflight=1)
    client.publish_each(queue, "a1", "a2", "a3", key="a")
    client.publish_each(queue, "b1", "b2", key="b")
    client.subscribe(queue)
    a1, b1 = client.receive_each(2)
    assert (a1.payload, b1.payload) == ("a1", "b1")
    client.expect_silence()
    assert client.nack(a1) == SUCCESS
    again = client.receive()
    assert (again.payload, again.count) == ("a1", 2)
    client.expect_silence(0.2)
    assert client.ack(again) == SUCCESS
    a2 = client.receive()
    assert a2.payload == "a2"
    assert client.ack(b1) == SUCCESS
    assert client.receive().payload == "b2"
    assert client.ack(a2) == SUCCESS
    assert client.receive().payload == "a3"


@pytest.mark.rule("D13")
def test_key_inflight_of_two_lets_two_out(connect: Connect, make_queue: MakeQueue) -> None:
    client, queue = connect(), make_queue(partitions=1, key_inflight=2)
    client.publish_each(queue, "1", "2", "3", key="a")
    client.subscribe(queue)
    first, _ = client.receive_each(2)
    client.expect_silence()
    assert client.ack(first) == SUCCESS
    assert client.receive().payload == "3"


@pytest.mark.rule("D13")
def test_key_inflight_counts_over_all_consumers_of_a_group(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1, ordering="none", key_inflight=1)
    workers = [connect(), connect()]
    for worker in workers:
        worker.subscribe(queue, group="g")
    workers[0].publish_each(queue, "1", "2", key="a")
    held = [(worker, one) for worker in workers if (one := worker.poll(1.0)) is not None]
    assert [one.payload for _, one in held] == ["1"]
    holder, first = held[0]
    assert holder.ack(first) == SUCCESS
    later = [one.payload for worker in workers if (one := worker.poll(1.0)) is not None]
    assert later == ["2"]
