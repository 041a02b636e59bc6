"""Queues as users of the common libraries see them: paho-mqtt and aiomqtt."""

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
from tests.queues.client import RECEIVE_TIMEOUT_S

PAYLOADS = [f"job {number}" for number in range(5)]


def user(packet_type: int, **pairs: str) -> Properties:
    """Properties with these user properties; an underscore is sent as a hyphen."""
    properties = Properties(packet_type)  # type: ignore[no-untyped-call]
    properties.UserProperty = [(key.replace("_", "-"), value) for key, value in pairs.items()]
    return properties


def property_of(properties: Properties | None, key: str) -> str:
    pairs: list[tuple[str, str]] = getattr(properties, "UserProperty", [])
    return dict(pairs)[key]


@pytest.mark.rule("D17", "acceptance 5")
def test_paho_consumes_and_settles(broker: Broker, queue: str) -> None:
    received: inbox.SimpleQueue[paho.MQTTMessage] = inbox.SimpleQueue()
    answers: inbox.SimpleQueue[int] = inbox.SimpleQueue()
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.on_message = lambda _client, _userdata, message: received.put(message)

    def on_publish(
        _client: Any, _userdata: Any, _mid: int, reason_code: Any, _properties: Any
    ) -> None:
        answers.put(reason_code.value)

    client.on_publish = on_publish
    client.connect(broker.host, broker.mqtt_port)
    client.loop_start()
    topic = f"$queue/{queue}"
    try:
        group = user(PacketTypes.SUBSCRIBE, consumer_group="workers")
        client.subscribe(topic, options=SubscribeOptions(qos=1), properties=group)
        keyed = user(PacketTypes.PUBLISH, partition_key="one")
        for payload in PAYLOADS:
            client.publish(topic, payload, qos=1, properties=keyed)
        for payload in PAYLOADS:
            message = received.get(timeout=RECEIVE_TIMEOUT_S)
            assert message.payload.decode() == payload
            settled = user(
                PacketTypes.PUBLISH, message_id=property_of(message.properties, "message-id")
            )
            client.publish(f"{topic}/$ack", qos=1, properties=settled)
        codes = [answers.get(timeout=RECEIVE_TIMEOUT_S) for _ in range(2 * len(PAYLOADS))]
        assert codes == [0] * len(codes)
    finally:
        client.disconnect()
        client.loop_stop()


@pytest.mark.rule("D17", "acceptance 5")
async def test_aiomqtt_consumes_nacks_and_settles(broker: Broker, queue: str) -> None:
    topic = f"$queue/{queue}"
    async with (
        asyncio.timeout(4 * RECEIVE_TIMEOUT_S),
        aiomqtt.Client(
            broker.host, broker.mqtt_port, protocol=aiomqtt.ProtocolVersion.V5
        ) as client,
    ):
        group = user(PacketTypes.SUBSCRIBE, consumer_group="workers")
        await client.subscribe(topic, qos=1, properties=group)
        await client.publish(topic, "job", qos=1)
        counts: list[str] = []
        async for message in client.messages:
            counts.append(property_of(message.properties, "delivery-count"))
            verdict = "$ack" if len(counts) == 3 else "$nack"
            name = property_of(message.properties, "message-id")
            settled = user(PacketTypes.PUBLISH, message_id=name)
            await client.publish(f"{topic}/{verdict}", qos=1, properties=settled)
            if verdict == "$ack":
                break
        assert counts == ["1", "2", "3"]


@pytest.mark.rule("D16", "acceptance 15")
async def test_aiomqtt_as_a_3_1_1_consumer_settles_by_acknowledging(
    broker: Broker, queue: str
) -> None:
    topic = f"$queue/{queue}"
    received: list[str] = []
    async with (
        asyncio.timeout(4 * RECEIVE_TIMEOUT_S),
        aiomqtt.Client(
            broker.host, broker.mqtt_port, protocol=aiomqtt.ProtocolVersion.V311
        ) as client,
    ):
        await client.subscribe(topic, qos=1)
        for number in range(25):
            await client.publish(topic, str(number), qos=1)
        async for message in client.messages:
            assert isinstance(message.payload, bytes)
            received.append(message.payload.decode())
            if len(received) == 25:
                break
    assert sorted(map(int, received)) == list(range(25))
