"""The routes of vehicle fan-out: paths, bodies, pages and codes, over a fake service."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from queuelake.admin.rest_sdv import CANCEL_BYTES_MAX
from queuelake.admin.sdv_metrics import STATES, sdv_families
from queuelake.broker.fanout_operations import FanoutOperations
from queuelake.control_sdv import SdvFigures
from tests.api.fake_sdv import REQUESTS, VINS, FakeFanout, add_fanout
from tests.api.live import Answer, LiveAdmin
from tests.api.test_mq import samples
from tests.api.test_rest_v1 import assert_problem

SDV = "/api/v1/sdv"
CONFIG = f"{SDV}/config"


@pytest.fixture
def fanout(admin: LiveAdmin) -> FakeFanout:
    return add_fanout(admin)


def send(admin: LiveAdmin, method: str, path: str, body: Any) -> Answer:
    return admin.fetch(path, method=method, body=json.dumps(body).encode())


def path_of(request_id: str, rest: str = "") -> str:
    return f"{SDV}/requests/{quote(request_id, safe='')}{rest}"


def test_the_status_is_that_of_the_contract(admin: LiveAdmin, fanout: FakeFanout) -> None:
    """Section 7."""
    assert admin.fetch(f"{SDV}/status").json == {
        "remaining_messages": 12,
        "unique_payloads": 1,
        "memory_usage": {"index": 1200, "data": {"payload": 1000, "meta": 24}},
    }


def test_a_vehicle_shows_what_waits_for_it(admin: LiveAdmin, fanout: FakeFanout) -> None:
    shown = admin.fetch(f"{SDV}/vehicles/V1").json
    assert [row["request_id"] for row in shown["pending"]] == REQUESTS
    assert shown["in_flight"]["request_id"] == REQUESTS[0]
    assert (shown["connected"], shown["subscribed"], shown["has_more"]) == (True, True, False)
    nothing = admin.fetch(f"{SDV}/vehicles/nobody").json
    assert (nothing["pending"], nothing["in_flight"]) == ([], None)


@pytest.mark.parametrize("request_id", REQUESTS)
def test_any_request_is_followed_and_cancelled(
    admin: LiveAdmin, fanout: FakeFanout, request_id: str
) -> None:
    shown = admin.fetch(path_of(request_id)).json
    assert (shown["request_id"], shown["triggered"], shown["pending"]) == (request_id, 3, 3)
    some = send(admin, "POST", path_of(request_id, "/cancel"), {"vins": ["V2", "nobody"]})
    assert (some.status, some.json) == (
        200,
        {"request_id": request_id, "cancelled": 1, "in_flight": 0},
    )
    rest = admin.fetch(path_of(request_id, "/cancel"), method="POST")
    assert rest.json["cancelled"] == len(VINS) - 1
    assert admin.fetch(path_of(request_id)).json["cancelled"] == len(VINS)
    assert fanout.commits == 2


def test_a_request_nobody_made_is_not_there(admin: LiveAdmin, fanout: FakeFanout) -> None:
    assert_problem(admin.fetch(path_of("nosuch")), 404, "NOT_FOUND")
    answer = admin.fetch(path_of("nosuch", "/cancel"), method="POST")
    assert answer.json == {"request_id": "nosuch", "cancelled": 0, "in_flight": 0}


@pytest.mark.parametrize(
    "body",
    [
        *(
            b"[]",
            b"{",
            b"\xff",
            b"[" * 10_000,
            b'{"vins": []}',
            b'{"vins": [1]}',
            b'{"vins": [""]}',
        ),
        *(b'{"vin": ["V1"]}', b'{"vins": ["V1"], "dry_run": true}'),
    ],
)
def test_nothing_is_cancelled_by_mistake(admin: LiveAdmin, fanout: FakeFanout, body: bytes) -> None:
    answer = admin.fetch(path_of("a/b", "/cancel"), method="POST", body=body)
    assert_problem(answer, 400, "BAD_REQUEST")
    assert fanout.waiting["a/b"] == set(VINS)


def test_requests_are_listed_page_by_page(admin: LiveAdmin, fanout: FakeFanout) -> None:
    names: list[str] = []
    cursor = ""
    while True:
        page = admin.fetch(f"{SDV}/requests?limit=3&cursor={quote(cursor, safe='')}").json
        names += [one["request_id"] for one in page["data"]]
        if page["cursor"] is None:
            break
        cursor = page["cursor"]
    assert names == sorted(REQUESTS)
    assert_problem(admin.fetch(f"{SDV}/requests?limit=1001"), 400, "BAD_REQUEST")


def test_garbage_is_collected_once_at_a_time(admin: LiveAdmin, fanout: FakeFanout) -> None:
    """S25."""
    answer = admin.fetch(f"{SDV}/gc", method="POST")
    assert (answer.status, answer.json) == (202, {"started": True})
    fanout.collecting = True
    assert admin.fetch(f"{SDV}/gc", method="POST").json == {"started": False}


def test_the_configuration_is_shown_as_written_and_as_understood(
    admin: LiveAdmin, fanout: FakeFanout
) -> None:
    shown = admin.fetch(CONFIG).json
    assert shown["origin"]["dispatcher_pool_size"] == 0
    assert shown["inuse"]["dispatcher_pool_size"] >= 1
    assert shown["origin"].keys() == shown["inuse"].keys()
    changes = {"same_request": "replace", "gc_interval": "1500"}
    changed = send(admin, "PUT", CONFIG, changes)
    assert (changed.status, changed.json) == (200, admin.fetch(CONFIG).json)
    understood = {"same_request": "replace", "gc_interval": 1500}
    assert changed.json["inuse"] == shown["inuse"] | understood
    assert send(admin, "PUT", CONFIG, shown["origin"]).json == shown


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"topic_prefix": "cars/cmd"}, 'topic_prefix = "cars/cmd"'),
        ({"topic_prefix": "{VIN}/{VIN}"}, "exactly once"),
        ({"topic_prefix": "cars/{VIN}/"}, "no / at the end"),
        ({"topic_prefix": "cars/{VIN}/+"}, "without wildcards"),
        ({"topic_prefix": "cars/{VIN}/cmd"}, "the configuration file and a restart"),
        ({"same_request": "forget"}, "same_request"),
        ({"dispatcher_pool_size": 10241}, "dispatcher_pool_size = 10241"),
        ({"nosuch": 1}, "nosuch"),
        ([], "JSON object"),
    ],
)
def test_a_value_which_cannot_be_is_refused_by_name(
    admin: LiveAdmin, fanout: FakeFanout, body: Any, named: str
) -> None:
    """Section 6."""
    answer = send(admin, "PUT", CONFIG, body)
    assert_problem(answer, 400, "BAD_REQUEST")
    assert named in answer.json["message"]
    assert fanout.commits == 0


def test_limits_methods_and_a_broker_which_is_down(admin: LiveAdmin, fanout: FakeFanout) -> None:
    answer = admin.fetch(
        path_of("a/b", "/cancel"), method="POST", body=b" " * (CANCEL_BYTES_MAX + 1)
    )
    assert_problem(answer, 413, "CONTENT_TOO_LARGE")
    answer = admin.fetch(CONFIG, method="DELETE")
    assert_problem(answer, 405, "METHOD_NOT_ALLOWED")
    assert answer.headers["allow"] == "GET, PUT"
    admin.broker_down()
    assert_problem(admin.fetch(f"{SDV}/status"), 503, "BROKER_DOWN")


def test_metrics_have_the_names_of_the_contract() -> None:
    """Section 10."""
    fake = FakeFanout()
    figures = FanoutOperations(fake, fake.durable).figures()
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(figures), type=SdvFigures)
    found = samples(list(sdv_families(sent)))
    assert found["sdv_pending",] == 12
    assert found["sdv_inflight",] == 1
    assert found["sdv_dispatched_total", "heartbeat"] == 1
    assert found["sdv_acked_total",] == 3
    assert found["sdv_rejected_total",] == 0
    assert found["sdv_expired_total",] == 0
    assert found["sdv_missing_data",] == 2
    assert found["sdv_trigger_invalid_total",] == 4
    latency = "sdv_time_to_ack_seconds"
    assert found[f"{latency}_bucket", "0.01"] == 2
    assert found[f"{latency}_bucket", "86400.0"] == 3
    assert found[f"{latency}_bucket", "+Inf"] == 4
    assert found[f"{latency}_sum",] == 90_000.5
    rows = [found["sdv_request_rows", "task_ota_1", state] for state in STATES]
    assert rows == [3, 0, 0, 0, 0, 0, 0]
