"""What becomes of a delivery: acknowledged, rejected, lost, forgotten (M18-M22, M25)."""

from __future__ import annotations

import pytest

from tests.mq.client import NO_MATCH, holder_of, spread
from tests.mq.conftest import Connect, MakeQueue

REJECTIONS = [0x80, 0x83, 0x87, 0x90, 0x97, 0x99]


@pytest.mark.rule("M18", "section 7")
def test_ten_messages_are_held_at_a_time(connect: Connect, regular: MakeQueue) -> None:
    queue, client = regular(), connect()
    client.subscribe(queue.address)
    client.publish_each(queue.topic(), *map(str, range(25)))
    held = client.hold_all()
    assert len(held) == 10
    client.ack(held[4])
    assert client.hold().payload == "10"
    client.expect_silence(0.2)
    client.ack(*held[:4], *held[5:])
    assert [one.payload for one in client.hold_all()] == list(map(str, range(11, 20)))


@pytest.mark.rule("M18")
def test_the_limit_is_of_a_subscriber_and_a_queue(connect: Connect, regular: MakeQueue) -> None:
    queues = [regular(local_max_inflight=3), regular(local_max_inflight=5)]
    clients = [connect(), connect()]
    for queue in queues:
        for client in clients:
            client.subscribe(queue.address)
        clients[0].publish_each(queue.topic(), *map(str, range(50)))
    for client in clients:
        roots = [one.topic.partition("/")[0] for one in client.hold_all()]
        assert [roots.count(queue.root) for queue in queues] == [3, 5]


@pytest.mark.rule("M18")
def test_the_window_of_the_client_counts_too(connect: Connect, regular: MakeQueue) -> None:
    queue, producer = regular(busy_session_retry_interval="50ms"), connect()
    narrow = connect(properties={"receive_maximum": 2})
    narrow.subscribe(queue.address)
    producer.publish_each(queue.topic(), *map(str, range(12)))
    held = narrow.hold_all()
    assert len(held) == 2
    narrow.ack(*held)
    rest = narrow.drain()
    assert sorted([*rest, *(one.payload for one in held)], key=int) == list(map(str, range(12)))


@pytest.mark.rule("M18")
def test_a_window_full_of_other_messages_only_delays(connect: Connect, regular: MakeQueue) -> None:
    queue, producer = regular(busy_session_retry_interval="50ms"), connect()
    narrow = connect(properties={"receive_maximum": 1})
    narrow.wire.subscribe(f"plain/{queue.name}", qos=1)
    producer.publish_each(f"plain/{queue.name}", "plain")
    plain = narrow.hold()
    narrow.subscribe(queue.address)
    producer.publish_each(queue.topic(), "1", "2", "3")
    narrow.expect_silence()
    narrow.ack(plain)
    assert sorted(narrow.take_payloads(3)) == ["1", "2", "3"]


@pytest.mark.rule("M18", "acceptance 9")
def test_a_qos_0_subscriber_passes_the_limit(connect: Connect, regular: MakeQueue) -> None:
    queue, client = regular(local_max_inflight=2), connect()
    client.subscribe(queue.address, qos=0)
    connect().publish_each(queue.topic(), *map(str, range(30)))
    assert [one.payload for one in client.hold_each(30)] == list(map(str, range(30)))


@pytest.mark.rule("M18", "M21")
def test_a_slow_subscriber_costs_no_message(connect: Connect, regular: MakeQueue) -> None:
    queue = regular(dispatch_strategy="round_robin", local_max_inflight=2)
    slow, quick, producer = connect(), connect(), connect()
    slow.subscribe(queue.address)
    quick.subscribe(queue.address)
    producer.publish_each(queue.topic(), *map(str, range(40)))
    received = quick.drain()
    assert len(received) >= 20
    held = slow.hold_each(2)
    slow.ack(held[0])
    slow.abort()
    received += quick.drain()
    assert sorted([held[0].payload, *received], key=int) == list(map(str, range(40)))


