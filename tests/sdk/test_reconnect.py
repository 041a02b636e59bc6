"""The broker dies and comes back: subscriptions are made again, publishes are confirmed once."""

from __future__ import annotations

import asyncio

import pytest

from queuelake.client import Client, ConfirmTimeoutError
from queuelake.errors import BannedError, NotAuthorizedError
from tests.harness.broker import BrokerProcess

WAIT_S = 30.0


def client_of(broker: BrokerProcess, **fields: object) -> Client:
    fields = {"reconnect_delay_min": 0.05, "reconnect_delay_max": 0.2} | fields
    return Client(broker.host, broker.mqtt_port, **fields)  # type: ignore[arg-type]


async def crash(broker: BrokerProcess) -> None:
    await asyncio.to_thread(broker.kill)
    await asyncio.to_thread(broker.restart)


async def until(reached: object) -> None:
    assert callable(reached)
    async with asyncio.timeout(WAIT_S):
        while not reached():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_topic_is_subscribed_again(crashing: BrokerProcess) -> None:
    client = client_of(crashing)
    async with client, client.subscribe("a/+") as messages:
        await crash(crashing)
        await client.publish("a/1", b"after")  # waits for the connection
        assert (await messages.get(WAIT_S)).payload == b"after"


async def test_a_publish_while_there_is_no_broker_waits_for_it(crashing: BrokerProcess) -> None:
    async with client_of(crashing) as client:
        await asyncio.to_thread(crashing.kill)
        await until(lambda: not client.connected)
        publishing = asyncio.create_task(client.publish("a", b"x", retain=True))
        await asyncio.sleep(0.2)
        assert not publishing.done()
        await asyncio.to_thread(crashing.restart)
        await publishing
        async with client.subscribe("a") as messages:
            assert (await messages.get(WAIT_S)).retain


async def test_a_publish_without_an_answer_is_given_up_in_time(crashing: BrokerProcess) -> None:
    async with client_of(crashing, confirm_timeout=0.3) as client:
        await asyncio.to_thread(crashing.kill)
        await until(lambda: not client.connected)
        with pytest.raises(ConfirmTimeoutError, match=r"within 0\.3 s \(not connected\)"):
            await client.publish("a", b"")
        with pytest.raises(ConfirmTimeoutError, match="subscription to 'b'"):
            await client.subscribe("b").start()
        crashing.restart()
        await until(lambda: client.connected)
        await client.publish("a", b"")


async def test_a_client_which_is_not_wanted_any_more_stops_trying(
    crashing: BrokerProcess,
) -> None:
    async with client_of(crashing, client_id="unwanted") as client:
        waiting = asyncio.create_task(client.subscribe("a").get())
        await client.publish("b", b"")
        crashing.kill()
        crashing.config = '[[bans]]\nclientid = "unwanted"\n'
        crashing.restart()
        for call in (waiting, client.publish("a", b"")):
            with pytest.raises((BannedError, NotAuthorizedError)):
                await asyncio.wait_for(call, WAIT_S)


async def test_leaving_while_there_is_no_broker_takes_no_time(crashing: BrokerProcess) -> None:
    async with asyncio.timeout(WAIT_S):
        async with client_of(crashing) as client, client.subscribe("a"):
            crashing.kill()
            await until(lambda: not client.connected)
