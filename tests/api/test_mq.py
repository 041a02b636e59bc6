"""The routes of message queues: paths, bodies, codes and pages, over a fake service."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from prometheus_client.core import Metric

from queuelake.admin.bodies import SETTINGS_BYTES_MAX
from queuelake.admin.mq_metrics import mq_families
from queuelake.broker.message_queue_census import MessageQueueCensus
from queuelake.broker.message_queues.metrics import CLASSES
from queuelake.control_mq import MqFigures
from queuelake.control_queues import OTHER
from queuelake.mq_settings import MqConfig
from queuelake.settings import Metrics
from tests.api.fake_mq import MQ_NAMES, FakeMessageQueues, add_message_queues
from tests.api.live import Answer, LiveAdmin
from tests.api.test_rest_v1 import assert_problem

QUEUES = "/api/v5/message_queues/queues"
CONFIG = "/api/v5/message_queues/config"


@pytest.fixture
def mq(admin: LiveAdmin) -> FakeMessageQueues:
    return add_message_queues(admin)


def send(admin: LiveAdmin, method: str, path: str, body: Any) -> Answer:
    return admin.fetch(path, method=method, body=json.dumps(body).encode())


def path_of(name: str) -> str:
    return f"{QUEUES}/{quote(name, safe='')}"


def test_the_calls_of_the_users_work_as_they_are(admin: LiveAdmin, mq: FakeMessageQueues) -> None:
    mq.by_name = {}
    queue = {
        "name": "/t1/#",
        "topic_filter": "t1/#",
        "is_lastvalue": False,
        "data_retention_period": 604_800_000,
        "dispatch_strategy": "random",
        "limits": {"max_shard_message_count": "infinity", "max_shard_message_bytes": "infinity"},
    }
    made = send(admin, "POST", QUEUES, {"topic_filter": "t1/#", "is_lastvalue": False})
    assert (made.status, made.json) == (200, queue)
    listed = admin.fetch(QUEUES)
    assert (listed.status, listed.json) == (200, {"data": [queue], "meta": {"hasnext": False}})
    changed = send(admin, "PUT", f"{QUEUES}/t1%2F%23", {"dispatch_strategy": "least_inflight"})
    assert (changed.status, changed.json) == (200, queue | {"dispatch_strategy": "least_inflight"})
    assert admin.fetch(f"{QUEUES}/t1%2F%23").json == changed.json
    deleted = admin.fetch(f"{QUEUES}/t1%2F%23", method="DELETE")
    assert (deleted.status, deleted.body) == (204, b"")
    settings = {
        "gc_interval": "1h",
        "regular_queue_retention_period": "1d",
        "find_queue_retry_interval": "10s",
    }
    configured = send(admin, "PUT", CONFIG, settings)
    assert (configured.status, configured.body) == (204, b"")
    assert mq.commits == 4, "each change is answered when it is durable"


def test_the_other_paths_are_the_same_resources(admin: LiveAdmin, mq: FakeMessageQueues) -> None:
    made = send(admin, "POST", "/api/v5/queues", {"name": "new", "topic_filter": "n/+"})
    assert (made.status, made.json["key_expression"]) == (200, "message.from")
    assert admin.fetch("/api/v5/queues").json == admin.fetch(QUEUES).json
    changed = send(admin, "PUT", "/api/v5/queue/new", {"key_expression": "message.topic"})
    assert changed.json == admin.fetch(path_of("new")).json
    assert admin.fetch("/api/v5/queue/new", method="DELETE").status == 204
    assert send(admin, "PUT", "/api/v5/queues/config", {"max_queue_count": 7}).status == 204
    assert admin.fetch("/api/v5/queues/config").json["max_queue_count"] == 7
    assert admin.fetch(CONFIG).json["max_queue_count"] == 7
    assert mq.config.max_queue_count == 7


@pytest.mark.parametrize("name", MQ_NAMES)
def test_a_queue_is_found_by_its_name(admin: LiveAdmin, mq: FakeMessageQueues, name: str) -> None:
    assert admin.fetch(path_of(name)).json["name"] == name
    assert admin.fetch(path_of(name) + "/stats").json["messages"] == len(name)
    assert admin.fetch(path_of(name), method="DELETE").status == 204
    assert name not in mq.by_name


def test_an_exact_name_comes_before_a_filter(admin: LiveAdmin, mq: FakeMessageQueues) -> None:
    """M1: `t1/#` is the filter of one queue, `/t1/#` the name of it and the filter of another."""
    assert admin.fetch(f"{QUEUES}/t1%2F%23").json["name"] == "/t1/#"
    assert admin.fetch(f"{QUEUES}/%2Ft1%2F%23").json["name"] == "/t1/#"
    del mq.by_name["/t1/#"]
    assert admin.fetch(f"{QUEUES}/%2Ft1%2F%23").json["name"] == "//t1/#"
    assert_problem(admin.fetch(f"{QUEUES}/t1%2F%23"), 404, "NOT_FOUND")
    assert_problem(admin.fetch(f"{QUEUES}/t1/%23"), 404, "NOT_FOUND")


def test_pages_hold_every_queue_once(admin: LiveAdmin, mq: FakeMessageQueues) -> None:
    """Acceptance 15: ten queues, six by six."""
    mq.by_name = {}
    for number in range(10):
        body = {"name": f"q{number}", "topic_filter": f"t/{number}"}
        assert send(admin, "POST", QUEUES, body).status == 200
    first = admin.fetch(f"{QUEUES}?limit=6").json
    assert [queue["name"] for queue in first["data"]] == [f"q{number}" for number in range(6)]
    assert first["meta"]["hasnext"] is True
    cursor = quote(first["meta"]["cursor"], safe="")
    second = admin.fetch(f"{QUEUES}?limit=6&cursor={cursor}").json
    assert [queue["name"] for queue in second["data"]] == [f"q{number}" for number in range(6, 10)]
    assert second["meta"] == {"hasnext": False}
    assert admin.fetch(f"{QUEUES}?limit=10").json["meta"] == {"hasnext": False}


def test_a_page_ends_before_a_control_frame_is_full(
    admin: LiveAdmin, mq: FakeMessageQueues
) -> None:
    long = "x" * 60_000
    mq.by_name = {}
    for number in range(100):
        assert send(admin, "POST", QUEUES, {"topic_filter": f"{number:03}/{long}"}).status == 200
    names: list[str] = []
    cursor, pages = "", 0
    while pages == 0 or cursor:
        page = admin.fetch(f"{QUEUES}?limit=10000&cursor={quote(cursor, safe='')}").json
        names += [queue["name"] for queue in page["data"]]
        cursor, pages = page["meta"].get("cursor", ""), pages + 1
    assert names == sorted(mq.by_name)
    assert pages > 1


@pytest.mark.parametrize(
    "cursor",
    ["x", "%ff", "bXE6", "%00", quote(base64.b64encode(b"other").decode()), "bXE6/w==", "ü"],
)
def test_a_cursor_nobody_gave_is_refused(
    admin: LiveAdmin, mq: FakeMessageQueues, cursor: str
) -> None:
    answer = admin.fetch(f"{QUEUES}?cursor={quote(cursor, safe='%')}")
    assert_problem(answer, 400, "BAD_REQUEST")
    assert answer.json["message"] == "Invalid cursor"


@pytest.mark.parametrize("limit", ["0", "10001", "-1", "many"])
def test_a_limit_has_limits(admin: LiveAdmin, mq: FakeMessageQueues, limit: str) -> None:
    assert_problem(admin.fetch(f"{QUEUES}?limit={limit}"), 400, "BAD_REQUEST")


def test_every_refusal_has_its_code(admin: LiveAdmin, mq: FakeMessageQueues) -> None:
    """Acceptance 16."""
    answer = send(admin, "POST", QUEUES, {"name": "orders", "topic_filter": "x"})
    assert_problem(answer, 400, "ALREADY_EXISTS")
    assert "'orders'" in answer.json["message"]
    mq.config = MqConfig(max_queue_count=len(mq.by_name))
    answer = send(admin, "POST", QUEUES, {"name": "more", "topic_filter": "x"})
    assert_problem(answer, 400, "MAX_QUEUE_COUNT_REACHED")
    assert str(len(MQ_NAMES)) in answer.json["message"]
    for method in ("GET", "DELETE"):
        answer = admin.fetch(path_of("nobody"), method=method)
        assert_problem(answer, 404, "NOT_FOUND")
        assert answer.json["message"] == "Message queue not found"
    assert_problem(send(admin, "PUT", path_of("nobody"), {}), 404, "NOT_FOUND")
    answer = send(admin, "PUT", path_of("orders"), {"is_lastvalue": False})
    assert_problem(answer, 400, "BAD_REQUEST")
    assert answer.json["message"] == "LastValue flag is not allowed to be updated"
    body = {"name": "regular", "topic_filter": "r", "is_lastvalue": False}
    mq.config = MqConfig()
    assert send(admin, "POST", QUEUES, body).status == 200
    limits = {"limits": {"max_shard_message_count": 5}}
    answer = send(admin, "PUT", path_of("regular"), limits)
    assert_problem(answer, 400, "BAD_REQUEST")
    said = "Regular queues cannot be updated from limited to unlimited and vice versa"
    assert answer.json["message"] == said


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "JSON object"),
        (b"[]", "JSON object"),
        (b"{", "JSON object"),
        (b"\xff", "JSON object"),
        (b"[" * 10_000, "JSON object"),
        (b"{}", "topic_filter is missing"),
        (b'{"topic_filter": "a", "name": "/a"}', 'name = "/a"'),
        (b'{"topic_filter": "a", "nmae": "x"}', "nmae"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    admin: LiveAdmin, mq: FakeMessageQueues, body: bytes, named: str
) -> None:
    answer = admin.fetch(QUEUES, method="POST", body=body)
    assert_problem(answer, 400, "BAD_REQUEST")
    assert named in answer.json["message"]
    assert mq.commits == 0


def test_a_body_over_the_limit_is_refused(admin: LiveAdmin, mq: FakeMessageQueues) -> None:
    answer = admin.fetch(QUEUES, method="POST", body=b" " * (SETTINGS_BYTES_MAX + 1))
    assert_problem(answer, 413, "CONTENT_TOO_LARGE")


def test_the_configuration_is_shown_in_numbers(admin: LiveAdmin, mq: FakeMessageQueues) -> None:
    assert admin.fetch(CONFIG).json == {
        "enable": True,
        "gc_interval": 3_600_000,
        "regular_queue_retention_period": 86_400_000,
        "max_queue_count": 100,
        "find_queue_retry_interval": 10_000,
        "n_shards": 1,
        "allow_v3": True,
        "strict_publish": True,
        "auto_create": {
            "regular": False,
            "lastvalue": {
                "data_retention_period": 604_800_000,
                "dispatch_strategy": "random",
                "limits": {
                    "max_shard_message_count": "infinity",
                    "max_shard_message_bytes": "infinity",
                },
                "key_expression": "message.from",
            },
        },
        "quota": {
            "threshold_percentage": 10,
            "buffer_max_size": 100,
            "buffer_flush_interval": 1000,
            "buffer_pool_size": 16,
        },
        "storage": {
            "states": {"flush_interval": 10, "idle_flush_interval": 5, "conflict_window": 5000},
            "messages": {"flush_interval": 100, "idle_flush_interval": 20, "conflict_window": 5000},
        },
    }


def test_what_was_shown_can_be_sent_back(admin: LiveAdmin, mq: FakeMessageQueues) -> None:
    shown = admin.fetch(CONFIG).json
    assert send(admin, "PUT", CONFIG, shown).status == 204
    assert admin.fetch(CONFIG).json == shown
    queue = admin.fetch(path_of("orders")).json
    assert send(admin, "PUT", path_of("orders"), queue).json == queue


def test_queues_are_made_by_themselves_as_one_kind(admin: LiveAdmin, mq: FakeMessageQueues) -> None:
    """Acceptance 17."""
    both = {"auto_create": {"regular": {}, "lastvalue": {}}}
    answer = send(admin, "PUT", CONFIG, both)
    assert_problem(answer, 400, "BAD_REQUEST")
    assert answer.json["message"] == (
        "Queues should be configured to be automatically created either as regular or lastvalue"
    )
    regular = {"auto_create": {"regular": {}, "lastvalue": False}}
    assert send(admin, "PUT", CONFIG, regular).status == 204
    shown = admin.fetch(CONFIG).json["auto_create"]
    assert (shown["lastvalue"], shown["regular"]["dispatch_strategy"]) == (False, "random")


def test_off_means_only_the_configuration_answers(admin: LiveAdmin, mq: FakeMessageQueues) -> None:
    answer = send(admin, "PUT", CONFIG, {"enable": False})
    assert_problem(answer, 400, "BAD_REQUEST")
    assert f"there are {len(MQ_NAMES)} message queues" in answer.json["message"]
    mq.by_name = {}
    assert send(admin, "PUT", CONFIG, {"enable": False}).status == 204
    for path, method in (
        (QUEUES, "GET"),
        (path_of("orders"), "GET"),
        (path_of("orders") + "/stats", "GET"),
        (path_of("orders"), "DELETE"),
        ("/api/v5/queues", "GET"),
        ("/api/v5/message_queues/gc", "POST"),
    ):
        answer = admin.fetch(path, method=method)
        assert_problem(answer, 503, "SERVICE_UNAVAILABLE")
        assert answer.json["message"] == "Not enabled"
    body = {"topic_filter": "a"}
    assert_problem(send(admin, "POST", QUEUES, body), 503, "SERVICE_UNAVAILABLE")
    assert admin.fetch(CONFIG).json["enable"] is False
    assert send(admin, "PUT", CONFIG, {"enable": "auto"}).status == 204
    assert admin.fetch(QUEUES).status == 200


def test_a_broker_which_is_not_there_is_not_ready(admin: LiveAdmin, mq: FakeMessageQueues) -> None:
    admin.broker_down()
    answer = admin.fetch(QUEUES)
    assert_problem(answer, 503, "SERVICE_UNAVAILABLE")
    assert answer.json["message"] == "Not ready"


def test_garbage_is_collected_when_asked(admin: LiveAdmin, mq: FakeMessageQueues) -> None:
    assert admin.fetch("/api/v5/message_queues/gc", method="POST").status == 204
    assert mq.collected == 1


def test_a_queue_has_these_methods(admin: LiveAdmin, mq: FakeMessageQueues) -> None:
    for path, methods in (
        (QUEUES, "GET, POST"),
        (path_of("orders"), "DELETE, GET, PUT"),
        ("/api/v5/queues/config", "GET, PUT"),
    ):
        answer = admin.fetch(path, method="PATCH")
        assert_problem(answer, 405, "METHOD_NOT_ALLOWED")
        assert answer.headers["allow"] == methods


# Metrics


def samples(families: list[Metric]) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


async def test_metrics_are_by_class_and_by_queue() -> None:
    fake = FakeMessageQueues()
    limited = fake.metrics.of(is_lastvalue=True, is_limited=True)
    limited.received_messages, limited.inserted_messages, limited.insert_errors = 5, 3, 2
    for latency_ms in (1.0, 2.0, 3.0, 6000.0):
        limited.insert_latency.observe(latency_ms)
    taken = await MessageQueueCensus(fake, None, Metrics()).take()
    figures = msgspec.msgpack.decode(msgspec.msgpack.encode(taken), type=MqFigures)
    found = samples(list(mq_families(figures)))
    assert found["queuelake_mq_queues",] == len(MQ_NAMES)
    assert found["queuelake_mq_received_messages_total", "lastvalue_limited"] == 5
    assert found["queuelake_mq_inserted_messages_total", "lastvalue_limited"] == 3
    assert found["queuelake_mq_insert_errors_total", "lastvalue_limited"] == 2
    assert [found["queuelake_mq_received_messages_total", name] for name in CLASSES[:3]] == [0] * 3
    latency = "queuelake_mq_insert_latency_ms_bucket"
    assert found[latency, "lastvalue_limited", "2.0"] == 2
    assert found[latency, "lastvalue_limited", "5000.0"] == 3
    assert found[latency, "lastvalue_limited", "+Inf"] == 4
    assert found["queuelake_mq_insert_latency_ms_sum", "lastvalue_limited"] == 6006
    assert found["queuelake_mq_messages", "/t1/#"] == 5
    assert found["queuelake_mq_oldest_age_seconds", "orders"] == 1.5
    assert found["queuelake_mq_acked_total", "orders"] == 3


def test_the_classes_are_told_apart() -> None:
    metrics = FakeMessageQueues().metrics
    kinds = [(False, False), (False, True), (True, False), (True, True)]
    assert [metrics.of(*kind) for kind in kinds] == metrics.classes
    assert len(metrics.classes) == len(CLASSES)


async def test_a_scrape_names_the_deepest_queues_and_sums_up_the_others() -> None:
    fake = FakeMessageQueues()
    census = MessageQueueCensus(fake, None, Metrics(queues_max=2))
    figures = await census.take()
    *others, second, first = sorted(MQ_NAMES, key=len)
    assert set(figures.named) == {first, second, OTHER}
    assert figures.named[OTHER].messages == sum(map(len, others))
    assert figures.named[OTHER].acked == 3 * len(others)
    assert (figures.queues, figures.left_out) == (len(MQ_NAMES), len(others))
    assert (await census.take()).named[OTHER].acked == 3 * len(others)  # nothing came to it
