"""Message queues over HTTP (section 8): bodies, codes, pages, aliases."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.api.live import fetch
from tests.conftest import BrokerFactory
from tests.harness.broker import BrokerProcess
from tests.mq.conftest import MakeQueue
from tests.mq.rest import CONFIG, QUEUES, MqRest, assert_error

DAY_MS = 24 * 3600 * 1000
UNLIMITED = {"max_shard_message_count": "infinity", "max_shard_message_bytes": "infinity"}


def public(answer: Any) -> dict[str, Any]:
    names = ("name", "topic_filter", "is_lastvalue", "key_expression", "data_retention_period")
    return {name: answer.get(name) for name in (*names, "dispatch_strategy", "limits")}


@pytest.mark.rule("section 8", "section 7")
def test_what_is_omitted_has_its_default(rest: MqRest, root: str) -> None:
    answer = rest.call("POST", QUEUES, {"name": root, "topic_filter": f"{root}/#"})
    assert answer.status == 200
    assert public(answer.json) == {
        "name": root,
        "topic_filter": f"{root}/#",
        "is_lastvalue": True,
        "key_expression": "message.from",
        "data_retention_period": 7 * DAY_MS,
        "dispatch_strategy": "random",
        "limits": UNLIMITED,
    }
    assert rest.call("GET", f"{QUEUES}/{root}").json == answer.json


@pytest.mark.rule("section 8", "M26")
def test_what_was_set_comes_out_in_milliseconds_and_bytes(rest: MqRest, root: str) -> None:
    body = {
        "name": root,
        "topic_filter": f"{root}/+/x",
        "is_lastvalue": False,
        "data_retention_period": "90m",
        "dispatch_strategy": "least_inflight",
        "limits": {"max_shard_message_count": 5000, "max_shard_message_bytes": "100MB"},
    }
    answer = rest.call("POST", QUEUES, body)
    assert answer.status == 200, answer.body
    expected = body | {
        "key_expression": None,
        "data_retention_period": 90 * 60 * 1000,
        "limits": {"max_shard_message_count": 5000, "max_shard_message_bytes": 104_857_600},
    }
    assert public(answer.json) == expected
    assert rest.call("GET", f"{QUEUES}/{root}").json == answer.json


@pytest.mark.rule("section 8")
@pytest.mark.parametrize(("given", "shown"), [("7d", 7 * DAY_MS), (1500, 1500), ("1500ms", 1500)])
def test_durations_are_text_or_milliseconds(
    rest: MqRest, root: str, given: Any, shown: int
) -> None:
    queue = rest.create(f"{root}/#", data_retention_period=given)
    assert rest.call("GET", queue.path).json["data_retention_period"] == shown


@pytest.mark.rule("section 8", "M2")
def test_the_calls_of_the_first_users_work_as_they_are(rest: MqRest, root: str) -> None:
    """Create, list, update, delete and configure, with the bodies of the seed."""
    created = rest.call("POST", QUEUES, {"topic_filter": f"{root}/#", "is_lastvalue": False})
    assert (created.status, created.json["name"]) == (200, f"/{root}/#")
    listed = rest.call("GET", QUEUES)
    assert listed.status == 200
    assert set(listed.json) == {"data", "meta"}
    path = f"{QUEUES}/{root}%2F%23"
    updated = rest.call("PUT", path, {"dispatch_strategy": "least_inflight"})
    assert (updated.status, updated.json["dispatch_strategy"]) == (200, "least_inflight")
    assert updated.json["is_lastvalue"] is False
    deleted = rest.call("DELETE", path)
    assert (deleted.status, deleted.body) == (204, b"")
    configured = rest.call("PUT", CONFIG, {"gc_interval": "1h"})
    assert (configured.status, configured.body) == (204, b"")


@pytest.mark.rule("section 8")
def test_the_short_paths_are_the_same(rest: MqRest, root: str) -> None:
    body = {"name": root, "topic_filter": f"{root}/#"}
    assert rest.call("POST", "queues", body).status == 200
    assert root in [one["name"] for one in rest.call("GET", "queues?limit=10000").json["data"]]
    assert rest.call("GET", f"queue/{root}").json == rest.call("GET", f"{QUEUES}/{root}").json
    updated = rest.call("PUT", f"queue/{root}", {"dispatch_strategy": "round_robin"})
    assert updated.json["dispatch_strategy"] == "round_robin"
    assert rest.call("GET", "queues/config").json == rest.call("GET", CONFIG).json
    assert rest.call("PUT", "queues/config", {"gc_interval": "1h"}).status == 204
    assert rest.call("DELETE", f"queue/{root}").status == 204
    assert rest.call("GET", f"{QUEUES}/{root}").status == 404


@pytest.mark.rule("section 8", "M1")
def test_the_short_path_of_a_legacy_queue(rest: MqRest, root: str) -> None:
    rest.create(f"{root}/+/x")
    for name in (f"{root}/+/x", f"/{root}/+/x"):
        answer = rest.call("GET", f"queue/{quote(name, safe='')}")
        assert (answer.status, answer.json["name"]) == (200, f"/{root}/+/x")


@pytest.mark.rule("acceptance 15", "section 8")
def test_ten_queues_are_two_pages_of_six(fresh_broker: BrokerFactory) -> None:
    rest = MqRest(fresh_broker())
    names = [rest.create(f"t{number}/#", name=f"q{number}").name for number in range(10)]
    first = rest.call("GET", f"{QUEUES}?limit=6").json
    assert len(first["data"]) == 6
    assert first["meta"]["hasnext"] is True
    cursor = quote(first["meta"]["cursor"], safe="")
    second = rest.call("GET", f"{QUEUES}?limit=6&cursor={cursor}").json
    assert second["meta"] == {"hasnext": False}
    shown = [one["name"] for one in first["data"] + second["data"]]
    assert len(shown) == 10
    assert sorted(shown) == sorted(names)


@pytest.mark.rule("section 8")
def test_pages_end_when_the_last_one_is_full(fresh_broker: BrokerFactory) -> None:
    rest = MqRest(fresh_broker())
    assert rest.call("GET", QUEUES).json == {"data": [], "meta": {"hasnext": False}}
    for number in range(4):
        rest.create(f"{number}/#")
    page = rest.call("GET", f"{QUEUES}?limit=4").json
    assert (len(page["data"]), page["meta"]) == (4, {"hasnext": False})
    sizes, path = [], f"{QUEUES}?limit=1"
    while True:
        page = rest.call("GET", path).json
        sizes.append(len(page["data"]))
        if not page["meta"]["hasnext"]:
            break
        path = f"{QUEUES}?limit=1&cursor={quote(page['meta']['cursor'], safe='')}"
    assert sizes == [1, 1, 1, 1]


@pytest.mark.rule("section 8")
def test_pages_go_on_though_a_queue_is_deleted_between_them(fresh_broker: BrokerFactory) -> None:
    rest = MqRest(fresh_broker())
    queues = {one.name: one for one in (rest.create(f"{n}/#", name=f"q{n}") for n in range(6))}
    first = rest.call("GET", f"{QUEUES}?limit=3").json
    seen = [one["name"] for one in first["data"]]
    rest.delete(queues[seen[-1]])
    cursor = quote(first["meta"]["cursor"], safe="")
    second = rest.call("GET", f"{QUEUES}?limit=3&cursor={cursor}").json
    assert sorted(seen + [one["name"] for one in second["data"]]) == sorted(queues)


@pytest.mark.rule("acceptance 16", "section 8")
@pytest.mark.parametrize("cursor", ["nonsense", "%00", "%F0%9F%90%87", "a%2Fb"])
def test_a_cursor_which_is_none_is_refused(rest: MqRest, cursor: str) -> None:
    answer = rest.call("GET", f"{QUEUES}?cursor={cursor}")
    assert_error(answer, 400, "BAD_REQUEST", "Invalid cursor")


@pytest.mark.rule("acceptance 16", "section 8")
@pytest.mark.parametrize("limit", ["0", "-1", "10001", "many", "1.5"])
def test_a_limit_out_of_range_is_refused(rest: MqRest, limit: str) -> None:
    assert rest.call("GET", f"{QUEUES}?limit={limit}").status == 400


@pytest.mark.rule("acceptance 16", "section 8")
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
@pytest.mark.parametrize("path", [f"{QUEUES}/nothing", "queue/nothing", f"{QUEUES}/%2Fno%2F%23"])
def test_a_queue_which_is_not_there_is_not_found(rest: MqRest, method: str, path: str) -> None:
    body = {"dispatch_strategy": "random"} if method == "PUT" else None
    assert_error(rest.call(method, path, body), 404, "NOT_FOUND", "Message queue not found")


@pytest.mark.rule("acceptance 16", "section 8")
def test_a_queue_exists_once(rest: MqRest, root: str) -> None:
    for body in ({"name": root, "topic_filter": f"{root}/#"}, {"topic_filter": f"{root}/#"}):
        assert rest.call("POST", QUEUES, body).status == 200
        assert_error(rest.call("POST", QUEUES, body), 400, "ALREADY_EXISTS")
    other = {"name": root, "topic_filter": f"{root}/other"}
    assert_error(rest.call("POST", QUEUES, other), 400, "ALREADY_EXISTS")


@pytest.mark.rule("acceptance 16", "section 8", "section 7")
def test_there_are_no_more_queues_than_allowed(fresh_broker: BrokerFactory) -> None:
    rest = MqRest(fresh_broker({"mq.max_queue_count": 2}))
    queues = [rest.create(f"{number}/#") for number in range(2)]
    answer = rest.call("POST", QUEUES, {"topic_filter": "2/#"})
    assert_error(answer, 400, "MAX_QUEUE_COUNT_REACHED")
    rest.delete(queues[0])
    rest.create("2/#")
    rest.configure(max_queue_count=3)
    rest.create("3/#")


@pytest.mark.rule("acceptance 16", "section 8")
@pytest.mark.parametrize(
    "fields",
    [
        {"topic_filter": None},
        {"topic_filter": ""},
        {"topic_filter": "a/#/b"},
        {"topic_filter": "a+"},
        {"topic_filter": 7},
        {"is_lastvalue": "yes"},
        {"is_lastvalue": False, "key_expression": "message.from"},
        {"key_expression": "nonsense("},
        {"data_retention_period": "soon"},
        {"data_retention_period": -1},
        {"dispatch_strategy": "fair"},
        {"limits": {"max_shard_message_count": -1}},
        {"limits": {"max_shard_message_bytes": "big"}},
        {"limits": 5},
        {"local_max_inflight": 0},
        {"no_such_setting": 1},
    ],
)
def test_a_body_against_the_schema_is_refused(
    rest: MqRest, root: str, fields: dict[str, Any]
) -> None:
    body = {"name": root, "topic_filter": f"{root}/#"} | fields
    answer = rest.call("POST", QUEUES, {k: v for k, v in body.items() if v is not None})
    assert_error(answer, 400, "BAD_REQUEST")
    assert root not in rest.names()


@pytest.mark.rule("acceptance 16", "section 8")
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"\xff"])
@pytest.mark.parametrize(("method", "path"), [("POST", QUEUES), ("PUT", CONFIG)])
def test_a_body_which_is_no_object_is_refused(
    rest: MqRest, method: str, path: str, body: bytes
) -> None:
    headers = {"Content-Type": "application/json"}
    answer = rest.fetch(f"/api/v5/{path}", method=method, body=body, headers=headers)
    assert_error(answer, 400, "BAD_REQUEST")


@pytest.mark.rule("acceptance 16", "section 8")
def test_the_kind_of_a_queue_does_not_change(
    rest: MqRest, regular: MakeQueue, last_value: MakeQueue
) -> None:
    for queue, flag in ((regular(), True), (last_value(), False)):
        answer = rest.call("PUT", queue.path, {"is_lastvalue": flag})
        text = "LastValue flag is not allowed to be updated"
        assert_error(answer, 400, "BAD_REQUEST", text)
        assert rest.update(queue, is_lastvalue=not flag)["is_lastvalue"] is not flag


@pytest.mark.rule("acceptance 16", "section 8", "M26")
def test_a_regular_queue_stays_limited_or_unlimited(rest: MqRest, regular: MakeQueue) -> None:
    limited = regular(limits={"max_shard_message_count": 10})
    text = "Regular queues cannot be updated from limited to unlimited and vice versa"
    for queue, limits in (
        (limited, UNLIMITED),
        (regular(), {"max_shard_message_count": 10}),
        (regular(), {"max_shard_message_bytes": "1MB"}),
    ):
        assert_error(rest.call("PUT", queue.path, {"limits": limits}), 400, "BAD_REQUEST", text)
    answer = rest.update(limited, limits={"max_shard_message_count": 20})
    assert answer["limits"]["max_shard_message_count"] == 20


@pytest.mark.rule("section 8", "M26")
def test_a_last_value_queue_may_get_and_lose_limits(rest: MqRest, last_value: MakeQueue) -> None:
    queue = last_value()
    answer = rest.update(queue, limits={"max_shard_message_count": 5})
    assert answer["limits"] == UNLIMITED | {"max_shard_message_count": 5}
    assert rest.update(queue, limits=UNLIMITED)["limits"] == UNLIMITED


@pytest.mark.rule("section 8")
def test_what_an_update_omits_stays(rest: MqRest, last_value: MakeQueue) -> None:
    queue = last_value(data_retention_period="3d", limits={"max_shard_message_count": 50})
    before = rest.call("GET", queue.path).json
    after = rest.update(queue, dispatch_strategy="round_robin")
    assert after == before | {"dispatch_strategy": "round_robin"}
    assert rest.call("GET", queue.path).json == after
    assert rest.update(queue) == after


@pytest.mark.rule("section 8")
def test_an_update_changes_neither_name_nor_filter(rest: MqRest, regular: MakeQueue) -> None:
    queue = regular()
    before = rest.call("GET", queue.path).json
    for change in ({"name": "other"}, {"topic_filter": "other/#"}):
        rest.call("PUT", queue.path, change)
        assert rest.call("GET", queue.path).json == before


@pytest.mark.rule("section 8")
def test_a_refused_update_changes_nothing(rest: MqRest, regular: MakeQueue) -> None:
    queue = regular()
    before = rest.call("GET", queue.path).json
    for change in (
        {"dispatch_strategy": "fair"},
        {"key_expression": "message.from"},
        {"dispatch_strategy": "round_robin", "data_retention_period": "soon"},
    ):
        assert_error(rest.call("PUT", queue.path, change), 400, "BAD_REQUEST")
        assert rest.call("GET", queue.path).json == before


@pytest.mark.rule("section 8")
@pytest.mark.parametrize("path", [QUEUES, CONFIG, "queues", "queues/config", f"{QUEUES}/x"])
def test_every_call_needs_the_key(broker: BrokerProcess, path: str) -> None:
    for authorization in (None, "Basic bm86bm8=", "Bearer no:no"):
        answer = fetch(broker.http_port, f"/api/v5/{path}", authorization=authorization)
        assert answer.status == 401


@pytest.mark.rule("section 8")
def test_a_bearer_is_as_good_as_basic(broker: BrokerProcess) -> None:
    key = (broker.data_dir / "api-key").read_text().strip()
    answer = fetch(broker.http_port, f"/api/v5/{QUEUES}", authorization=f"Bearer {key}")
    assert answer.status == 200


@pytest.mark.rule("section 8")
def test_queues_and_settings_survive_a_restart(fresh_broker: BrokerFactory) -> None:
    broker = fresh_broker()
    rest = MqRest(broker)
    rest.create("a/#", name="a", is_lastvalue=False, limits={"max_shard_message_count": 7})
    rest.create("b/#", key_expression="message.topic", data_retention_period="3d")
    rest.delete(rest.create("c/#"))
    rest.configure(max_queue_count=3, gc_interval="5m")
    before = rest.call("GET", QUEUES).json["data"]
    config = rest.config()
    broker.kill()
    broker.restart()
    assert rest.call("GET", QUEUES).json["data"] == before
    assert rest.config() == config
    assert (config["max_queue_count"], config["gc_interval"]) == (3, 300_000)
