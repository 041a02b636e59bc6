"""What a queue keeps over a stop and over SIGKILL (D6, D8, D24, acceptance 18)."""

from __future__ import annotations

import time

import pytest

from tests.conftest import BrokerFactory
from tests.harness import packets as p
from tests.harness.broker import BrokerProcess
from tests.queues.client import QUOTA_EXCEEDED, SUCCESS, key_of
from tests.queues.conftest import Connect, MakeQueue

ENDINGS = pytest.mark.parametrize("ending", ["kill", "stop"])


def end_and_restart(broker: BrokerProcess, ending: str) -> None:
    getattr(broker, ending)()
    broker.restart()


@pytest.mark.rule("D6", "acceptance 18")
@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_acknowledged_survives_a_kill_right_after(
    fresh_broker: BrokerFactory, connect: Connect, qos: int
) -> None:
    broker = fresh_broker()
    producer = connect(of=broker)
    expected: list[str] = []
    for round_ in range(3):
        for number in range(5):
            expected.append(f"{round_}:{number}")
            packet_id = producer.wire.send_publish("$queue/tasks", expected[-1], qos=qos)
            answer = producer.wire.wait_for(p.PUBACK if qos == 1 else p.PUBREC, packet_id)
            assert answer.reason_code == SUCCESS
        broker.kill()
        broker.restart()
        producer = connect(of=broker)
    consumer = connect(of=broker)
    consumer.subscribe("tasks", group="g")
    received = consumer.receive_and_ack(len(expected))
    assert sorted(one.payload for one in received) == sorted(expected)
    consumer.expect_silence()


def half_consumed(
    fresh_broker: BrokerFactory, connect: Connect, ending: str
) -> list[tuple[str, int]]:
    """Five messages, one acked and two held at the end; what comes after the restart, counted."""
    broker = fresh_broker(config='[queues."tasks"]\npartitions = 1\nperformance.prefetch = 2\n')
    client = connect(of=broker)
    client.subscribe("tasks", group="g")
    client.publish_each("tasks", "1", "2", "3", "4", "5")
    client.receive_and_ack(1)
    assert client.receive_payloads(2) == ["2", "3"]
    client.expect_silence()
    end_and_restart(broker, ending)
    again = connect(of=broker)
    again.subscribe("tasks", group="g")
    received = again.receive_and_ack(4)
    again.expect_silence()
    return [(one.payload, one.count) for one in received]


@ENDINGS
@pytest.mark.rule("acceptance 18", "section 7")
def test_a_restart_keeps_what_is_queued_and_what_is_unsettled(
    fresh_broker: BrokerFactory, connect: Connect, ending: str
) -> None:
    received = half_consumed(fresh_broker, connect, ending)
    assert [payload for payload, _ in received] == ["2", "3", "4", "5"]
    assert received[:2] == [("2", 2), ("3", 2)]


@ENDINGS
@pytest.mark.rule("acceptance 18", "section 4")
def test_what_was_never_delivered_is_a_first_delivery_after_a_restart(
    fresh_broker: BrokerFactory, connect: Connect, ending: str
) -> None:
    assert half_consumed(fresh_broker, connect, ending)[2:] == [("4", 1), ("5", 1)]


@ENDINGS
@pytest.mark.rule("acceptance 18", "section 4")
def test_what_a_fast_consumer_left_behind_is_a_first_delivery_after_a_restart(
    fresh_broker: BrokerFactory, connect: Connect, ending: str
) -> None:
    broker = fresh_broker(config='[queues."tasks"]\npartitions = 1\nperformance.prefetch = 30\n')
    producer, fast = connect(of=broker), connect(of=broker)
    producer.publish_each("tasks", *map(str, range(100)))
    fast.subscribe("tasks", group="g", ack_mode="puback")
    held = [fast.receive(puback=False) for _ in range(30)]
    fast.wire.send(b"".join(p.acknowledge(p.PUBACK, one.packet.packet_id) for one in held))
    assert fast.receive(puback=False).payload == "30"
    fast.disconnect()
    producer.publish_each("tasks", "100")  # stored together with its leaving, or behind it
    end_and_restart(broker, ending)
    again = connect(of=broker)
    again.subscribe("tasks", group="g")
    counts = {int(one.payload): one.count for one in again.receive_and_ack(70)}
    assert all(counts[number] == 1 for number in range(60, 100)), counts


