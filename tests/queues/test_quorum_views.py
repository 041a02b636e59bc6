"""Quorum queues where operators see and change them: settings, REST, metrics, `queuelake queue`."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from queuelake.config import load_settings
from queuelake.errors import ConfigError
from queuelake.queue_settings import QUORUM_BASE, QueueSettings, configured, settings_of
from tests.harness.broker import Broker, BrokerProcess
from tests.queues import rest
from tests.queues.client import SPECIFIC, SUCCESS, wait_until
from tests.queues.conftest import Connect, MakeQueue

QUORUM = {"type": "quorum"}


def get(broker: Broker, queue: str, *path: str) -> Any:
    status, answer = rest.call(broker, "GET", rest.queue_path(queue, *path))
    assert status == 200, answer
    return answer


# Settings


def mistakes(tree: dict[str, object]) -> str:
    with pytest.raises(Exception, match="=") as caught:
        settings_of("q", QueueSettings(), tree)
    return str(caught.value)


@pytest.mark.rule("section 9")
@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (
            {"type": "quorum", "partitions": 4},
            'partitions = 4: a setting of type "classic" and "stream", not of "quorum"',
        ),
        (
            {"delivery_limit": 3},
            'delivery_limit = 3: a setting of type "quorum", not of "classic"',
        ),
        (
            {"type": "stream", "max_length": 3},
            'max_length = 3: a setting of type "quorum", not of "stream"',
        ),
        (
            {"type": "quorum", "overflow": "reject"},
            'overflow = "reject": allowed for type "quorum": "drop_head", "reject_publish"',
        ),
        (
            {"overflow": "reject_publish"},
            'overflow = "reject_publish": allowed for type "classic": "drop_head", "reject"',
        ),
        (
            {"type": "quorum", "delayed_retry_min": "2m"},
            'delayed_retry_min = "2m": allowed: at most delayed_retry_max = "1m"',
        ),
        (
            {"type": "quorum", "dead_letter_queue": "elsewhere"},
            'dead_letter_queue = "elsewhere": allowed: the address of a queue',
        ),
        (
            {"type": "quorum", "delivery_limit": -2},
            "delivery_limit = -2: allowed: an integer from -1",
        ),
        (
            {"type": "quorum", "archive": True},
            'archive = true: a setting of type "classic" and "stream", not of "quorum"',
        ),
        (
            {"type": "quorum", "initial_group_size": 5},
            "initial_group_size = 5: no setting of a queue: in a cluster every queue is on all",
        ),
        (
            {"type": "quorum", "target_group_size": 5},
            "target_group_size = 5: no setting of a queue: in a cluster every queue is on all",
        ),
        (
            {"type": "quorum", "queue_leader_locator": "balanced"},
            'queue_leader_locator = "balanced": no setting of a queue: one node serves all queues',
        ),
        (
            {"type": "quorum", "dead_letter_exchange": "x"},
            'dead_letter_exchange = "x": no setting of a queue: dead_letter_queue has the address',
        ),
    ],
)
def test_a_setting_which_makes_no_sense_is_named_with_its_type(
    tree: dict[str, object], expected: str
) -> None:
    assert expected in mistakes(tree)


def test_a_queue_of_dead_letters_is_no_quorum_queue() -> None:
    with pytest.raises(Exception, match='is of type "classic"'):
        settings_of("dlq/q", QueueSettings(), {"type": "quorum"})


def test_settings_as_they_were_read_can_be_written_back() -> None:
    for settings in (QueueSettings(), QUORUM_BASE):
        assert configured(settings, msgspec.to_builtins(settings), "q") == settings


def test_defaults_hold_for_quorum_queues_too(tmp_path: Any) -> None:
    path = tmp_path / "queuelake.toml"
    path.write_text("[queues.defaults]\npartitions = 4\ndelivery_limit = 7\n")
    defaults = load_settings(str(path), {}, [])[0].queues.defaults
    assert settings_of("q", defaults, {"type": "quorum"}).delivery_limit == 7
    assert settings_of("q", defaults, {"type": "quorum"}).partitions == 1
    assert settings_of("q", defaults, {}).partitions == 4


def test_not_every_queue_is_a_quorum_queue() -> None:
    with pytest.raises(ConfigError, match="allowed: in the table of one queue"):
        load_settings(None, {}, ['queues.defaults.type="quorum"'])


@pytest.mark.rule("section 9")
def test_settings_change_at_run_time_by_rest_and_by_a_publish(
    connect: Connect, make_queue: MakeQueue, broker: Broker
) -> None:
    queue = make_queue(**QUORUM, delivery_limit=3)
    client = connect()
    assert client.configure(queue, max_length=7) == SUCCESS
    make_queue(queue, single_active_consumer=True)
    info = get(broker, queue)
    assert info["configured"] == {
        "type": "quorum",
        "delivery_limit": 3,
        "max_length": 7,
        "single_active_consumer": True,
    }
    assert client.configure(queue, type="classic") == SPECIFIC
    assert client.configure(queue, partitions=3) == SPECIFIC


def test_a_publish_of_settings_makes_a_quorum_queue(
    connect: Connect, queue: str, broker: Broker
) -> None:
    assert connect().configure(queue, type="quorum") == SUCCESS
    assert get(broker, queue)["settings"]["type"] == "quorum"


# Views


@pytest.mark.rule("section 12")
def test_rest_shows_what_a_queue_holds_and_who_consumes_it(
    connect: Connect, make_queue: MakeQueue, broker: Broker
) -> None:
    queue = make_queue(**QUORUM, single_active_consumer=True)
    client, second = connect(), connect()
    client.publish_each(queue, "a", "b", "c")
    client.subscribe(queue, prefetch="1")
    second.subscribe(queue)
    first = client.receive()
    assert client.ack(first) == SUCCESS
    client.receive()
    listed = rest.call(broker, "GET", f"queues?type=quorum&prefix={queue}")[1]["queues"]
    assert [(one["name"], one["type"], one["depth"]) for one in listed] == [
        (f"$queue/{queue}", "quorum", 2)
    ]
    stats = get(broker, queue, "stats")
    assert (stats["depth"], stats["in_flight"], stats["acked_total"]) == (2, 1, 1)
    peeked = get(broker, queue, "messages")["messages"]
    assert [one["offset"] for one in peeked] == [2, 3]  # and nothing changed by that
    assert get(broker, queue, "stats")["depth"] == 2
    consumers = get(broker, queue, "consumers")["consumers"]
    assert {one["client_id"]: (one["held"], one["status"]) for one in consumers} == {
        client.client_id: (1, "up"),
        second.client_id: (0, "waiting"),
    }
    assert rest.call(broker, "POST", rest.queue_path(queue, "purge"))[1] == {"purged": 1}
    assert get(broker, queue, "stats")["depth"] == 1  # what is held stays


def test_dead_letters_are_counted_in_a_quorum_queue_too(
    connect: Connect, make_queue: MakeQueue, broker: Broker
) -> None:
    target = make_queue(**QUORUM)
    queue = make_queue(**QUORUM, dead_letter_queue=f"$queue/{target}")
    client = connect()
    client.publish_each(queue, "x")
    client.subscribe(queue)
    assert client.reject(client.receive()) == SUCCESS
    assert get(broker, queue, "stats")["dlq"] == 1
    assert [one["offset"] for one in get(broker, target, "messages")["messages"]] == [1]


@pytest.mark.rule("Q29")
def test_dead_letters_are_listed_and_sent_back(
    connect: Connect, make_queue: MakeQueue, broker: Broker
) -> None:
    queue = make_queue(**QUORUM)
    client = connect()
    client.publish_each(queue, "x")
    client.subscribe(queue)
    assert client.reject(client.receive()) == SUCCESS
    (letter,) = get(broker, queue, "dlq")["messages"]
    assert (letter["dlq-reason"], get(broker, queue, "stats")["dlq"]) == ("rejected", 1)
    status, done = rest.call(broker, "POST", rest.queue_path(queue, "dlq", letter["id"], "retry"))
    assert status == 202, done
    again = client.receive()
    assert (again.payload, again.properties["x-acquired-count"]) == ("x", "1")
    assert get(broker, queue, "dlq")["messages"] == []


def test_metrics_name_quorum_queues(
    connect: Connect, make_queue: MakeQueue, broker: Broker
) -> None:
    assert isinstance(broker, BrokerProcess)
    queue = make_queue(**QUORUM)
    client = connect()
    client.publish_each(queue, "a", "b")
    client.subscribe(queue)
    assert client.reject(client.receive()) == SUCCESS

    def shown() -> bool:
        text = metrics(broker)
        return (
            f'mqtt_queue_depth{{queue="$queue/{queue}"}} 1' in text
            and f'mqtt_queue_enqueue_total{{queue="$queue/{queue}"}} 2' in text
            and f'mqtt_queue_dlq_total{{queue="$queue/{queue}",reason="rejected"}} 1' in text
        )

    wait_until(shown)


def metrics(broker: BrokerProcess) -> str:
    key = (broker.data_dir / "api-key").read_text().strip()
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=15)
    try:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {key}"})
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def test_the_command_line_makes_and_shows_them(queue: str, broker: Broker) -> None:
    assert isinstance(broker, BrokerProcess)

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "queuelake.cli.main", "queue", *arguments]
        where = ["--data-dir", str(broker.data_dir)]
        done = subprocess.run(
            [*command, *where], capture_output=True, text=True, check=False, env=dict(os.environ)
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert (
        run("create", queue, "--type", "quorum", "delivery_limit=3") == f"created $queue/{queue}\n"
    )
    assert '"delivery_limit": 3' in run("show", queue)
