"""Requests and replies through the SDK."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator

import pytest

from queuelake.client import Client, RequestTimeoutError
from queuelake.errors import RefusedError
from tests.harness.broker import Broker

WAIT_S = 15.0


@pytest.fixture
def service() -> str:
    return f"requests/{uuid.uuid4().hex[:12]}"


@contextlib.asynccontextmanager
async def upper_case(client: Client, service: str) -> AsyncIterator[None]:
    """A worker which answers in capitals."""

    async def work() -> None:
        async for request in client.serve(service):
            await client.reply(request, request.payload.upper(), properties={"by": "worker"})

    working = asyncio.create_task(work())
    try:
        yield
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def test_a_request_gets_its_reply(client: Client, other: Client, service: str) -> None:
    async with upper_case(other, service):
        reply = await client.request(service, "hello", timeout=WAIT_S)
    assert reply.payload == b"HELLO"
    assert reply.properties == {"by": "worker"}
    assert reply.correlation_data is not None
    assert reply.correlation_data.decode() in reply.topic


async def test_replies_find_their_requests(client: Client, other: Client, service: str) -> None:
    async with upper_case(other, service):
        asked = [f"question {number}" for number in range(20)]
        replies = await asyncio.gather(
            *(client.request(service, one, timeout=WAIT_S) for one in asked)
        )
    assert [reply.payload.decode() for reply in replies] == [one.upper() for one in asked]


async def test_workers_share_the_requests(broker: Broker, client: Client, service: str) -> None:
    counts = {"one": 0, "two": 0}

    async def work(who: str) -> None:
        async with Client(broker.host, broker.mqtt_port) as worker:
            async for request in worker.serve(service):
                counts[who] += 1
                await worker.reply(request, who)

    working = [asyncio.create_task(work(who)) for who in counts]
    replies = [await client.request(service, b"", timeout=WAIT_S) for _ in range(20)]
    for task in working:
        task.cancel()
    await asyncio.gather(*working, return_exceptions=True)
    assert sum(counts.values()) == len(replies)


async def test_no_reply_in_time_is_an_error(client: Client, service: str) -> None:
    with pytest.raises(RequestTimeoutError, match=rf"'\$queue/{service}' within 0\.3 s"):
        await client.request(service, b"anybody?", timeout=0.3)


async def test_a_late_reply_is_ignored(client: Client, other: Client, service: str) -> None:
    async with other.serve(service) as requests:
        with pytest.raises(RequestTimeoutError):
            await client.request(service, b"first", timeout=0.5)
        late = await requests.get(WAIT_S)
        assert await other.reply(late, b"too late")
        asking = asyncio.create_task(client.request(service, b"second", timeout=WAIT_S))
        request = await requests.get(WAIT_S)
        assert request.payload == b"second"
        assert await other.reply(request, b"in time")
        assert (await asking).payload == b"in time"


async def test_a_reply_goes_to_an_ordinary_topic_too(
    client: Client, other: Client, service: str, name: str
) -> None:
    async with client.subscribe(name) as answers, other.serve(service) as requests:
        await client.queue(service).publish(b"?", response_topic=name, correlation_data=b"7")
        assert await other.reply(await requests.get(WAIT_S), b"!")
        answer = await answers.get(WAIT_S)
    assert (answer.payload, answer.correlation_data) == (b"!", b"7")


async def test_what_is_no_request_cannot_be_answered(client: Client, service: str) -> None:
    await client.queue(service).publish(b"just work")
    async with client.serve(service) as requests:
        message = await requests.get(WAIT_S)
        with pytest.raises(RefusedError, match="no response topic"):
            await client.reply(message, b"")
        assert await message.ack()