@ENDINGS
@pytest.mark.rule("acceptance 18", "section 5")
def test_a_confirmed_settlement_survives_a_restart(
    fresh_broker: BrokerFactory, connect: Connect, ending: str
) -> None:
    broker = fresh_broker(config='[queues."tasks"]\npartitions = 1\n')
    client = connect(of=broker)
    client.subscribe("tasks", group="g")
    client.publish_each("tasks", *map(str, range(8)))
    held = client.receive_each(8)
    for number in (6, 1, 3, 0):
        assert client.ack(held[number]) == SUCCESS
    end_and_restart(broker, ending)
    again = connect(of=broker)
    again.subscribe("tasks", group="g")
    assert again.receive_payloads(4) == ["2", "4", "5", "7"]
    again.expect_silence()


@ENDINGS
@pytest.mark.rule("section 1", "acceptance 18")
def test_groups_are_known_after_a_restart(
    fresh_broker: BrokerFactory, connect: Connect, ending: str
) -> None:
    broker = fresh_broker(config='[queues."tasks"]\npartitions = 1\n')
    one, other = connect(of=broker), connect(of=broker)
    one.subscribe("tasks", group="one")
    other.subscribe("tasks", group="other")
    one.publish_each("tasks", "1", "2")
    one.receive_and_ack(2)
    other.receive_and_ack(1)
    end_and_restart(broker, ending)
    for group, expected in (("one", []), ("other", ["2"]), ("new", ["2"])):
        client = connect(of=broker)
        client.subscribe("tasks", group=group)
        assert client.receive_payloads(len(expected)) == expected
        client.expect_silence(0.2)


@ENDINGS
@pytest.mark.rule("section 8")
def test_settings_at_run_time_survive_a_restart(
    fresh_broker: BrokerFactory, connect: Connect, make_queue: MakeQueue, ending: str
) -> None:
    broker = fresh_broker()
    make_queue("tasks", of=broker, partitions=3, limits={"max_queue_depth": 10})
    client = connect(of=broker)
    assert client.configure("tasks", limits={"max_queue_depth": 2}) == SUCCESS
    end_and_restart(broker, ending)
    again = connect(of=broker)
    again.publish_each("tasks", "1", key="user-123")
    again.publish_each("tasks", "2", key="user-124")
    assert again.publish("tasks", "3") == QUOTA_EXCEEDED
    again.subscribe("tasks", group="g")
    assert sorted(one.partition for one in again.receive_each(2)) == [0, 2]


@ENDINGS
@pytest.mark.rule("D8", "acceptance 13")
def test_duplicates_are_known_over_a_restart(
    fresh_broker: BrokerFactory, connect: Connect, ending: str
) -> None:
    broker = fresh_broker()
    producer = connect("producer-1", of=broker)
    for name in ("m1", "m2"):
        producer.publish("tasks", name, user={"message-id": name})
    end_and_restart(broker, ending)
    again = connect("producer-1", of=broker)
    for name in ("m1", "m2", "m3"):
        assert again.publish("tasks", name, user={"message-id": name}) < 0x80
    again.subscribe("tasks", group="g")
    received = again.receive_and_ack(3)
    assert sorted(one.message_id for one in received) == ["m1", "m2", "m3"]
    again.expect_silence()


@ENDINGS
@pytest.mark.rule("acceptance 14")
def test_a_delayed_message_keeps_its_time_over_a_restart(
    fresh_broker: BrokerFactory, connect: Connect, ending: str
) -> None:
    broker = fresh_broker()
    client = connect(of=broker)
    at_ms = int(time.time() * 1000) + 6000
    client.publish("tasks", "later", user={"deliver-at": str(at_ms)})
    end_and_restart(broker, ending)
    again = connect(of=broker)
    again.subscribe("tasks", group="g")
    assert again.receive(timeout=30).payload == "later"
    assert time.time() * 1000 >= at_ms