@pytest.mark.rule("M19")
@pytest.mark.parametrize("code", [None, 0x00, NO_MATCH])
def test_an_acknowledged_message_leaves_for_good(
    connect: Connect, regular: MakeQueue, code: int | None
) -> None:
    queue, client = regular(), connect()
    client.subscribe(queue.address)
    client.publish_each(queue.topic(), "x")
    client.ack(client.hold(), code=code)
    client.expect_silence()
    client.disconnect()
    again = connect()
    again.subscribe(queue.address)
    again.expect_silence()


@pytest.mark.rule("M19")
def test_messages_may_be_acknowledged_in_any_order(connect: Connect, regular: MakeQueue) -> None:
    queue, client = regular(), connect()
    client.subscribe(queue.address)
    client.publish_each(queue.topic(), *"01234567")
    held = client.hold_each(8)
    for number in (6, 1, 3, 0):
        client.ack(held[number])
    client.disconnect()
    again = connect()
    again.subscribe(queue.address)
    assert sorted(again.drain()) == ["2", "4", "5", "7"]


@pytest.mark.rule("M19")
def test_an_acknowledgement_of_nothing_does_no_harm(connect: Connect, regular: MakeQueue) -> None:
    queue, client = regular(), connect()
    client.subscribe(queue.address)
    client.publish_each(queue.topic(), "1", "2")
    held = client.hold_each(2)
    client.ack(held[0])
    client.ack(held[0])
    client.reject(held[0])
    client.expect_silence(0.2)
    client.ack(held[1])
    client.publish_each(queue.topic(), "3")
    assert client.take().payload == "3"


@pytest.mark.rule("M20", "acceptance 4")
@pytest.mark.parametrize("strategy", ["random", "round_robin", "least_inflight", "sticky_key"])
def test_a_rejected_message_goes_to_another_at_once(
    connect: Connect, regular: MakeQueue, strategy: str
) -> None:
    # An hour: nothing which waits for it comes within this test.
    queue = regular(dispatch_strategy=strategy, redispatch_interval="1h")
    first, second = connect(), connect()
    first.subscribe(queue.address)
    connect().publish_each(queue.topic(), *map(str, range(5)))
    held = first.hold_each(5)
    second.subscribe(queue.address)
    first.reject(*held)
    assert sorted(second.take_payloads(5)) == list(map(str, range(5)))
    first.expect_silence(0.2)


@pytest.mark.rule("M20")
@pytest.mark.parametrize("code", REJECTIONS)
def test_every_failure_code_rejects(connect: Connect, regular: MakeQueue, code: int) -> None:
    queue = regular(redispatch_interval="1h")
    first, second = connect(), connect()
    first.subscribe(queue.address)
    connect().publish_each(queue.topic(), "x")
    held = first.hold()
    second.subscribe(queue.address)
    first.reject(held, code=code)
    assert second.take().payload == "x"


@pytest.mark.rule("M20", "acceptance 5")
def test_the_only_subscriber_gets_what_it_rejected_again_later(
    connect: Connect, regular: MakeQueue
) -> None:
    queue, client = regular(redispatch_interval="300ms"), connect()
    client.subscribe(queue.address)
    client.publish_each(queue.topic(), "x")
    before = client.hold()
    for _ in range(3):
        client.reject(before)
        again = client.hold()
        assert again.payload == "x"
        assert again.received_at - before.received_at >= 0.29
        before = again
    client.ack(before)
    client.expect_silence()


@pytest.mark.rule("M20")
def test_a_rejected_message_holds_up_no_other(connect: Connect, regular: MakeQueue) -> None:
    queue = regular(redispatch_interval="1h", local_max_inflight=1)
    client = connect()
    client.subscribe(queue.address)
    client.publish_each(queue.topic(), "bad", *"123")
    client.reject(client.hold())
    assert client.take_payloads(3) == ["1", "2", "3"]
    newcomer = connect()
    client.disconnect()
    newcomer.subscribe(queue.address)
    newcomer.expect_silence(0.2)


