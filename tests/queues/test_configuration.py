"""Settings of a queue (section 8): where they come from, which one wins, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import BrokerFactory
from tests.harness.broker import Broker, BrokerError
from tests.queues import rest
from tests.queues.client import SUCCESS, TOO_LARGE, UNSPECIFIED, QueueClient, fnv1a, key_of
from tests.queues.conftest import Connect, MakeQueue

FILE = """
[queues.defaults]
partitions = 5
[queues.defaults.limits]
max_message_size = 100

[queues."tasks/x"]
partitions = 7
"""

WRONG: list[dict[str, Any]] = [
    {"partitions": 0},
    {"partitions": 1001},
    {"partitions": "many"},
    {"ordering": "random"},
    {"ordering": "strict", "partitions": 2},
    {"retry_policy": {"max_retries": -1}},
    {"retry_policy": {"initial_backoff": "10s", "max_backoff": "5s"}},
    {"retry_policy": {"backoff_multiplier": 0.5}},
    {"retry_policy": {"total_timeout": "-1s"}},
    {"retry_policy": {"initial_backoff": "soon"}},
    {"limits": {"max_message_size": 0}},
    {"limits": {"max_queue_depth": 0}},
    {"limits": {"message_ttl": "-5s"}},
    {"performance": {"delivery_timeout": "0s"}},
    {"performance": {"batch_size": 0}},
    {"performance": {"heartbeat_timeout": "0s"}},
    {"performance": {"prefetch": 0}},
    {"overflow": "explode"},
    {"retry_blocks": "everything"},
    {"key_inflight": -1},
    {"type": "ring"},
    {"partitons": 3},
    {"limits": {"max_depth": 3}},
    {"unknown": {"nested": 1}},
]


def partition_of(client: QueueClient, queue: str, key: str) -> int:
    client.publish_each(queue, "probe", key=key)
    client.subscribe(queue, group="probe")
    return client.receive_and_ack(1)[0].partition


@pytest.mark.rule("section 8")
def test_a_queues_own_settings_win_over_the_defaults_of_the_file(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    client = connect(of=fresh_broker(config=FILE))
    key = "user-123"
    assert partition_of(client, "other", key) == fnv1a(key) % 5
    assert partition_of(client, "tasks/x", key) == fnv1a(key) % 7
    for queue in ("other", "tasks/x"):
        assert client.publish(queue, b"x" * 101) == TOO_LARGE


@pytest.mark.rule("section 8")
def test_settings_at_run_time_lie_over_the_defaults_of_the_file(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    client = connect(of=fresh_broker(config=FILE))
    assert client.configure("mine", partitions=9) == SUCCESS
    assert partition_of(client, "mine", "user-123") == fnv1a("user-123") % 9
    assert client.publish("mine", b"x" * 101) == TOO_LARGE
    assert client.configure("mine", limits={"max_message_size": 200}) == SUCCESS
    assert client.publish("mine", b"x" * 101) == SUCCESS


@pytest.mark.rule("section 8")
def test_defaults_may_be_set_on_the_command_line(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    client = connect(of=fresh_broker({"queues.defaults.partitions": 3}))
    assert partition_of(client, "any", "user-123") == 2


@pytest.mark.rule("section 8")
def test_a_partial_change_leaves_the_other_settings_alone(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client = connect()
    queue = make_queue(partitions=1, limits={"max_message_size": 50, "max_queue_depth": 2})
    assert client.configure(queue, limits={"max_queue_depth": 3}) == SUCCESS
    assert client.publish(queue, b"x" * 51) == TOO_LARGE
    client.publish_each(queue, "1", "2", "3")
    assert client.publish(queue, "4") >= UNSPECIFIED


@pytest.mark.rule("section 8")
@pytest.mark.parametrize("wrong", WRONG, ids=json.dumps)
def test_a_wrong_setting_is_refused_and_changes_nothing(
    connect: Connect, make_queue: MakeQueue, wrong: dict[str, Any]
) -> None:
    client, queue = connect(), make_queue(partitions=3, limits={"max_message_size": 50})
    assert client.configure(queue, **wrong) >= UNSPECIFIED
    assert partition_of(client, queue, "user-123") == 2
    assert client.publish(queue, b"x" * 51) == TOO_LARGE


@pytest.mark.rule("section 8")
def test_a_refused_change_with_one_good_half_changes_nothing(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(limits={"max_message_size": 50})
    assert client.configure(queue, limits={"max_message_size": 99}, partitions=0) >= UNSPECIFIED
    assert client.publish(queue, b"x" * 51) == TOO_LARGE


@pytest.mark.rule("section 8", "section 2")
@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"3", b"\xff\xfe", b"null"])
def test_a_payload_which_is_no_object_is_refused(
    connect: Connect, queue: str, payload: bytes
) -> None:
    client = connect()
    assert client.publish_topic(f"$queue/{queue}/$config", payload) >= UNSPECIFIED


@pytest.mark.rule("section 8", "section 2")
def test_the_answer_names_the_value_and_its_bounds(connect: Connect, queue: str) -> None:
    client = connect()
    answer = client.wire.publish(f"$queue/{queue}/$config", '{"partitions": 1001}', qos=1)
    reason = answer.properties["reason_string"]
    assert all(word in reason for word in ("partitions", "1001", "1000")), reason


@pytest.mark.rule("section 8", "D13")
def test_rest_refuses_the_same_with_400(connect: Connect, broker: Broker, queue: str) -> None:
    for wrong in ({"ordering": "strict", "partitions": 2}, {"partitons": 3}, {"partitions": 0}):
        status, _ = rest.call(broker, "PUT", rest.queue_path(queue), wrong)
        assert status == 400, wrong


@pytest.mark.rule("section 8")
def test_a_queue_may_be_configured_by_rest_and_read_by_mqtt(
    connect: Connect, broker: Broker, queue: str
) -> None:
    status, answer = rest.call(broker, "PUT", rest.queue_path(queue), {"partitions": 3})
    assert status in (200, 201), answer
    assert partition_of(connect(), queue, "user-123") == 2


@pytest.mark.rule("section 8")
def test_partitions_may_grow_and_only_new_messages_are_hashed_anew(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(partitions=3)
    client.publish_each(queue, "old", key="user-123")
    assert client.configure(queue, partitions=10) == SUCCESS
    client.publish_each(queue, "new", key="user-123")
    client.subscribe(queue)
    received = {one.payload: one.partition for one in client.receive_and_ack(2)}
    assert received == {"old": 2, "new": 3}


@pytest.mark.rule("section 8")
def test_partitions_never_shrink(connect: Connect, make_queue: MakeQueue) -> None:
    client, queue = connect(), make_queue(partitions=3)
    assert client.configure(queue, partitions=2) >= UNSPECIFIED
    assert partition_of(client, queue, "user-123") == 2


@pytest.mark.rule("section 8", "D11")
def test_new_partitions_are_shared_among_the_consumers_which_are_there(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1)
    first, second = connect("w-a"), connect("w-b")
    first.subscribe(queue)
    second.subscribe(queue)
    assert first.configure(queue, partitions=2) == SUCCESS
    first.publish_each(queue, "x", key=key_of(1, 2))
    assert second.receive().partition == 1
    first.expect_silence(0.2)


@pytest.mark.rule("section 8")
def test_a_change_reaches_consumers_which_are_there(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(partitions=1, performance={"prefetch": 1})
    client.subscribe(queue)
    client.publish_each(queue, "1", "2", "3")
    client.receive()
    client.expect_silence()
    assert client.configure(queue, performance={"prefetch": 2}) == SUCCESS
    assert client.receive(timeout=5).payload == "2"
    client.expect_silence()


@pytest.mark.rule("section 8")
@pytest.mark.parametrize(
    "config",
    [
        "[queues.defaults]\npartitions = 0\n",
        "[queues.defaults]\nunknown = 1\n",
        '[queues."x"]\nordering = "strict"\npartitions = 2\n',
        '[queues."x".retry_policy]\ninitial_backoff = "10s"\nmax_backoff = "1s"\n',
    ],
)
def test_a_broker_does_not_start_with_a_wrong_queue_setting(
    fresh_broker: BrokerFactory, config: str
) -> None:
    with pytest.raises(BrokerError):
        fresh_broker(config=config)


@pytest.mark.rule("section 8")
def test_a_configured_but_unused_group_expiry_of_zero_means_never(
    connect: Connect, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=1, group_expiry=0)
    client = connect()
    client.subscribe(queue, group="g")
    client.disconnect()
    connect().publish_each(queue, "x")
    back = connect()
    back.subscribe(queue, group="g")
    assert back.receive().payload == "x"


@pytest.mark.rule("section 2", "section 8")
@pytest.mark.parametrize("settings", [{"partitions": 3}, {"type": "stream"}], ids=json.dumps)
def test_the_admin_topic_creates_a_queue_with_any_settings(
    connect: Connect, broker: Broker, queue: str, settings: dict[str, Any]
) -> None:
    assert connect().configure(queue, **settings) == SUCCESS
    _, answer = rest.call(broker, "GET", rest.queue_path(queue))
    assert {key: answer["settings"][key] for key in settings} == settings


@pytest.mark.rule("section 2", "D2")
def test_the_admin_topic_below_a_queue_with_sublevels_means_that_name(
    connect: Connect, make_queue: MakeQueue
) -> None:
    client, queue = connect(), make_queue(partitions=1, sublevels=True)
    assert client.configure(f"{queue}/deep", limits={"max_message_size": 3}) == SUCCESS
    assert client.publish(f"{queue}/deep", "12345") == TOO_LARGE
    assert client.publish(queue, "12345") == SUCCESS
