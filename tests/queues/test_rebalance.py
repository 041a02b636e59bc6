"""Partitions inside a group: stable ranges (D11), and moves which keep the order (D12)."""

from __future__ import annotations

import pytest

from tests.queues.client import SUCCESS, QueueClient, key_of, keys_of, wait_until
from tests.queues.conftest import Connect, MakeQueue


def publish_to_partitions(client: QueueClient, queue: str, partitions: int) -> None:
    """One message into each partition, with the number of the partition as its payload."""
    for partition in range(partitions):
        client.publish_each(queue, str(partition), key=key_of(partition, partitions))


def held_partitions(client: QueueClient, count: int) -> list[int]:
    received = client.receive_and_ack(count)
    assert all(one.partition == int(one.payload) for one in received)
    client.expect_silence()
    return sorted(one.partition for one in received)


@pytest.mark.rule("D11", "acceptance 3")
@pytest.mark.parametrize(
    ("partitions", "ranges"),
    [
        (10, [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]),
        (3, [[0], [1], [2]]),
        (2, [[0], [1], []]),
        (1, [[0], [], []]),
    ],
)
def test_consumers_sorted_by_client_id_get_contiguous_ranges(
    connect: Connect, make_queue: MakeQueue, partitions: int, ranges: list[list[int]]
) -> None:
    queue = make_queue(partitions=partitions)
    joined = {name: connect(name) for name in ("w-c", "w-a", "w-b")}
    for client in joined.values():
        client.subscribe(queue)
    publish_to_partitions(connect(), queue, partitions)
    for name, expected in zip(("w-a", "w-b", "w-c"), ranges, strict=True):
        assert held_partitions(joined[name], len(expected)) == expected


@pytest.mark.rule("D11")
def test_a_consumer_alone_has_every_partition(connect: Connect, make_queue: MakeQueue) -> None:
    client, queue = connect(), make_queue(partitions=10)
    client.subscribe(queue)
    publish_to_partitions(client, queue, 10)
    assert held_partitions(client, 10) == list(range(10))


@pytest.mark.rule("D11", "D12")
def test_when_a_consumer_leaves_the_ranges_are_made_anew(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=4)
    first, second = connect("w-a"), connect("w-b")
    first.subscribe(queue)
    second.subscribe(queue)
    first.wire.unsubscribe(f"$queue/{queue}")
    publish_to_partitions(connect(), queue, 4)
    assert held_partitions(second, 4) == [0, 1, 2, 3]


@pytest.mark.rule("D12", "acceptance 4")
def test_messages_of_a_killed_consumer_come_again_with_delivery_count_2(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=2)
    victim, heir = connect("w-a"), connect("w-b")
    victim.subscribe(queue)
    heir.subscribe(queue)
    connect().publish_each(queue, "1", "2", "3", key=key_of(0, 2))
    assert victim.receive_payloads(3) == ["1", "2", "3"]
    heir.expect_silence()
    victim.abort()
    received = heir.receive_and_ack(3)
    assert [one.payload for one in received] == ["1", "2", "3"]
    assert [one.count for one in received] == [2, 2, 2]


@pytest.mark.rule("D12", "acceptance 4")
def test_what_was_settled_before_the_kill_does_not_come_again(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1)
    victim, heir = connect("w-a"), connect("w-b")
    victim.subscribe(queue)
    heir.subscribe(queue)
    connect().publish_each(queue, "1", "2", "3", "4")
    held = victim.receive_each(4)
    assert victim.ack(held[1]) == SUCCESS
    assert victim.ack(held[2]) == SUCCESS
    victim.abort()
    assert [one.payload for one in heir.receive_and_ack(2)] == ["1", "4"]
    heir.expect_silence()


@pytest.mark.rule("D12")
def test_a_new_owner_gets_nothing_before_the_old_one_has_settled(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=2, performance={"prefetch": 1})
    old, new = connect("w-a"), connect("w-b")
    old.subscribe(queue)
    old.publish_each(queue, "1", "2", key=key_of(1, 2))
    held = old.receive()
    new.subscribe(queue)
    new.expect_silence()
    assert old.ack(held) == SUCCESS
    moved = new.receive()
    assert (moved.payload, moved.count) == ("2", 1)
    old.expect_silence()


@pytest.mark.rule("D12")
def test_all_held_messages_of_a_moved_partition_must_be_settled_first(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=2, performance={"prefetch": 3})
    old, new = connect("w-a"), connect("w-b")
    old.subscribe(queue)
    old.publish_each(queue, "1", "2", "3", "4", key=key_of(1, 2))
    held = old.receive_each(3)
    new.subscribe(queue)
    for delivery in held:
        new.expect_silence(0.2)
        assert old.ack(delivery) == SUCCESS
    assert new.receive().payload == "4"