@pytest.mark.rule("M20")
def test_rejecters_pass_a_message_round_until_one_takes_it(
    connect: Connect, regular: MakeQueue
) -> None:
    queue = regular(dispatch_strategy="round_robin", redispatch_interval="1h")
    clients = [connect() for _ in range(3)]
    for client in clients:
        client.subscribe(queue.address)
    clients[0].publish_each(queue.topic(), "x")
    last = None
    for _ in range(6):
        holder, held = holder_of(clients)
        assert holder is not last
        holder.reject(held)
        last = holder


@pytest.mark.rule("M20")
def test_too_many_rejections_end_in_the_dead_letters(connect: Connect, regular: MakeQueue) -> None:
    queue = regular(redispatch_interval="20ms", max_redeliveries=2)
    client, undertaker = connect(), connect()
    client.subscribe(queue.address)
    client.publish(queue.topic(), "bad", user={"a": "b"}, content_type="text/plain")
    for _ in range(3):
        client.reject(client.hold())
    client.expect_silence()
    undertaker.subscribe(f"$queue/dlq/{queue.name}")
    letter = undertaker.take().packet
    assert (letter.payload, letter.properties["content_type"]) == (b"bad", "text/plain")
    assert ("a", "b") in letter.user_properties


@pytest.mark.rule("M21", "acceptance 6")
@pytest.mark.parametrize("leave", ["disconnect", "abort"])
def test_what_a_lost_subscriber_held_goes_to_another_at_once(
    connect: Connect, regular: MakeQueue, leave: str
) -> None:
    queue = regular(redispatch_interval="1h")
    lost, other = connect(), connect()
    lost.subscribe(queue.address)
    connect().publish_each(queue.topic(), *map(str, range(15)))
    held = lost.hold_each(10)
    lost.ack(*held[:5])
    other.subscribe(queue.address)
    lost.hold_all(0.1)
    getattr(lost, leave)()
    assert sorted(map(int, other.drain())) == list(range(5, 15))


@pytest.mark.rule("M21")
def test_a_lost_subscriber_is_not_waited_for(connect: Connect, regular: MakeQueue) -> None:
    queue, producer = regular(dispatch_strategy="round_robin"), connect()
    clients = [connect() for _ in range(4)]
    for client in clients:
        client.subscribe(queue.address)
    producer.publish_each(queue.topic(), *map(str, range(12)))
    for client in clients[:3]:
        client.hold()
        client.abort()
    assert sorted(map(int, clients[3].drain())) == list(range(12))


@pytest.mark.rule("M22")
def test_who_says_nothing_keeps_its_message(connect: Connect, regular: MakeQueue) -> None:
    queue = regular(ping_interval="50ms", redispatch_interval="20ms")
    holder, other = connect(), connect()
    holder.subscribe(queue.address)
    holder.publish_each(queue.topic(), "x")
    held = holder.hold()
    other.subscribe(queue.address)
    other.expect_silence(1.0)
    holder.ack(held)
    other.expect_silence(0.2)


@pytest.mark.rule("M22")
def test_with_a_timeout_a_forgotten_message_goes_to_another(
    connect: Connect, regular: MakeQueue
) -> None:
    queue = regular(ack_timeout="300ms")
    forgetful, other = connect(), connect()
    forgetful.subscribe(queue.address)
    forgetful.publish_each(queue.topic(), "x")
    held = forgetful.hold()
    other.subscribe(queue.address)
    assert other.take().payload == "x"
    other.wire.ping()
    forgetful.ack(held)
    other.expect_silence()


@pytest.mark.rule("M25")
def test_small_buffers_lose_nothing(connect: Connect, regular: MakeQueue) -> None:
    queue = regular(stream_max_buffer_size=2, stream_max_unacked=3)
    consumers, producer = [connect(), connect()], connect()
    for consumer in consumers:
        consumer.subscribe(queue.address)
    producer.publish_each(queue.topic(), *map(str, range(50)))
    received = [one for mine in spread(consumers, 50) for one in mine]
    assert sorted(received, key=int) == list(map(str, range(50)))
