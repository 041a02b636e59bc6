"""Retention, garbage collection, and what administrators can see and do."""

from __future__ import annotations

import asyncio
import json

import pytest

from queuelake import control_sdv as ops
from queuelake.broker.fanout_operations import FanoutOperations
from queuelake.errors import NotFoundError, RefusedError
from queuelake.sdv_settings import BadSdvSettingsError, SdvConfig, read_config
from queuelake.storage import api
from tests.simulation.node import RETRY_MS
from tests.unit.fanout_node import DAY_MS, HOUR_MS, FanoutNode


def test_everything_is_gone_after_the_retention() -> None:
    """T9, S24."""
    node = FanoutNode()
    node.data("d", b"1")
    node.trigger(["V", "W"], "task_a_1", "d")
    node.leap(6 * DAY_MS)
    assert node.fanout.status().remaining_messages == 2
    node.leap(DAY_MS)
    status = node.fanout.status()
    assert (status.remaining_messages, status.unique_payloads) == (0, 0)
    usage = status.memory_usage
    assert (usage.index, usage.data.payload, usage.data.meta) == (0, 0, 0)
    assert node.fanout.request("task_a_1").expired == 2
    node.leap(7 * DAY_MS)
    for table in (api.SDV_DATA, api.SDV_META, api.SDV_IDS, api.SDV_REQUESTS, api.SDV_REFERENCES):
        assert node.store.tables[table] == {}
    assert node.fanout.metrics.expired() == 2
    node.check()


def test_an_expired_row_is_not_sent_even_before_it_is_collected() -> None:
    """S26."""
    node = FanoutNode(gc_interval="30d")
    node.data("d", b"1")
    node.trigger(["V"], "task_a_1", "d")
    node.loop.now_ns += 7 * DAY_MS * 1_000_000
    node.data("d", b"1")
    node.trigger(["V"], "task_a_2", "d")
    vehicle = node.vehicle("V")
    assert node.drain(vehicle) == [("task_a_2", b"1")]
    assert node.fanout.request("task_a_1").expired == 1
    node.check()


def test_a_row_which_is_never_acknowledged_is_collected_too() -> None:
    node = FanoutNode(gc_interval="30d")
    node.data("d", b"1")
    vehicle = node.vehicle("V")
    node.trigger(["V"], "task_a_1", "d")
    [sent] = node.take(vehicle)
    node.loop.now_ns += 7 * DAY_MS * 1_000_000
    node.data("d", b"1")
    node.trigger(["V"], "task_a_2", "d")
    assert node.fanout.collect_garbage()
    node.pass_time(1_000)
    assert node.pending("V") == ["task_a_2"]
    assert node.take(vehicle) == []  # one is in flight
    node.acknowledge(vehicle, sent)
    assert node.drain(vehicle) == [("task_a_2", b"1")]
    one = node.fanout.request("task_a_1")
    assert (one.expired, one.acked, one.pending) == (1, 0, 0)
    node.check()


def test_data_lives_as_long_as_a_row_needs_it() -> None:
    """S11."""
    for keeps in (True, False):
        node = FanoutNode(keep_referenced=keeps)
        node.data("d", b"1")
        node.leap(4 * DAY_MS)
        node.trigger(["V"], "task_a_1", "d")
        node.leap(4 * DAY_MS)
        assert node.fanout.status().unique_payloads == int(keeps)
        node.data("d", b"again")
        assert node.drain(node.vehicle("V")) == [("task_a_1", b"1" if keeps else b"again")]
        node.check()


def test_data_published_while_it_is_collected_stays() -> None:
    node = FanoutNode()
    node.data("d", b"1")
    node.loop.now_ns += 8 * DAY_MS * 1_000_000
    assert node.fanout.collect_garbage()
    node.platform().publish("$SDV-FANOUT/data/d", b"2", 1, node.next_id())
    node.work()
    node.trigger(["V"], "task_a_1", "d")
    assert node.drain(node.vehicle("V")) == [("task_a_1", b"2")]
    node.check()


