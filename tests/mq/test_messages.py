"""A message comes out of a queue as it went in (M6): properties, sizes, expiry; and libraries."""

from __future__ import annotations

import asyncio
import queue as inbox
from typing import Any

import aiomqtt
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.harness.broker import Broker
from tests.mq.client import SUCCESS
from tests.mq.conftest import Connect, MakeQueue
from tests.queues.client import RECEIVE_TIMEOUT_S, RESERVED

# Names which durable queues read, or write into what they deliver: nothing special here.
SPECIAL = [
    *RESERVED,
    *("partition-key", "consumer-group", "ack-mode", "delay-ms", "deliver-at", "priority"),
    *("x-source-topic", "dlq-reason-text", "mq-key", "request-id"),
]


@pytest.mark.rule("M6")
@pytest.mark.parametrize("kind", ["regular", "limited", "last-value"])
def test_every_property_is_kept(
    connect: Connect, regular: MakeQueue, last_value: MakeQueue, kind: str
) -> None:
    make = last_value if kind == "last-value" else regular
    limits = {"limits": {"max_shard_message_count": 1000}} if kind == "limited" else {}
    queue, client = make(**limits), connect()
    user = [("a", "1"), ("a", "2"), ("", ""), ("ä", "ö"), *((name, "7") for name in SPECIAL)]
    code = client.publish(
        queue.topic(),
        "x",
        user=user,
        payload_format_indicator=1,
        content_type="application/json",
        response_topic="answers/here",
        correlation_data=b"\x00\x01\xff",
    )
    assert code == SUCCESS
    client.subscribe(queue.address)
    packet = client.take().packet
    assert packet.properties == {
        "user_property": user,
        "payload_format_indicator": 1,
        "content_type": "application/json",
        "response_topic": "answers/here",
        "correlation_data": b"\x00\x01\xff",
    }


@pytest.mark.rule("M6")
def test_what_delays_a_durable_message_delays_nothing_here(
    connect: Connect, regular: MakeQueue
) -> None:
    queue, client = regular(), connect()
    client.subscribe(queue.address)
    client.publish(queue.topic(), "x", user={"delay-ms": "3600000"})
    assert client.take().payload == "x"


@pytest.mark.rule("M6")
def test_the_same_message_id_is_no_duplicate(connect: Connect, regular: MakeQueue) -> None:
    queue, client = regular(), connect()
    for number in range(3):
        assert client.publish(queue.topic(), str(number), user={"message-id": "m"}) == SUCCESS
    client.subscribe(queue.address)
    assert client.take_payloads(3) == ["0", "1", "2"]


@pytest.mark.rule("M6")
@pytest.mark.parametrize("size", [0, 1, 32_767, 100_000, 1_048_576])
@pytest.mark.parametrize("kind", ["regular", "last-value"])
def test_messages_of_any_size_come_whole(
    connect: Connect, regular: MakeQueue, last_value: MakeQueue, size: int, kind: str
) -> None:
    queue = last_value(key_expression="message.topic") if kind == "last-value" else regular()
    client = connect()
    payloads = [bytes([number]) * size for number in range(3)]
    for number, payload in enumerate(payloads):
        assert client.publish(queue.topic(str(number)), payload) == SUCCESS
    client.subscribe(queue.address)
    assert [client.take().packet.payload for _ in payloads] == payloads


@pytest.mark.rule("M6")
def test_a_message_the_subscriber_cannot_take_stops_no_other(
    connect: Connect, regular: MakeQueue
) -> None:
    queue, producer = regular(), connect()
    producer.publish(queue.topic(), bytes(5000))
    producer.publish_each(queue.topic(), "small")
    narrow = connect(properties={"maximum_packet_size": 1000})
    narrow.subscribe(queue.address)
    assert narrow.take().payload == "small"


@pytest.mark.rule("M6")
def test_the_expiry_which_is_left_is_delivered(connect: Connect, regular: MakeQueue) -> None:
    queue, client = regular(), connect()
    client.publish(queue.topic(), "x", message_expiry_interval=1000)
    client.subscribe(queue.address)
    left = client.take().packet.properties["message_expiry_interval"]
    assert 0 < left <= 1000


@pytest.mark.rule("M6", "M28")
@pytest.mark.parametrize("kind", ["regular", "last-value"])
def test_an_expired_message_is_not_delivered(
    connect: Connect, regular: MakeQueue, last_value: MakeQueue, kind: str
) -> None:
    queue = last_value(key_expression="message.topic") if kind == "last-value" else regular()
    client = connect()
    client.publish(queue.topic("a"), "expires", message_expiry_interval=1)
    client.publish_each(queue.topic("b"), "stays")
    client.expect_silence(2.2)  # the expiry is in whole seconds
    client.subscribe(queue.address)
    assert client.take().payload == "stays"
    client.expect_silence()


@pytest.mark.rule("M19", "M20", "M10")
def test_paho_reads_a_last_value_queue(broker: Broker, connect: Connect, root: str) -> None:
    received: inbox.SimpleQueue[paho.MQTTMessage] = inbox.SimpleQueue()
    subscribed: inbox.SimpleQueue[int] = inbox.SimpleQueue()
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.on_message = lambda _client, _userdata, message: received.put(message)

    def on_subscribe(
        _client: Any, _userdata: Any, _mid: int, reason_codes: list[Any], _properties: Any
    ) -> None:
        subscribed.put(reason_codes[0].value)

    client.on_subscribe = on_subscribe
    client.connect(broker.host, broker.mqtt_port)
    client.loop_start()
    try:
        properties = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
        properties.SubscriptionIdentifier = 5
        client.subscribe(f"$q/{root}/#", options=SubscribeOptions(qos=1), properties=properties)
        assert subscribed.get(timeout=RECEIVE_TIMEOUT_S) == 1
        for number in range(5):
            connect().publish_each(f"{root}/x", str(number))
            message = received.get(timeout=RECEIVE_TIMEOUT_S)
            assert (message.topic, message.payload) == (f"{root}/x", str(number).encode())
            assert getattr(message.properties, "SubscriptionIdentifier", None) == [5]
    finally:
        client.disconnect()
        client.loop_stop()


@pytest.mark.rule("M4", "acceptance 1")
@pytest.mark.parametrize("version", ["V311", "V5"])
async def test_aiomqtt_drains_a_queue(
    broker: Broker, connect: Connect, regular: MakeQueue, version: str
) -> None:
    queue = regular()
    connect().publish_each(queue.topic(), *map(str, range(30)))
    received: list[str] = []
    protocol = aiomqtt.ProtocolVersion[version]
    async with (
        asyncio.timeout(RECEIVE_TIMEOUT_S),
        aiomqtt.Client(broker.host, broker.mqtt_port, protocol=protocol) as client,
    ):
        await client.subscribe(queue.address, qos=1)
        async for message in client.messages:
            assert isinstance(message.payload, bytes)
            received.append(message.payload.decode())
            if len(received) == 30:
                break
    assert received == list(map(str, range(30)))
