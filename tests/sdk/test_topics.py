"""Ordinary topics and the connection itself: what the SDK needs no queue for."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from queuelake.client import (
    Client,
    ClientClosedError,
    MessageTooLargeError,
    SessionTakenOverError,
    subscription,
)
from queuelake.errors import BadCredentialsError, BrokerDownError, NotAuthorizedError
from queuelake.names import BadAddressError
from tests.conformance.v5.test_access import add_user
from tests.conftest import BrokerFactory
from tests.crash.ports import free_port
from tests.harness.broker import Broker
from tests.interop.certificates import Authority

WAIT_S = 15.0


async def test_a_message_arrives_with_its_properties(client: Client, name: str) -> None:
    async with client.subscribe(f"{name}/+") as messages:
        await client.publish(
            f"{name}/a",
            "21.5",
            properties={"unit": "C"},
            content_type="text/plain",
            response_topic="back",
            correlation_data=b"\x01\x02",
        )
        message = await messages.get(WAIT_S)
    assert (message.topic, message.payload, message.qos) == (f"{name}/a", b"21.5", 1)
    assert message.properties == {"unit": "C"}
    assert message.content_type == "text/plain"
    assert (message.response_topic, message.correlation_data) == ("back", b"\x01\x02")


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_each_subscription_gets_its_own_copy_once(
    client: Client, name: str, qos: int
) -> None:
    async with (
        client.subscribe(f"{name}/#", qos=qos) as all_below,
        client.subscribe(f"{name}/a", qos=qos) as one,
    ):
        for number in range(3):
            await client.publish(f"{name}/a", str(number))
        for subscription in (all_below, one):
            payloads = [(await subscription.get(WAIT_S)).payload for _ in range(3)]
            assert payloads == [b"0", b"1", b"2"]
            with pytest.raises(TimeoutError):
                await subscription.get(0.1)


async def test_a_retained_message_says_so(client: Client, name: str) -> None:
    await client.publish(name, b"kept", retain=True)
    async with client.subscribe(name) as messages:
        assert (await messages.get(WAIT_S)).retain
    await client.publish(name, b"", retain=True)


async def test_leaving_the_loop_ends_the_subscription(client: Client, name: str) -> None:
    async def first() -> bytes:
        async for message in client.subscribe(name):
            return message.payload
        raise AssertionError("the loop ended by itself")

    for number in (b"1", b"2"):  # a second subscription to one filter is refused while one is open
        waiting = asyncio.create_task(first())
        while not waiting.done():
            await client.publish(name, number)
            await asyncio.sleep(0.05)
        assert await waiting == number


async def test_messages_wait_in_the_broker_while_nobody_takes_them(
    broker: Broker, client: Client, name: str
) -> None:
    slow = Client(broker.host, broker.mqtt_port, receive_max=5)
    async with slow, slow.subscribe(name) as messages:
        for number in range(50):
            await client.publish(name, str(number))
        await slow.publish(f"{name}/barrier", b"")  # what may come is here when this is
        assert len(messages._buffer) == 5
        for number in range(50):
            assert (await messages.get(WAIT_S)).payload == str(number).encode()


async def test_a_filter_is_subscribed_once(client: Client, name: str) -> None:
    async with client.subscribe(name):
        with pytest.raises(ValueError, match="already subscribes"):
            await client.subscribe(name).start()
    async with client.subscribe(name):
        pass


async def test_many_publishes_at_a_time_keep_their_order(
    broker: Broker, client: Client, name: str
) -> None:
    async with client.subscribe(name) as messages:
        sent = [f"{number}" for number in range(3000)]  # more than may be unconfirmed at a time
        publishing = asyncio.gather(*(client.publish(name, one) for one in sent))
        received = [(await messages.get(WAIT_S)).payload.decode() for _ in sent]
        await publishing
    assert received == sent


async def test_wrong_topics_and_values_are_refused_before_they_are_sent(client: Client) -> None:
    for topic in ("", "a/+", "a/#", "a\0b"):
        with pytest.raises(BadAddressError):
            await client.publish(topic, b"")
    with pytest.raises(ValueError, match="qos 2"):
        await client.publish("a", b"", qos=2)
    with pytest.raises(ValueError, match="65535"):
        await client.publish("a", b"", properties={"long": "x" * 70_000})


async def test_a_wrong_filter_is_refused_by_the_broker_and_can_be_mended(
    client: Client, name: str
) -> None:
    with pytest.raises((BadAddressError, ValueError)):
        await client.subscribe(f"{name}/#/x").start()


async def test_nobody_there_is_said_with_the_address() -> None:
    port = free_port()
    with pytest.raises(BrokerDownError, match=f"127.0.0.1:{port}"):
        async with Client("127.0.0.1", port):
            pass


async def test_a_peer_which_says_nothing_is_given_up() -> None:
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(BrokerDownError, match=r"no CONNACK within 0\.3 s"):
        async with Client("127.0.0.1", port, connect_timeout=0.3):
            pass
    server.close()


async def test_a_closed_client_says_so(broker: Broker) -> None:
    client = Client(broker.host, broker.mqtt_port)
    with pytest.raises(ClientClosedError, match="not open yet"):
        await client.publish("a", b"")
    async with client:
        waiting = asyncio.create_task(client.subscribe("a").get())
        await client.publish("b", b"")
    with pytest.raises(ClientClosedError):
        await waiting
    with pytest.raises(ClientClosedError, match="is closed"):
        await client.publish("a", b"")
    with pytest.raises(ClientClosedError):
        await client.subscribe("a").start()
    async with client, client.subscribe("a") as messages:  # it may be opened again
        await client.publish("a", b"x")
        assert (await messages.get(WAIT_S)).payload == b"x"


async def test_two_clients_with_one_id_do_not_fight(broker: Broker, name: str) -> None:
    client_id = name.replace("/", "-")
    async with Client(broker.host, broker.mqtt_port, client_id=client_id) as first:
        waiting = asyncio.create_task(first.subscribe(name).get())
        await first.publish(name + "/x", b"")
        async with Client(broker.host, broker.mqtt_port, client_id=client_id) as second:
            with pytest.raises(SessionTakenOverError, match=client_id):
                await waiting
            with pytest.raises(SessionTakenOverError):
                await first.publish(name, b"")
            await second.publish(name, b"")


async def test_too_long_a_message_is_refused_and_the_others_arrive(
    fresh_broker: BrokerFactory,
) -> None:
    broker = fresh_broker({"mqtt.packet_size_bytes_max": 2000})
    async with Client(broker.host, broker.mqtt_port) as client, client.subscribe("a") as messages:
        with pytest.raises(MessageTooLargeError, match="2001 bytes, the broker's limit is 2000"):
            await client.publish("a", b"x" * 2001)
        # The payload alone is not over the limit, the packet is: the broker closes over it.
        with pytest.raises(MessageTooLargeError):
            await client.publish("a", b"x" * 1999)
        await client.publish("a", b"short")
        assert (await messages.get(WAIT_S)).payload == b"short"


async def test_a_flood_of_qos_0_drops_the_newest(
    client: Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "QOS_0_BUFFER_MAX", 3)
    async with (
        client.subscribe(name, qos=0) as messages,
        client.subscribe(f"{name}/barrier", qos=0) as barrier,
    ):
        for number in range(5):
            await client.publish(name, str(number), qos=0)
        await client.publish(f"{name}/barrier", b"", qos=0)
        await barrier.get(WAIT_S)  # what was sent before it has come before it
        assert [(await messages.get(WAIT_S)).payload for _ in range(3)] == [b"0", b"1", b"2"]
        await client.publish(name, b"after", qos=0)
        assert (await messages.get(WAIT_S)).payload == b"after"


RULES = """
[[acl]]
permission = "deny"
action = "publish"
topics = ["closed/#"]