def test_a_failed_commit_does_not_keep_garbage() -> None:
    node = FanoutNode()
    node.data("d", b"1")
    node.trigger(["V"], "task_a_1", "d")
    node.leap(6 * DAY_MS)
    node.loop.now_ns += 2 * DAY_MS * 1_000_000
    assert node.fanout.collect_garbage()
    for _ in range(8):
        node.store.fail_commits = 1
        node.pass_time(600)
    for _ in range(3):
        node.pass_time(RETRY_MS)
    assert node.rows() == 0
    assert node.fanout.status().remaining_messages == 0
    node.check()


def test_runs_are_in_slices_and_one_at_a_time() -> None:
    """S24, S25."""
    node = FanoutNode()
    node.trigger([f"V{number}" for number in range(2_500)], "task_a_1", "d")
    node.loop.now_ns += 8 * DAY_MS * 1_000_000
    assert node.fanout.collect_garbage()
    assert not node.fanout.collect_garbage()
    node.work()
    assert node.rows() == 2_495, "a client has just sent something"
    node.pass_time(10)
    assert node.rows() == 2_395
    node.pass_time(1_000)
    assert node.rows() == 0
    assert node.fanout.collect_garbage()


def test_a_changed_interval_starts_a_run() -> None:
    node = FanoutNode()
    node.fanout.configure(SdvConfig(data_retention="1h"))
    assert node.fanout.metrics.gc_runs == 0
    node.fanout.configure(SdvConfig(gc_interval="2h"))
    assert node.fanout.metrics.gc_runs == 1
    node.work()
    node.leap(HOUR_MS + 60_000)
    assert node.fanout.metrics.gc_runs == 1
    node.leap(HOUR_MS)
    assert node.fanout.metrics.gc_runs == 2
    node.crash()
    assert node.fanout.config.gc_interval == "2h"


def test_the_first_run_comes_within_half_an_hour() -> None:
    node = FanoutNode(gc_interval="5h")
    node.leap(HOUR_MS // 2)
    assert node.fanout.metrics.gc_runs == 1


def test_what_is_configured_at_run_time_is_used_at_once() -> None:
    node = FanoutNode()
    vehicle = node.vehicle("V")
    node.trigger(["V"], "task_a_1", "d")
    node.fanout.payloads.put("d", b"1", 0)  # nobody hears of it
    node.fanout.payloads.stored()
    node.fanout.dispatcher.left("V")
    changes = {"heartbeat_topics": ["alive/{VIN}"]}
    node.fanout.configure(read_config(node.fanout.config, changes))
    node.work()
    node.beat(vehicle)
    assert node.take(vehicle) == []
    vehicle.publish("alive/V", b"", 0, 0)
    node.work()
    assert node.drain(vehicle) == [("task_a_1", b"1")]


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic_prefix": "a/b"},
        {"topic_prefix": "a/{VIN}/{VIN}"},
        {"topic_prefix": "a/{VIN}/"},
        {"topic_prefix": "a/+/{VIN}"},
        {"topic_prefix": "$a/{VIN}"},
        {"heartbeat_topics": ["a/x{VIN}"]},
        {"heartbeat_topics": ["a"]},
        {"gc_interval": 0},
        {"data_retention": "soon"},
        {"dispatcher_pool_size": 10241},
        {"same_request": "other"},
        {"unknown": 1},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadSdvSettingsError) as caught:
        read_config(SdvConfig(), wrong)
    assert len(caught.value.mistakes) == 1
    assert next(iter(wrong)) in caught.value.mistakes[0]


async def nothing() -> None:
    """What is durable at once."""


class Asked:
    """The operations of a node."""

    def __init__(self, node: FanoutNode) -> None:
        self._table = FanoutOperations(node.fanout, nothing).table()

    def __call__(self, operation: str, **args: object) -> object:
        answer = self._table[operation](dict(args))
        return asyncio.run(answer) if asyncio.iscoroutine(answer) else answer


