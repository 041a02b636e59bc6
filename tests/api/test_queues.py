"""The queue routes against a fake broker: what is asked of it, and how its answers look."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest

from queuelake.admin.bodies import SETTINGS_BYTES_MAX
from tests.api.fake_queues import PAYLOAD, QUEUE_NAMES
from tests.api.live import Answer, LiveAdmin
from tests.api.test_rest_v1 import assert_problem

IMAGE = "/api/v1/queues/tasks%2Fimage"


def put(admin: LiveAdmin, path: str, settings: Any) -> Answer:
    return admin.fetch(path, method="PUT", body=json.dumps(settings).encode())


def test_pages_hold_every_queue_once(admin: LiveAdmin) -> None:
    names: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = admin.fetch(f"/api/v1/queues?limit=3&cursor={quote(cursor, safe='')}").json
        assert set(page) == {"queues", "next"}
        assert len(page["queues"]) <= 3
        names += [queue["name"] for queue in page["queues"]]
        cursor = page["next"]
    assert names == [f"$queue/{name}" for name in sorted(QUEUE_NAMES)]


def test_a_queue_of_the_list_has_its_figures(admin: LiveAdmin) -> None:
    queue = admin.fetch("/api/v1/queues?limit=1").json["queues"][0]
    assert {"name", "partitions", "ordering", "depth"} <= set(queue)


@pytest.mark.parametrize("name", QUEUE_NAMES)
def test_a_queue_is_found_whatever_its_name_holds(admin: LiveAdmin, name: str) -> None:
    for shown in (name, f"$queue/{name}", f"$queue${name.replace('/', '$')}"):
        answer = admin.fetch(f"/api/v1/queues/{quote(shown, safe='')}")
        assert answer.json["name"] == f"$queue/{name}", shown
    assert admin.fetch(f"/api/v1/queues/{quote(name, safe='')}", method="DELETE").status == 204
    assert_problem(admin.fetch(f"/api/v1/queues/{quote(name, safe='')}"), 404, "NOT_FOUND")


def test_the_dollar_form_needs_no_encoding(admin: LiveAdmin) -> None:
    assert admin.fetch("/api/v1/queues/$queue$tasks$image/stats").json["depth"] == 7


def test_put_creates_a_queue_and_then_changes_it(admin: LiveAdmin) -> None:
    made = put(admin, "/api/v1/queues/new%2Fone", {"partitions": 4, "name": "new/one"})
    assert made.status == 201
    assert made.json["name"] == "$queue/new/one"
    assert made.json["settings"]["partitions"] == 4
    changed = put(admin, "/api/v1/queues/new%2Fone", {"retry_policy": {"max_retries": 3}})
    assert changed.status == 200
    settings = changed.json["settings"]
    assert (settings["partitions"], settings["retry_policy"]["max_retries"]) == (4, 3)
    assert settings["limits"]["message_ttl"] == "168h", "the whole tree is shown"
    assert changed.json["configured"]["retry_policy"] == {"max_retries": 3}
    assert admin.fetch("/api/v1/queues/new%2Fone").json == changed.json


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b'{"partitions": 0}', "partitions = 0"),
        (b'{"retry_policy": {"max_backof": "1s"}}', "retry_policy.max_backof"),
        (b'{"partitions": 99999999999999999999999}', "partitions"),
        (b"[]", "JSON object"),
        (b"", "JSON object"),
        (b"{", "JSON object"),
        (b'{"ordering": "\xff"}', "JSON object"),
        (b'{"ordering": "\\ud800"}', "JSON object"),
        (b"[" * 5000, "JSON object"),
    ],
)
def test_settings_which_cannot_be_are_refused_by_name(
    admin: LiveAdmin, body: bytes, named: str
) -> None:
    answer = admin.fetch(IMAGE, method="PUT", body=body)
    assert_problem(answer, 400, "BAD_REQUEST")
    assert named in answer.json["message"]


def test_a_body_over_the_limit_is_refused_before_it_is_read(admin: LiveAdmin) -> None:
    answer = admin.fetch(IMAGE, method="PUT", body=b" " * (SETTINGS_BYTES_MAX + 1))
    assert_problem(answer, 413, "CONTENT_TOO_LARGE")
    assert str(SETTINGS_BYTES_MAX) in answer.json["message"]
    assert not admin.broker.queues.calls


def test_stats_hold_partitions_groups_rates_and_latency(admin: LiveAdmin) -> None:
    stats = admin.fetch(f"{IMAGE}/stats").json
    assert stats["name"] == "$queue/tasks/image"
    assert [part["depth"] for part in stats["partitions"]] == [3, 4]
    assert stats["groups"][0]["group"] == "workers"
    assert stats["groups"][0]["lag"] == 7
    assert set(stats["rates"]) == {"enqueue_per_s", "dequeue_per_s", "ack_per_s"}
    assert (stats["in_flight"], stats["retrying"], stats["dlq"]) == (1, 1, 1)
    assert (stats["latency_p50_s"], stats["latency_p99_s"]) == (0.001, 0.5)


def test_consumers_say_who_holds_what(admin: LiveAdmin) -> None:
    assert admin.fetch(f"{IMAGE}/consumers").json == {
        "consumers": [
            {
                "group": "workers",
                "client_id": "w-1",
                "partitions": [0, 1],
                "held": 1,
                "last_heartbeat_ms": 1_790_000_000_000,
                "status": "up",
            }
        ],
        "next": None,
    }


def test_a_look_at_messages_passes_where_to_begin(admin: LiveAdmin) -> None:
    answer = admin.fetch(f"{IMAGE}/messages?from=5&limit=2&partition=3").json
    assert admin.broker.queues.calls[-1] == (
        "queue_messages",
        {"name": "tasks/image", "from": 5, "limit": 2, "partition": 3, "cursor": ""},
    )
    [message] = answer["messages"]
    assert base64.b64decode(message["payload"]) == PAYLOAD
    assert message["properties"] == [["k", "1"], ["k", "2"]]
    assert (message["partition"], message["offset"]) == (0, 5)
    admin.fetch(f"{IMAGE}/messages?cursor={answer['next']}")
    assert admin.broker.queues.calls[-1][1] == {
        "name": "tasks/image",
        "from": 0,
        "limit": 100,
        "partition": None,
        "cursor": "0:6",
    }


def test_purge_says_how_many(admin: LiveAdmin) -> None:
    answer = admin.fetch(f"{IMAGE}/purge", method="POST")
    assert (answer.status, answer.json) == (200, {"purged": 7})


def test_dead_letters_carry_their_story(admin: LiveAdmin) -> None:
    [letter] = admin.fetch(f"{IMAGE}/dlq").json["messages"]
    assert base64.b64decode(letter["payload"]) == PAYLOAD
    story = {name: value for name, value in letter.items() if name.startswith("dlq-")}
    assert story == {
        "dlq-original-queue": "$queue/tasks/image",
        "dlq-original-topic": "$queue/tasks/image",
        "dlq-original-id": "tasks/image:3:17",
        "dlq-group": "workers",
        "dlq-reason": "rejected",
        "dlq-reason-text": "",
        "dlq-delivery-count": 2,
        "dlq-first-attempt": "2026-11-16T01:02:03.004Z",
        "dlq-moved-at": "2026-11-16T01:02:04.004Z",
    }


def test_a_dead_letter_is_sent_back_by_its_id(admin: LiveAdmin) -> None:
    letter_id = quote("dlq/tasks/image:0:1", safe="")
    answer = admin.fetch(f"{IMAGE}/dlq/{letter_id}/retry", method="POST")
    assert answer.status == 202
    assert answer.json == {"queue": "$queue/tasks/image", "id": "tasks/image:3:18", "partition": 3}
    assert_problem(admin.fetch(f"{IMAGE}/dlq/x/retry", method="POST"), 404, "NOT_FOUND")


def test_a_group_is_deleted_once(admin: LiveAdmin) -> None:
    path = f"{IMAGE}/groups/workers"
    assert admin.fetch(path, method="DELETE").status == 204
    assert_problem(admin.fetch(path, method="DELETE"), 404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/v1/queues/nobody", 404, "NOT_FOUND"),
        ("/api/v1/queues/nobody/stats", 404, "NOT_FOUND"),
        ("/api/v1/queues/tasks/image", 404, "NOT_FOUND"),
        ("/api/v1/queues/", 404, "NOT_FOUND"),
        ("/api/v1/queues/%ff", 400, "BAD_REQUEST"),
        ("/api/v1/queues/a%2F%2Fb", 400, "BAD_REQUEST"),
        ("/api/v1/queues/%2B", 400, "BAD_REQUEST"),
        ("/api/v1/queues/%24queue%2F", 400, "BAD_REQUEST"),
        ("/api/v1/queues/x%2F%24ack/stats", 400, "BAD_REQUEST"),
        (f"/api/v1/queues/{'x' * 1000}", 400, "BAD_REQUEST"),
        ("/api/v1/queues?limit=0", 400, "BAD_REQUEST"),
        ("/api/v1/queues?limit=1001", 400, "BAD_REQUEST"),
        (f"{IMAGE}/messages?from=-1", 400, "BAD_REQUEST"),
        (f"{IMAGE}/messages?partition=1000", 400, "BAD_REQUEST"),
        (f"{IMAGE}/dlq?limit=many", 400, "BAD_REQUEST"),
    ],
)
def test_errors_of_queues_have_the_one_shape(
    admin: LiveAdmin, path: str, status: int, code: str
) -> None:
    assert_problem(admin.fetch(path), status, code)


def test_a_queue_has_these_methods(admin: LiveAdmin) -> None:
    answer = admin.fetch(IMAGE, method="POST")
    assert_problem(answer, 405, "METHOD_NOT_ALLOWED")
    assert answer.headers["allow"] == "DELETE, GET, PUT"