[[acl]]
permission = "deny"
action = "subscribe"
topics = ["secret/#"]
"""


async def test_rules_of_the_broker_are_errors_with_the_topic(fresh_broker: BrokerFactory) -> None:
    broker = fresh_broker(config=RULES)
    async with Client(broker.host, broker.mqtt_port) as client:
        with pytest.raises(NotAuthorizedError, match=r"publish to 'closed/a' refused with 0x87"):
            await client.publish("closed/a", b"")
        for _ in range(2):  # a refused subscription leaves nothing behind
            with pytest.raises(NotAuthorizedError, match="subscription to 'secret/a' refused"):
                await client.subscribe("secret/a").start()


async def test_wrong_passwords_are_not_tried_again(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    users = add_user(tmp_path, "anna", "right")
    broker = fresh_broker({"auth.password_file": str(users)})
    for fields in ({"username": "anna", "password": "wrong"}, {"username": "anna"}, {}):
        with pytest.raises((BadCredentialsError, NotAuthorizedError), match="refused with 0x8"):
            async with Client(broker.host, broker.mqtt_port, **fields):  # type: ignore[arg-type]
                pass
    async with Client(broker.host, broker.mqtt_port, username="anna", password="right"):
        pass


async def test_tls_with_a_context_and_without_trust(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "authority")
    identity = authority.server()
    broker = fresh_broker(
        {
            "listeners.mqtts.port": 0,
            "tls.certificate": str(identity.certificate),
            "tls.key": str(identity.key),
        }
    )
    context = ssl.create_default_context(cafile=str(authority.certificate))
    client = Client("localhost", broker.tls_port, tls=context)
    async with client, client.subscribe("a") as messages:
        sent = [b"x" * size for size in (0, 1, 100_000, 20_000)]
        for payload in sent:
            await client.publish("a", payload)
        assert [(await messages.get(WAIT_S)).payload for _ in sent] == sent
    with pytest.raises(BrokerDownError, match="certificate"):
        async with Client("localhost", broker.tls_port, tls=True):
            pass