@pytest.mark.rule("D12", "D18")
def test_a_new_owner_gets_held_messages_in_order_when_they_time_out(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(
        partitions=2,
        performance={"prefetch": 1, "delivery_timeout": "1s"},
        retry_policy={"initial_backoff": "100ms"},
    )
    old, new = connect("w-a"), connect("w-b")
    old.subscribe(queue)
    old.publish_each(queue, "1", "2", key=key_of(1, 2))
    held = old.receive()
    new.subscribe(queue)
    received = new.receive_and_ack(2)
    assert [(one.payload, one.count) for one in received] == [("1", 2), ("2", 1)]
    assert received[0].received_at - held.received_at >= 1.0
    old.expect_silence()


@pytest.mark.rule("D12")
def test_a_nack_by_the_old_owner_sends_the_message_to_the_new_one(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=2, performance={"prefetch": 1})
    old, new = connect("w-a"), connect("w-b")
    old.subscribe(queue)
    old.publish_each(queue, "1", "2", key=key_of(1, 2))
    held = old.receive()
    new.subscribe(queue)
    new.expect_silence(0.2)
    assert old.nack(held) == SUCCESS
    received = new.receive_and_ack(2)
    assert [(one.payload, one.count) for one in received] == [("1", 2), ("2", 1)]


@pytest.mark.rule("D12")
def test_who_unsubscribes_may_still_settle_what_it_holds(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1, performance={"prefetch": 1})
    leaver, heir = connect("w-a"), connect("w-b")
    leaver.subscribe(queue)
    heir.subscribe(queue)
    leaver.publish_each(queue, "1", "2")
    held = leaver.receive()
    leaver.wire.unsubscribe(f"$queue/{queue}")
    heir.expect_silence()
    assert leaver.ack(held, group_id="w") == SUCCESS
    assert heir.receive().payload == "2"


@pytest.mark.rule("D12", "D13", "acceptance 4")
def test_the_order_of_each_key_survives_joins_leaves_and_kills(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=4, performance={"prefetch": 3})
    keys = [key for partition in range(4) for key in keys_of(partition, 4, 2)]
    producer = connect()
    for number in range(6):
        for key in keys:
            producer.publish_each(queue, f"{key}:{number}", key=key)
    workers = {name: connect(f"w-{name}") for name in "ab"}
    for worker in workers.values():
        worker.subscribe(queue)
    settled: list[str] = []

    def work(rounds: int) -> None:
        for _ in range(rounds):
            for worker in workers.values():
                delivery = worker.poll(0.05)
                if delivery is not None:
                    assert worker.ack(delivery) == SUCCESS
                    settled.append(delivery.payload)

    work(3)
    workers["c"] = connect("w-c")
    workers["c"].subscribe(queue)
    work(3)
    workers.pop("a").abort()
    work(3)
    workers["d"] = connect("w-d")
    workers["d"].subscribe(queue)
    workers.pop("b").disconnect()

    def done() -> bool:
        work(1)
        return len(settled) >= 6 * len(keys)

    wait_until(done, timeout_s=40)
    for key in keys:
        mine = [payload for payload in settled if payload.startswith(f"{key}:")]
        assert mine == [f"{key}:{number}" for number in range(6)]


@pytest.mark.rule("D12")
def test_a_half_open_consumer_loses_its_messages_when_its_keep_alive_is_over(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1)
    silent, heir = connect("w-a", keepalive=1), connect("w-b")
    silent.subscribe(queue)
    heir.subscribe(queue)
    heir.publish_each(queue, "1")
    silent.receive()
    delivery = heir.receive()
    assert (delivery.payload, delivery.count) == ("1", 2)


@pytest.mark.rule("D12")
def test_a_consumer_without_heartbeat_loses_its_partitions(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(
        partitions=1,
        performance={"heartbeat_timeout": "2s", "delivery_timeout": "2s"},
        retry_policy={"initial_backoff": "100ms"},
    )
    silent, heir = connect("w-a"), connect("w-b")
    silent.subscribe(queue)
    heir.subscribe(queue)
    heir.publish_each(queue, "1", "2")
    assert silent.receive_payloads(2) == ["1", "2"]
    assert heir.receive_pinging().payload == "1"
    assert heir.receive_pinging().payload == "2"


@pytest.mark.rule("D12")
def test_a_consumer_which_pings_keeps_its_partitions(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=2, performance={"heartbeat_timeout": "2s"})
    first, second = connect("w-a"), connect("w-b")
    first.subscribe(queue)
    second.subscribe(queue)
    first.publish(queue, "1", user={"partition-key": key_of(0, 2), "delay-ms": "3500"})
    second.publish(queue, "2", user={"partition-key": key_of(1, 2), "delay-ms": "3500"})

    received: dict[str, str] = {}

    def both_came() -> bool:
        for client in (first, second):
            client.wire.ping()
            delivery = client.poll(0.1)
            if delivery is not None:
                received[client.client_id] = delivery.payload
        return len(received) == 2

    wait_until(both_came)
    assert received == {"w-a": "1", "w-b": "2"}
