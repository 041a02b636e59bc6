"""Requests and replies over queues (section 9, acceptance 19)."""

from __future__ import annotations

import uuid

import pytest

from tests.conftest import BrokerFactory
from tests.queues.client import SUCCESS, QueueClient
from tests.queues.conftest import Connect


def service() -> str:
    return f"requests/{uuid.uuid4().hex[:10]}"


def ask(client: QueueClient, queue: str, question: str) -> str:
    """Send a request and await its reply in a queue of its own; the correlation id."""
    cid = str(uuid.uuid4())
    assert client.subscribe(f"responses/{cid}") == 1
    code = client.publish(
        queue,
        question,
        response_topic=f"$queue/responses/{cid}",
        correlation_data=cid.encode(),
    )
    assert code == SUCCESS
    return cid


def serve_one(worker: QueueClient) -> None:
    """Answer one request where it wants to be answered, then settle it."""
    request = worker.receive()
    properties = request.packet.properties
    topic, correlation = properties["response_topic"], properties["correlation_data"]
    code = worker.publish_topic(topic, request.payload.upper(), correlation_data=correlation)
    assert code == SUCCESS
    assert worker.ack(request) == SUCCESS


@pytest.mark.rule("section 9")
def test_a_reply_finds_its_requester_with_the_same_correlation_data(connect: Connect) -> None:
    queue = service()
    worker, client = connect(), connect()
    worker.subscribe(queue, group="workers")
    cid = ask(client, queue, "hello")
    serve_one(worker)
    reply = client.receive()
    assert reply.payload == "HELLO"
    assert reply.packet.topic == f"$queue/responses/{cid}"
    assert reply.packet.properties["correlation_data"] == cid.encode()
    assert client.ack(reply) == SUCCESS


@pytest.mark.rule("section 9")
def test_requests_of_many_are_answered_each_to_its_own(connect: Connect) -> None:
    queue = service()
    worker = connect()
    worker.subscribe(queue, group="workers")
    clients = [connect() for _ in range(4)]
    for number, client in enumerate(clients):
        ask(client, queue, f"question {number}")
    for _ in clients:
        serve_one(worker)
    for number, client in enumerate(clients):
        assert client.receive().payload == f"QUESTION {number}"
        client.expect_silence(0.1)


@pytest.mark.rule("section 9")
def test_a_reply_waits_for_a_requester_which_subscribes_late(connect: Connect) -> None:
    cid = str(uuid.uuid4())
    worker, client = connect(), connect()
    assert worker.publish(f"responses/{cid}", "early", correlation_data=cid.encode()) == SUCCESS
    assert client.subscribe(f"responses/{cid}") == 1
    assert client.receive().payload == "early"


@pytest.mark.rule("section 9", "acceptance 19")
def test_without_a_worker_there_is_no_reply_and_a_late_one_goes_to_its_own_address(
    connect: Connect,
) -> None:
    queue = service()
    client = connect()
    first = ask(client, queue, "slow")
    client.expect_silence()
    client.wire.unsubscribe(f"$queue/responses/{first}")
    second = ask(client, queue, "quick")
    worker = connect()
    worker.subscribe(queue, group="workers")
    serve_one(worker)
    serve_one(worker)
    reply = client.receive()
    assert reply.packet.topic == f"$queue/responses/{second}"
    assert reply.payload == "QUICK"
    client.expect_silence()


@pytest.mark.rule("section 9")
def test_a_request_survives_its_worker(connect: Connect) -> None:
    queue = service()
    client, crashing, healthy = connect(), connect(), connect()
    crashing.subscribe(queue, group="workers")
    ask(client, queue, "important")
    crashing.receive()
    crashing.abort()
    healthy.subscribe(queue, group="workers")
    serve_one(healthy)
    assert client.receive().payload == "IMPORTANT"


@pytest.mark.rule("section 9")
def test_reply_queues_are_kept_in_memory_only_and_requests_on_disk(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker()
    cid = str(uuid.uuid4())
    client = connect(of=broker)
    assert client.publish("requests/x", "request") == SUCCESS
    assert client.publish(f"responses/{cid}", "reply") == SUCCESS
    broker.restart()
    reader = connect(of=broker)
    reader.subscribe(f"responses/{cid}", group="g")
    reader.expect_silence()
    reader.subscribe("requests/x", group="g")
    assert reader.receive().payload == "request"


@pytest.mark.rule("section 9", "D16")
def test_a_3_1_1_client_may_read_replies(connect: Connect) -> None:
    cid = str(uuid.uuid4())
    client = connect(version=4)
    assert client.subscribe(f"responses/{cid}") == 1
    assert connect().publish(f"responses/{cid}", "reply") == SUCCESS
    assert client.receive().payload == "reply"
