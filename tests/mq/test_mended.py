"""Where the first answer of the product was wrong."""

from __future__ import annotations

import pytest

from tests.conftest import BrokerFactory
from tests.mq.client import NOT_AUTHORIZED, UNSPECIFIED
from tests.mq.conftest import Connect, MakeQueue
from tests.mq.rest import MqRest

SECRET = """
[[acl]]
permission = "deny"
action = "subscribe"
topics = ["secret/#"]
[[acl]]
permission = "allow"
action = "all"
topics = ["#"]
"""


@pytest.mark.rule("M1")
def test_an_address_without_a_filter_is_refused(rest: MqRest, connect: Connect) -> None:
    before = rest.names()
    client = connect()
    assert client.subscribe("$q/") >= UNSPECIFIED
    assert client.subscribe("$q") == 1, "an ordinary filter, as any other"
    assert rest.names() == before


@pytest.mark.rule("M25")
def test_unacknowledged_messages_stop_the_reading(connect: Connect, regular: MakeQueue) -> None:
    queue = regular(local_max_inflight=100, stream_max_buffer_size=2, stream_max_unacked=5)
    client = connect()
    client.publish_each(queue.topic(), *map(str, range(60)))
    client.subscribe(queue.address)
    held = client.hold_all()
    assert 5 <= len(held) < 60
    client.ack(*held)
    assert sorted([*(one.payload for one in held), *client.drain()], key=int) == list(
        map(str, range(60))
    )


@pytest.mark.rule("M3", "M12")
def test_a_waiting_named_address_creates_no_queue_beside_durable_queues(
    rest: MqRest, connect: Connect, root: str
) -> None:
    queue = rest.create(f"{root}/a/#", name=root, is_lastvalue=False)
    client = connect()
    assert client.subscribe(f"$queue/{root}/{root}/b/#") == 1
    rest.delete(queue)
    client.expect_silence(1.0)
    assert root not in rest.names()


@pytest.mark.rule("M11")
def test_who_may_not_read_a_topic_may_not_read_it_through_a_queue(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker(config=SECRET)
    client = connect(of=broker)
    for topic_filter in ("secret/#", "$share/g/secret/#", "$q/secret/#", "$q/#"):
        assert client.subscribe(topic_filter) == NOT_AUTHORIZED, topic_filter
    assert MqRest(broker).names() == []
