"""The blocking facade: the same names, from ordinary threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from queuelake.client import ClientClosedError, QueueFullError, RequestTimeoutError
from queuelake.client.blocking import Client
from queuelake.errors import BrokerDownError
from tests.crash.ports import free_port
from tests.harness.broker import Broker

WAIT_S = 15.0


@pytest.fixture
def calm(broker: Broker) -> Iterator[Client]:
    with Client(broker.host, broker.mqtt_port) as opened:
        assert opened.connected
        yield opened


def test_topics(calm: Client, name: str) -> None:
    with calm.subscribe(f"{name}/+") as messages:
        calm.publish(f"{name}/a", "hello", properties={"a": "b"})
        message = messages.get(WAIT_S)
        assert (message.topic, message.payload) == (f"{name}/a", b"hello")
        with pytest.raises(TimeoutError):
            messages.get(0.1)


def test_a_queue_from_publish_to_dead_letter(calm: Client, name: str) -> None:
    queue = calm.queue(name)
    assert (queue.name, queue.address) == (name, f"$queue/{name}")
    queue.configure({"limits": {"max_queue_depth": 3}})
    for number in range(3):
        queue.publish(str(number), key="k", properties={"n": str(number)})
    with pytest.raises(QueueFullError):
        queue.publish(b"4", key="k")
    seen = []
    for message in queue.consume(group="g", prefetch=1):
        seen.append((message.payload, message.delivery_count))
        if seen == [(b"0", 1)]:
            assert message.nack()
        elif message.payload == b"1":
            assert message.reject("odd")
        else:
            assert message.ack()
        if message.payload == b"2":
            assert (message.key, message.properties) == ("k", {"n": "2"})
            break
    assert seen == [(b"0", 1), (b"0", 2), (b"1", 1), (b"2", 1)]
    with calm.queue(f"dlq/{name}").consume(group="g") as letters:
        assert letters.get(WAIT_S).ack()


def test_request_and_reply(broker: Broker, calm: Client, name: str) -> None:
    with pytest.raises(RequestTimeoutError):
        calm.request(f"requests/{name}", b"anybody?", timeout=0.3)

    def answer_one() -> None:
        with Client(broker.host, broker.mqtt_port) as worker:
            for request in worker.serve(f"requests/{name}"):
                worker.reply(request, request.payload + b"!")
                if request.payload == b"hello":
                    break

    thread = threading.Thread(target=answer_one)
    thread.start()
    assert calm.request(f"requests/{name}", b"hello", timeout=WAIT_S).payload == b"hello!"
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_many_threads_share_a_client(calm: Client, name: str) -> None:
    def publish(number: int) -> None:
        for count in range(20):
            calm.publish(f"{name}/{number}", str(count))

    with calm.subscribe(f"{name}/+") as messages:
        threads = [threading.Thread(target=publish, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        received = [messages.get(WAIT_S) for _ in range(100)]
        for thread in threads:
            thread.join(WAIT_S)
    for number in range(5):
        of_one = [one.payload for one in received if one.topic == f"{name}/{number}"]
        assert of_one == [str(count).encode() for count in range(20)]


def test_outside_of_with_it_says_so(broker: Broker) -> None:
    client = Client(broker.host, broker.mqtt_port, client_id="outside")
    assert client.client_id == "outside"
    with pytest.raises(ClientClosedError, match="inside `with`"):
        client.publish("a", b"")
    with client:
        client.publish("a", b"")
    with pytest.raises(ClientClosedError):
        client.queue("a").publish(b"")
    with pytest.raises(BrokerDownError), Client("127.0.0.1", free_port()):
        pass
    assert not [one for one in threading.enumerate() if one.name == "queuelake-client"]
