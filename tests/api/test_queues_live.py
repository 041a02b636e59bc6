"""Settings, state and metrics of queues through the HTTP of a real broker (acceptance 20, 21)."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.api.live import wait_until
from tests.api.queue_rest import Connect, Rest, consume
from tests.conftest import BrokerFactory
from tests.queues.client import SUCCESS, key_of

# Settings


def test_a_queue_is_made_read_changed_and_deleted(rest: Rest, name: str) -> None:
    assert rest.queue(name).status == 404
    made = rest.put(name, partitions=3, retry_policy={"max_retries": 2})
    assert (made.status, made.json["name"]) == (201, f"$queue/{name}")
    changed = rest.put(name, partitions=4)
    assert changed.status == 200
    read = rest.queue(name).json
    assert read == changed.json
    assert read["settings"]["partitions"] == 4
    assert read["settings"]["retry_policy"]["max_retries"] == 2
    assert read["settings"]["retry_policy"]["max_backoff"] == "5m"
    assert read["configured"] == {"partitions": 4, "retry_policy": {"max_retries": 2}}
    assert read["created_at_ms"] > 0
    assert rest.queue(name, method="DELETE").status == 204
    assert rest.queue(name).status == 404
    assert rest.queue(name, method="DELETE").status == 404


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"partitions": 0}, "partitions = 0"),
        ({"partitions": 2}, "partitions = 2"),
        ({"ordering": "strict"}, "strict"),
        ({"type": "stream"}, "type"),
        ({"limits": {"max_depth": 1}}, "limits.max_depth"),
        ({"retry_policy": {"initial_backoff": "10m"}}, "retry_policy.initial_backoff"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    rest: Rest, name: str, settings: dict[str, Any], named: str
) -> None:
    before = rest.put(name, partitions=3).json
    answer = rest.put(name, key_inflight=1, **settings)
    assert (answer.status, answer.json["code"]) == (400, "BAD_REQUEST")
    assert named in answer.json["message"]
    assert rest.queue(name).json == before


def test_settings_and_messages_outlive_a_restart(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker()
    before = Rest(broker).put("tasks", partitions=2, limits={"max_queue_depth": 5})
    client = connect(of=broker)
    assert client.publish("tasks", "kept") == SUCCESS
    broker.kill()
    broker.restart()
    rest = Rest(broker)
    assert rest.queue("tasks").json == before.json
    assert rest.queue("tasks", "/stats").json["depth"] == 1
    assert len(rest.queue("tasks", "/messages").json["messages"]) == 1


def test_a_deleted_queue_begins_anew(rest: Rest, connect: Connect, name: str) -> None:
    rest.put(name, partitions=1)
    client = connect()
    client.publish_each(name, "old", "older")
    assert rest.queue(name, method="DELETE").status == 204
    client.publish_each(name, "new")
    assert rest.queue(name).json["configured"] == {}
    worker = consume(connect, name)
    assert worker.receive().payload == "new"
    worker.expect_silence()


def test_the_consumers_of_a_deleted_queue_do_not_get_it_back(
    rest: Rest, connect: Connect, name: str
) -> None:
    worker = consume(connect, name)
    client = connect()
    client.publish_each(name, "held")
    held = worker.receive()
    assert rest.queue(name, method="DELETE").status == 204
    assert worker.ack(held) != 0x80
    assert rest.queue(name, "/stats").status == 404


def test_the_list_has_every_queue_once(rest: Rest, connect: Connect, name: str) -> None:
    names = [f"{name}/{number}" for number in range(5)]
    for one in names[:3]:
        rest.put(one, partitions=2)
    for one in names[3:]:
        assert connect().publish(one, "x") == SUCCESS
    found: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = rest.fetch(f"/api/v1/queues?limit=2&cursor={quote(cursor, safe='')}").json
        assert len(page["queues"]) <= 2
        found += page["queues"]
        cursor = page["next"]
    assert [one["name"] for one in found] == sorted(one["name"] for one in found)
    mine = [one for one in found if one["name"].startswith(f"$queue/{name}/")]
    assert [one["name"] for one in mine] == [f"$queue/{one}" for one in names]
    assert [one["partitions"] for one in mine] == [2, 2, 2, 10, 10]
    assert [one["depth"] for one in mine] == [0, 0, 0, 1, 1]
    assert {one["ordering"] for one in mine} == {"partition"}


def test_the_list_is_narrowed_by_prefix_and_type(rest: Rest, name: str) -> None:
    rest.put(f"{name}/b1", type="stream")
    for one in ("a", "b0", "b2", "c"):
        rest.put(f"{name}/{one}")

    def names(query: str) -> list[str]:
        found: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page = rest.fetch(f"/api/v1/queues?limit=2{query}&cursor={quote(cursor, safe='')}").json
            found += [one["name"].removeprefix(f"$queue/{name}/") for one in page["queues"]]
            cursor = page["next"]
        return found

    assert names(f"&prefix={name}/b") == ["b0", "b1", "b2"]
    assert names(f"&prefix=$queue/{name}/b&type=stream") == ["b1"]
    assert names(f"&prefix={name}/&type=classic") == ["a", "b0", "b2", "c"]
    assert names(f"&prefix={name}/d") == []
    refused = rest.fetch("/api/v1/queues?type=lazy")
    assert (refused.status, refused.json["code"]) == (400, "BAD_REQUEST")


def test_a_name_has_three_forms(rest: Rest, name: str) -> None:
    rest.put(name, partitions=1)
    encoded, dollars = quote(f"$queue/{name}", safe=""), f"$queue${name.replace('/', '$')}"
    for form in (encoded, dollars):
        assert rest.fetch(f"/api/v1/queues/{form}").json["name"] == f"$queue/{name}"
        assert rest.fetch(f"/api/v1/queues/{form}/stats").json["depth"] == 0


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("", "GET"),
        ("", "DELETE"),
        ("/stats", "GET"),
        ("/consumers", "GET"),
        ("/messages", "GET"),
        ("/purge", "POST"),
        ("/dlq", "GET"),
        ("/dlq/0:1/retry", "POST"),
        ("/groups/g", "DELETE"),
    ],
)
def test_a_queue_which_is_not_there_is_404_and_is_not_made(
    rest: Rest, name: str, path: str, method: str
) -> None:
    answer = rest.queue(name, path, method=method)
    assert (answer.status, answer.json["code"]) == (404, "NOT_FOUND")
    assert f"$queue/{name}" in answer.json["message"]
    assert rest.queue(name).status == 404


# State


def test_stats_follow_the_messages(rest: Rest, connect: Connect, name: str) -> None:
    rest.put(name, partitions=4)
    client = connect()
    for number in range(3):
        client.publish_each(name, str(number), key=key_of(number, 4))
    stats = rest.queue(name, "/stats").json
    assert (stats["depth"], stats["enqueued_total"]) == (3, 3)
    assert [part["depth"] for part in stats["partitions"]] == [1, 1, 1, 0]
    assert (stats["groups"], stats["latency_p50_s"]) == ([], None)

    worker = consume(connect, name, "g")
    first, second, _ = worker.receive_each(3)
    stats = rest.queue(name, "/stats").json
    assert (stats["in_flight"], stats["dequeued_total"]) == (3, 3)
    [group] = stats["groups"]
    assert (group["group"], group["lag"], group["consumers"], group["in_flight"]) == ("g", 3, 1, 3)
    assert 0 <= stats["latency_p50_s"] <= stats["latency_p99_s"] < 60

    assert worker.ack(first) == SUCCESS
    assert worker.nack(second, delay_ms="60000") == SUCCESS
    stats = rest.queue(name, "/stats").json
    assert (stats["depth"], stats["in_flight"], stats["retrying"]) == (2, 1, 1)
    assert (stats["acked_total"], stats["nacked_total"]) == (1, 1)
    assert stats["groups"][0]["lag"] == 2


def test_rates_are_seen_while_messages_flow(rest: Rest, connect: Connect, name: str) -> None:
    worker = consume(connect, name)
    worker.publish_each(name, *"abcdef")
    worker.receive_and_ack(6)

    def all_flow() -> bool:
        rates = rest.queue(name, "/stats").json["rates"]
        return all(rates[f"{what}_per_s"] > 0 for what in ("enqueue", "dequeue", "ack"))

    def go_on() -> bool:
        worker.publish_each(name, "x")
        worker.receive_and_ack(1)
        return all_flow()

    wait_until(go_on)


def test_delayed_messages_count_and_are_told_apart(rest: Rest, connect: Connect, name: str) -> None:
    assert connect().publish(name, "later", user={"delay-ms": "600000"}) == SUCCESS
    assert rest.queue(name, "/stats").json["delayed"] == 1


def test_consumers_are_shown_with_their_partitions(rest: Rest, connect: Connect, name: str) -> None:
    rest.put(name, partitions=10)
    for client_id in ("w-1", "w-2", "w-3"):
        assert connect(f"{client_id}-{name}").subscribe(name, group="g") < 0x80
    watcher = connect(f"a-1-{name}")
    assert watcher.subscribe(name, group="audit") < 0x80
    watcher.publish_each(name, "one")
    watcher.receive()
    found = rest.queue(name, "/consumers").json
    assert found["next"] is None
    rows = [
        (one["group"], one["client_id"].removesuffix(f"-{name}"), one["partitions"])
        for one in found["consumers"]
    ]
    assert rows == [
        ("audit", "a-1", list(range(10))),
        ("g", "w-1", [0, 1, 2, 3]),
        ("g", "w-2", [4, 5, 6]),
        ("g", "w-3", [7, 8, 9]),
    ]
    assert found["consumers"][0]["held"] == 1
    assert all(one["last_heartbeat_ms"] > 1_600_000_000_000 for one in found["consumers"])
    first = rest.queue(name, "/consumers?limit=3").json
    rest_of_them = rest.queue(name, f"/consumers?limit=3&cursor={quote(first['next'])}").json
    assert first["consumers"] + rest_of_them["consumers"] == found["consumers"]


def test_a_group_is_deleted_with_what_only_it_needed(
    rest: Rest, connect: Connect, name: str
) -> None:
    busy, idle = consume(connect, name, "busy"), consume(connect, name, "idle")
    idle.disconnect()
    busy.publish_each(name, "1", "2")
    busy.receive_and_ack(2)
    assert rest.queue(name, "/stats").json["depth"] == 2
    assert rest.queue(name, "/groups/idle", method="DELETE").status == 204
    stats = rest.queue(name, "/stats").json
    assert (stats["depth"], [group["group"] for group in stats["groups"]]) == (0, ["busy"])
    assert rest.queue(name, "/groups/idle", method="DELETE").status == 404


def test_what_a_deleted_group_has_settled_does_not_come_back(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker()
    rest = Rest(broker)
    rest.put("tasks", partitions=1)
    worker = connect(of=broker)
    worker.publish_each("tasks", *"abcde")
    worker.subscribe("tasks", group="g")
    for delivery in worker.receive_each(5)[:3]:
        assert worker.ack(delivery) == SUCCESS
    worker.disconnect()
    assert rest.queue("tasks", "/groups/g", method="DELETE").status == 204
    assert rest.queue("tasks", "/stats").json["depth"] == 2
    broker.kill()
    broker.restart()
    assert Rest(broker).queue("tasks", "/stats").json["depth"] == 2


def test_a_group_with_consumers_is_not_deleted(rest: Rest, connect: Connect, name: str) -> None:
    worker = consume(connect, name, "busy")
    answer = rest.queue(name, "/groups/busy", method="DELETE")
    assert (answer.status, answer.json["code"]) == (409, "CONFLICT")
    worker.publish_each(name, "still here")
    assert worker.receive().payload == "still here"


# Metrics


def test_metrics_follow_the_messages(rest: Rest, connect: Connect, name: str) -> None:
    """Acceptance 20."""
    address = f"$queue/{name}"
    rest.put(name, partitions=1, ordering="none")
    worker = consume(connect, name, "g")
    worker.publish_each(name, "1", "2", "3")
    one, two, _three = worker.receive_each(3)
    assert worker.ack(one) == SUCCESS
    assert worker.nack(two) == SUCCESS
    again = worker.receive()
    assert worker.reject(again) == SUCCESS
    samples = rest.samples()
    found = {key[0]: value for key, value in samples.items() if key[1:] == (address,)}
    assert 0 < found.pop("mqtt_queue_oldest_age_seconds") < 60
    assert found == {
        "mqtt_queue_depth": 1,
        "mqtt_queue_depth_max": 100_000,
        "mqtt_queue_ready": 0,
        "mqtt_queue_in_flight": 1,
        "mqtt_queue_retrying": 0,
        "mqtt_queue_delayed": 0,
        "mqtt_queue_enqueue_total": 3,
        "mqtt_queue_dequeue_total": 4,
        "mqtt_queue_ack_total": 1,
        "mqtt_queue_nack_total": 1,
        "mqtt_queue_redelivered_total": 1,
        "mqtt_queue_timed_out_total": 0,
        "mqtt_queue_expired_total": 0,
        "mqtt_queue_dropped_total": 0,
        "mqtt_queue_purged_total": 0,
        "mqtt_queue_refused_total": 0,
        "mqtt_queue_duplicates_total": 0,
    }
    # Labels come sorted by their names: group, quantile, queue, reason.
    assert samples[("mqtt_queue_dlq_total", address, "rejected")] == 1
    assert samples[("mqtt_queue_active_consumers", "g", address)] == 1
    for quantile in ("0.5", "0.99"):
        assert samples[("mqtt_queue_delivery_latency_seconds", quantile, address)] >= 0
    assert samples[("mqtt_queue_depth", f"$queue/dlq/{name}")] == 1
    assert samples[("queuelake_queues",)] >= 2


# Queues which sleep


def test_a_queue_nobody_uses_keeps_its_depth_and_loses_its_counters(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker({"queues.idle_unload_s": 0.5})
    client, rest, address = connect(of=broker), Rest(broker), "$queue/tasks"
    client.publish_each("tasks", "1", "2", "3")
    assert rest.samples()[("mqtt_queue_enqueue_total", address)] == 3
    wait_until(lambda: ("mqtt_queue_enqueue_total", address) not in rest.samples())
    for _ in range(2):
        assert rest.samples()[("mqtt_queue_depth", address)] == 3
    [queue] = rest.fetch("/api/v1/queues").json["queues"]
    assert (queue["name"], queue["depth"], queue["partitions"]) == (address, 3, 10)
    client.publish_each("tasks", "4")
    assert rest.samples()[("mqtt_queue_enqueue_total", address)] == 1, "it is awake again"
    assert rest.samples()[("mqtt_queue_depth", address)] == 4
    assert rest.queue("tasks", method="DELETE").status == 204
    assert ("mqtt_queue_depth", address) not in rest.samples()


def test_after_a_restart_the_figures_come_from_the_store(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker()
    rest = Rest(broker)
    rest.put("tasks", partitions=2, ordering="none")
    worker = connect(of=broker)
    worker.subscribe("tasks", group="g")
    for number in range(6):
        worker.publish_each("tasks", str(number), key=key_of(number % 2, 2))
    deliveries = worker.receive_each(6)
    for number in (1, 2, 4):  # in each partition one which is not the first
        assert worker.ack(deliveries[number]) == SUCCESS
    assert worker.publish("tasks", "later", user={"delay-ms": "600000"}) == SUCCESS
    broker.kill()
    broker.restart()
    rest = Rest(broker)
    [queue] = rest.fetch("/api/v1/queues").json["queues"]
    assert (queue["depth"], queue["groups"], queue["ordering"]) == (4, 1, "none")
    stats = rest.queue("tasks", "/stats").json
    assert (stats["depth"], stats["groups"][0]["lag"], stats["delayed"]) == (4, 3, 1)


def test_many_queues_are_a_scrape_of_bounded_size(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker()
    client, rest = connect(of=broker), Rest(broker)
    for number in range(1100):
        assert client.publish(f"many/{number}", "x" if number % 2 else "y", qos=0) == SUCCESS
    client.publish_each("deep", "1", "2")
    samples = rest.samples()
    assert samples[("queuelake_queues",)] == 1101
    named = {key[1] for key in samples if key[0] == "mqtt_queue_depth"}
    assert len(named - {"(other)"}) == 1000
    assert samples[("mqtt_queue_depth", "$queue/deep")] == 2, "the deepest are there"