def test_requests_can_be_followed_and_called_off() -> None:
    node = FanoutNode()
    ask = Asked(node)
    vehicle = node.vehicle("V")
    node.data("d", b"1")
    node.trigger(["V", "W", "X", "Y"], "task_a_1", "d")
    node.trigger(["V", "W"], "task_a_2", "d")
    one = ask(ops.SDV_REQUEST, request_id="task_a_1")
    assert isinstance(one, ops.SdvRequest)
    assert (one.triggered, one.pending, one.in_flight) == (4, 3, 1)
    done = ask(ops.SDV_CANCEL, request_id="task_a_1", vins=["W", "nobody"])
    assert done == ops.SdvCancelled("task_a_1", 1, 0)
    done = ask(ops.SDV_CANCEL, request_id="task_a_1")
    assert done == ops.SdvCancelled("task_a_1", 2, 1)
    assert node.pending("W") == ["task_a_2"]
    assert node.drain(vehicle) == [("task_a_1", b"1"), ("task_a_2", b"1")]
    one = ask(ops.SDV_REQUEST, request_id="task_a_1")
    assert isinstance(one, ops.SdvRequest)
    assert (one.pending, one.in_flight, one.acked, one.cancelled) == (0, 0, 1, 3)
    with pytest.raises(NotFoundError):
        ask(ops.SDV_REQUEST, request_id="unknown")
    page = ask(ops.SDV_REQUESTS, limit=1)
    assert isinstance(page, ops.SdvRequestPage)
    rest = ask(ops.SDV_REQUESTS, limit=1, cursor=page.cursor)
    assert isinstance(rest, ops.SdvRequestPage)
    assert {one.request_id for one in page.data + rest.data} == {"task_a_1", "task_a_2"}
    assert rest.cursor is None
    with pytest.raises(RefusedError):
        ask(ops.SDV_REQUESTS, cursor="zz")
    node.check()


def test_a_vehicle_can_be_inspected() -> None:
    node = FanoutNode()
    ask = Asked(node)
    node.data("d", b"1")
    node.trigger(["V"], "task_a_1", "missing")
    node.trigger(["V"], "task_a_2", "d")
    seen = ask(ops.SDV_INSPECT, vin="V")
    assert isinstance(seen, ops.SdvVehicle)
    assert (seen.connected, seen.subscribed, seen.in_flight) == (False, False, None)
    assert [(one.request_id, one.has_data) for one in seen.pending] == [
        ("task_a_1", False),
        ("task_a_2", True),
    ]
    node.vehicle("V")
    seen = ask(ops.SDV_INSPECT, vin="V")
    assert isinstance(seen, ops.SdvVehicle)
    assert seen.connected
    assert seen.subscribed
    assert seen.in_flight is not None
    assert seen.in_flight.request_id == "task_a_2"


def test_the_configuration_is_shown_and_changed() -> None:
    node = FanoutNode()
    ask = Asked(node)
    body = json.dumps({"gc_interval": 5000, "on_reject": "dlq"}).encode()
    info = ask(ops.SDV_CONFIGURE, settings=body)
    assert isinstance(info, ops.SdvConfigInfo)
    assert (info.origin.gc_interval, info.inuse.gc_interval) == ("5000ms", 5000)
    assert info.inuse.dispatcher_pool_size > 0
    assert ask(ops.SDV_CONFIG) == info
    with pytest.raises(BadSdvSettingsError):
        ask(ops.SDV_CONFIGURE, settings=b"{")
    assert ask(ops.SDV_GC) == ops.SdvGcAnswer(True)


def test_figures_tell_what_was_done() -> None:
    node = FanoutNode()
    vehicle = node.vehicle("V")
    node.data("d", b"1")
    node.trigger(["V", "W"], "task_a_1", "d")
    node.drain(vehicle)
    node.vehicle("W")
    figures = node.fanout.figures()
    assert (figures.pending, figures.inflight, figures.acked, figures.triggers) == (1, 1, 1, 1)
    causes = {"batch": 1, "heartbeat": 0, "ack": 0, "subscribe": 1, "data": 0}
    assert figures.dispatched_by_trigger == causes
    assert sum(figures.time_to_ack_counts) == 1
    assert [one.request_id for one in figures.requests] == ["task_a_1"]
