"""The broker is killed under producers and consumers: nothing lost, nothing stored twice."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from queuelake.client import Delivery
from queuelake.client import blocking as facade
from queuelake.client.subscription import Subscription
from tests.conftest import BrokerFactory
from tests.crash.ports import free_port
from tests.harness.broker import BrokerProcess
from tests.sdk.test_reconnect import WAIT_S, client_of, crash, until

MESSAGES = 400
CRASHES = 3


async def drained(messages: Subscription[Delivery], idle_s: float = 2.0) -> Counter[bytes]:
    """Ack what comes until nothing comes; count the payloads which the broker let go."""
    counts: Counter[bytes] = Counter()
    while True:
        try:
            message = await messages.get(idle_s)
        except TimeoutError:
            return counts
        if await message.ack():
            counts[message.payload] += 1


async def test_publishes_under_way_when_the_broker_dies_are_stored_once(
    crashing: BrokerProcess,
) -> None:
    async with client_of(crashing, client_id="producer") as client:
        queue = client.queue("q")
        sent = 0

        async def produce(lane: int) -> None:
            nonlocal sent
            for number in range(MESSAGES // 8):
                await queue.publish(f"{lane}/{number}", key=str(lane))
                sent += 1

        lanes = [asyncio.create_task(produce(lane)) for lane in range(8)]
        for number in range(CRASHES):
            await until(lambda: sent >= (number + 1) * MESSAGES // (CRASHES + 2))  # noqa: B023
            await crash(crashing)
        await asyncio.gather(*lanes)
        async with queue.consume(group="g") as messages:
            counts = await drained(messages)
    expected = {f"{lane}/{n}".encode() for lane in range(8) for n in range(MESSAGES // 8)}
    assert set(counts) == expected
    assert set(counts.values()) == {1}, counts.most_common(3)


async def test_an_answer_lost_with_the_connection_is_no_second_message(
    crashing: BrokerProcess,
) -> None:
    """The broker has stored the message, its PUBACK never arrives, the client sends it again."""
    async with client_of(crashing, client_id="producer") as client:
        queue = client.queue("q")
        connection = client._session._connection
        assert connection is not None
        connection._client.on_publish = lambda *_: None  # the PUBACK falls on deaf ears
        publishing = asyncio.create_task(queue.publish(b"once"))
        consumer = client_of(crashing)
        async with consumer, consumer.queue("q").consume(group="g") as messages:
            message = await messages.get(WAIT_S)
            assert not publishing.done()
            await crash(crashing)
            await publishing
            await until(lambda: consumer.connected)
            assert not await message.ack()
            again = await messages.get(WAIT_S)
            assert (again.id, again.delivery_count) == (message.id, 2)
            assert await again.ack()
            assert not await drained(messages, 1.0)


async def test_a_settlement_after_a_reconnect_says_that_the_delivery_went_back(
    crashing: BrokerProcess,
) -> None:
    client = client_of(crashing)
    async with client, client.queue("q").consume(group="g") as messages:
        await client.queue("q").publish(b"1", key="k")
        await client.queue("q").publish(b"2", key="k")
        held = await messages.get(WAIT_S)
        await until(lambda: len(messages._buffer) == 1)
        await crash(crashing)
        await until(lambda: client.connected)
        for settle in (held.ack, held.nack, held.reject):
            assert await settle() is False
        # The second one waited in the client: it is shown once, as the broker delivers it again.
        for payload in (b"1", b"2"):
            again = await messages.get(WAIT_S)
            assert (again.payload, again.delivery_count) == (payload, 2)
            assert await again.ack()
        assert not await drained(messages, 1.0)


async def test_a_settlement_while_there_is_no_broker_does_not_wait(
    crashing: BrokerProcess,
) -> None:
    client = client_of(crashing)
    async with client, client.queue("q").consume(group="g") as messages:
        await client.queue("q").publish(b"1")
        held = await messages.get(WAIT_S)
        await asyncio.to_thread(crashing.kill)
        assert await asyncio.wait_for(held.ack(), WAIT_S) is False


@pytest.mark.parametrize("ack_mode", ["explicit", "puback"])
async def test_a_consumer_goes_on_after_a_crash(crashing: BrokerProcess, ack_mode: str) -> None:
    producer, consumer = client_of(crashing), client_of(crashing)
    async with producer, consumer:
        done: set[bytes] = set()

        async def consume() -> None:
            queue = consumer.queue("q")
            async for message in queue.consume(group="g", ack_mode=ack_mode):  # type: ignore[arg-type]
                done.add(message.payload)
                await message.ack()

        consuming = asyncio.create_task(consume())
        for number in range(30):
            if number in (10, 20):
                await crash(crashing)
            await producer.queue("q").publish(str(number), key="k")
        await until(lambda: len(done) == 30)
        consuming.cancel()
        await asyncio.gather(consuming, return_exceptions=True)


async def test_a_request_survives_a_crash(crashing: BrokerProcess) -> None:
    requester, worker = client_of(crashing), client_of(crashing)
    async with requester, worker, worker.serve("requests/s") as requests:
        asking = asyncio.create_task(requester.request("requests/s", b"?", timeout=WAIT_S))
        first = await requests.get(WAIT_S)
        await crash(crashing)
        await until(lambda: worker.connected and requester.connected)
        assert not await first.ack()
        again = await requests.get(WAIT_S)
        assert await worker.reply(again, b"!")
        assert (await asking).payload == b"!"


async def test_a_stream_goes_on_where_it_was(fresh_broker: BrokerFactory) -> None:
    broker = fresh_broker(
        {"listeners.mqtt.port": free_port()}, config='[queues."events"]\ntype = "stream"\n'
    )
    client = client_of(broker)
    async with client, client.queue("events").consume(group="g", stream_offset="first") as messages:
        for payload in (b"1", b"2"):
            await client.queue("events").publish(payload, key="k")
            message = await messages.get(WAIT_S)
            assert message.payload == payload
            assert await message.ack()
            await crash(broker)
            await until(lambda: client.connected)
        assert not await drained(messages, 1.0)


def test_the_blocking_client_reconnects_too(crashing: BrokerProcess) -> None:
    with facade.Client(crashing.host, crashing.mqtt_port, reconnect_delay_max=0.2) as client:
        queue = client.queue("q")
        queue.publish(b"1")
        with queue.consume(group="g") as messages:
            held = messages.get(WAIT_S)
            crashing.kill()
            crashing.restart()
            queue.publish(b"2")
            assert held.ack() is False
            assert {messages.get(WAIT_S).payload for _ in range(2)} == {b"1", b"2"}