@ENDINGS
@pytest.mark.rule("D21", "acceptance 18")
def test_the_number_of_retries_survives_a_restart(
    fresh_broker: BrokerFactory, connect: Connect, ending: str
) -> None:
    config = '[queues."tasks"]\nretry_policy.max_retries = 20\n'
    broker = fresh_broker(config=config)
    client = connect(of=broker)
    client.subscribe("tasks", group="g")
    client.publish_each("tasks", "x")
    for _ in range(3):
        assert client.nack(client.receive()) == SUCCESS
    assert client.receive().count == 4
    end_and_restart(broker, ending)
    again = connect(of=broker)
    again.subscribe("tasks", group="g")
    assert again.receive().count == 5


@ENDINGS
@pytest.mark.rule("D20", "acceptance 18")
def test_a_message_which_waits_for_its_retry_still_waits_after_a_restart(
    fresh_broker: BrokerFactory, connect: Connect, ending: str
) -> None:
    broker = fresh_broker(config='[queues."tasks"]\npartitions = 1\n')
    client = connect(of=broker)
    client.subscribe("tasks", group="g")
    client.publish_each("tasks", "x")
    delivery = client.receive()
    nacked_at = time.monotonic()
    assert client.nack(delivery, delay_ms="6000") == SUCCESS
    end_and_restart(broker, ending)
    again = connect(of=broker)
    again.subscribe("tasks", group="g")
    later = again.receive(timeout=30)
    assert later.count == 2
    assert later.received_at - nacked_at >= 5.9


@ENDINGS
@pytest.mark.rule("D23", "acceptance 18")
def test_dead_letters_survive_a_restart_with_their_story(
    fresh_broker: BrokerFactory, connect: Connect, ending: str
) -> None:
    broker = fresh_broker()
    client = connect(of=broker)
    client.subscribe("tasks", group="g")
    client.publish_each("tasks", "x")
    assert client.reject(client.receive(), reason="broken") == SUCCESS
    end_and_restart(broker, ending)
    watcher = connect(of=broker)
    watcher.subscribe("dlq/tasks", group="g")
    letter = watcher.receive()
    assert letter.payload == "x"
    assert letter.properties["dlq-reason-text"] == "broken"
    assert letter.properties["dlq-group"] == "g"


@pytest.mark.rule("section 4", "acceptance 18")
def test_sequences_go_on_after_a_restart_though_the_queue_is_empty(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker(config='[queues."tasks"]\npartitions = 1\n')
    client = connect(of=broker)
    client.subscribe("tasks", group="g")
    client.publish_each("tasks", "1", "2")
    client.receive_and_ack(2)
    end_and_restart(broker, "kill")
    again = connect(of=broker)
    again.subscribe("tasks", group="g")
    again.publish_each("tasks", "3")
    assert again.receive().offset == 3


@pytest.mark.rule("D3", "D6")
def test_an_acknowledged_capture_survives_a_kill(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker(config='[queues."tasks"]\ntopics = ["sensors/#"]\n')
    assert connect(of=broker).publish_topic("sensors/1", "x") == SUCCESS
    end_and_restart(broker, "kill")
    again = connect(of=broker)
    again.subscribe("tasks", group="g")
    delivery = again.receive()
    assert delivery.properties["x-source-topic"] == "sensors/1"


@pytest.mark.rule("D12", "acceptance 18")
def test_the_order_of_a_key_survives_a_kill_in_the_middle(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker(config='[queues."tasks"]\npartitions = 4\nkey_inflight = 1\n')
    key = key_of(2, 4)
    producer = connect(of=broker)
    producer.publish_each("tasks", *map(str, range(20)), key=key)
    settled: list[str] = []
    for _ in range(3):
        worker = connect(of=broker)
        worker.subscribe("tasks", group="g")
        settled += [one.payload for one in worker.receive_and_ack(4)]
        worker.receive()
        end_and_restart(broker, "kill")
    worker = connect(of=broker)
    worker.subscribe("tasks", group="g")
    settled += [one.payload for one in worker.receive_and_ack(8)]
    assert settled == [str(number) for number in range(20)]
