"""What platforms publish: data, triggers of any size, refusals, a store which fails (S1-S10)."""

from __future__ import annotations

import hashlib
import json
from itertools import pairwise
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuelake.broker.auth.acl import Acl, vehicle_rules
from queuelake.broker.fanout import trigger as trigger_module
from queuelake.broker.fanout.storing import ROWS_PER_SLICE, ROWS_PER_SLICE_SHARED
from queuelake.broker.fanout.trigger import Trigger, TriggerError, read_trigger
from queuelake.protocol import reasons
from queuelake.storage import api
from queuelake.storage import sdv_tables as t
from tests.harness import packets as p
from tests.simulation.node import RETRY_MS
from tests.unit.fanout_node import FanoutNode, trigger_json

WRONG = [
    b"",
    b"{",
    b"[]",
    b'"text"',
    b'{"ids":["v"]}',
    b'{"ids":["v"],"request_id":"r"}',
    b'{"ids":"v","request_id":"r","data_id":"d"}',
    b'{"ids":[1],"request_id":"r","data_id":"d"}',
    b'{"ids":[""],"request_id":"r","data_id":"d"}',
    b'{"ids":["v","a/b"],"request_id":"r","data_id":"d"}',
    b'{"ids":["v","+"],"request_id":"r","data_id":"d"}',
    b'{"ids":["v","a#"],"request_id":"r","data_id":"d"}',
    b'{"ids":["v","a\\u0000"],"request_id":"r","data_id":"d"}',
    b'{"ids":["v"],"request_id":"","data_id":"d"}',
    b'{"ids":["v"],"request_id":"a/b","data_id":"d"}',
    b'{"ids":["v"],"request_id":"r","data_id":""}',
    b'{"ids":["v"],"request_id":7,"data_id":"d"}',
    b'{"ids":null,"request_id":"r","data_id":"d"}',
    json.dumps({"ids": ["v" * 1025], "request_id": "r", "data_id": "d"}).encode(),
    json.dumps({"ids": ["v"], "request_id": "r" * 1025, "data_id": "d"}).encode(),
    b'{"ids":["\\ud800"],"request_id":"r","data_id":"d"}',
    b'{"ids":["\xff"],"request_id":"r","data_id":"d"}',
    b"[" * 5000,
    b'{"ids":[' + b" " * 5000 + b',"v"],"request_id":"r","data_id":"d"}',
    b'{"ids":["v"' + b" " * 5000 + b',],"request_id":"r","data_id":"d"}',
]


VIN_CHARACTERS = st.characters(codec="utf-8", exclude_characters="/+#\0")


def read_vins(trigger: Trigger) -> list[str]:
    vins: list[str] = []
    while part := trigger.next_vins():
        vins += part
    return vins


@pytest.mark.parametrize("payload", WRONG)
def test_a_wrong_trigger_is_refused_as_a_whole(payload: bytes) -> None:
    """T7, S3."""
    with pytest.raises(TriggerError) as caught:
        read_vins(read_trigger(payload))
    assert caught.value.reason_code == reasons.PAYLOAD_FORMAT_INVALID


def test_a_right_trigger_may_say_more_and_repeat_itself() -> None:
    """S6."""
    body = {"ids": ["b", "a", "b", "Ä" * 300], "request_id": "r", "data_id": "d/e", "more": {}}
    trigger = read_trigger(json.dumps(body).encode())
    assert read_vins(trigger) == ["b", "a", "b", "Ä" * 300]
    assert (trigger.request_id, trigger.data_id) == ("r", "d/e")


@given(
    st.lists(st.text(VIN_CHARACTERS, min_size=1), max_size=30), st.integers(1, 40), st.booleans()
)
def test_a_trigger_read_in_parts_says_the_same(
    vins: list[str], size: int, ascii_only: bool
) -> None:
    body = {"ids": vins, "request_id": "r", "data_id": "d"}
    with mock.patch.object(trigger_module, "PART_BYTES", size):
        read = read_trigger(json.dumps(body, ensure_ascii=ascii_only).encode())
        assert read_vins(read) == vins


@pytest.mark.parametrize(
    "payload",
    [
        b'{"ids": ["a]b", "c"], "request_id": "r", "data_id": "d"}',
        b'{"x": {"ids": ["no"]}, "ids": ["a]b", "c"], "request_id": "r", "data_id": "d"}',
        b'{"request_id": "r", "x": ["ids"], "data_id": "d", "ids": ["a]b", "c"]}',
        b'{"ids": [], "request_id": "r", "data_id": "d", "\\u0069ds": ["a]b", "c"]}',
        b'{"x": "\\"ids\\": [", "ids":\n[ "a]b" ,"c" ], "request_id": "r", "data_id": "d"}',
    ],
)
def test_the_list_is_found_wherever_it_is(payload: bytes) -> None:
    trigger = read_trigger(payload)
    assert read_vins(trigger) == ["a]b", "c"]
    plain = read_trigger(payload.replace(b"]b", b"b"))
    assert read_vins(plain) == ["ab", "c"]
    assert (trigger.request_id, trigger.data_id) == ("r", "d")


def test_what_is_wrong_far_behind_is_refused_with_nothing_stored() -> None:
    """S3."""
    node = FanoutNode()
    platform = node.platform()
    vins = [f"V{number}" for number in range(5_000)] + ["a/b"]
    platform.publish("$SDV-FANOUT/trigger", trigger_json(vins, "task_a_1", "d"), 1, 7)
    platform.publish("other", b"", 1, 8)
    node.work()
    answers = platform.take_all()
    assert [(one.packet_id, one.reason_code) for one in answers] == [(7, 0x99), (8, 0x10)]
    assert "a/b" in answers[0].properties["reason_string"]
    assert node.fanout.metrics.trigger_invalid == 1
    assert (node.rows(), node.fanout.register.hidden) == (0, set())
    node.trigger(["V0"], "task_a_1", "d")
    assert node.pending("V0") == ["task_a_1"]


def test_a_wrong_trigger_is_answered_with_the_reason() -> None:
    node = FanoutNode()
    platform = node.platform()
    platform.publish("$SDV-FANOUT/trigger", b"no", 1, 1)
    node.work()
    answer = platform.take()
    assert (answer.type, answer.reason_code) == (p.PUBACK, reasons.PAYLOAD_FORMAT_INVALID)
    assert answer.properties["reason_string"].startswith("trigger: ")
    assert node.fanout.metrics.trigger_invalid == 1
    assert node.rows() == 0


def test_a_wrong_trigger_ends_the_connection_where_it_must() -> None:
    for node, version in ((FanoutNode(), 4), (FanoutNode(on_invalid="disconnect"), 5)):
        platform = node.client("p", version)
        platform.publish("$SDV-FANOUT/trigger", b"no", 1, 1)
        node.work()
        left = platform.take_all()
        assert platform.transport.closed_by_broker()
        assert [one.type for one in left] == ([p.DISCONNECT] if version == 5 else [])
        assert [one.reason_code for one in left] == ([0x99] if version == 5 else [])


def test_other_topics_below_are_refused() -> None:
    node = FanoutNode()
    for topic in ("data/", "data", "triggers", "trigger/x"):
        assert node.ask(topic, b"") >= 0x80


@pytest.mark.parametrize("data_id", ["", "x" * 1025])
def test_data_needs_an_id(data_id: str) -> None:
    node = FanoutNode()
    platform = node.platform()
    platform.publish(f"$SDV-FANOUT/data/{data_id}", b"1", 1, 1)
    node.work()
    answer = platform.take()
    assert answer.reason_code == reasons.TOPIC_NAME_INVALID
    assert answer.properties["reason_string"].startswith("$SDV-FANOUT/data/: data_id ")


def test_nobody_else_sees_what_platforms_publish() -> None:
    """S1."""
    node = FanoutNode()
    node.platform().publish("$SDV-FANOUT/data/d", b"1", 1, node.next_id(), retain=True)
    node.work()
    assert node.platform().take().reason_code == 0
    assert len(node.broker.retained) == 0
    other = node.client("other")
    items: list[p.Subscription] = [("$SDV-FANOUT/#", 1)]
    other.transport.send(p.subscribe(1, items))
    node.work()
    assert other.take().reason_codes == [reasons.NOT_AUTHORIZED]


def test_a_vehicle_may_subscribe_to_its_own_prefix_only() -> None:
    acl = Acl([], True, vehicle_rules("agent/{VIN}/proxy/request"))
    vehicle = acl.for_client("V", "u", "", False, [])
    assert vehicle.may_subscribe(b"agent/V/proxy/request/+")
    assert not vehicle.may_subscribe(b"agent/W/proxy/request/+")
    assert not vehicle.may_subscribe(b"agent/+/proxy/request/+")
    assert vehicle.may_subscribe(b"agent/V/other")
    assert not vehicle.may_publish(b"$SDV-FANOUT/trigger")
    assert not vehicle.may_subscribe(b"$SDV-FANOUT/#")
    platform = acl.for_client("p", "u", "", True, [])
    assert platform.may_publish(b"$SDV-FANOUT/trigger")
    assert platform.may_subscribe(b"agent/+/proxy/request/+")
    assert not platform.may_subscribe(b"$SDV-FANOUT/#")
    strict = Acl([], False, vehicle_rules("cars/x-{VIN}")).for_client("V", "u", "", False, [])
    assert strict.may_subscribe(b"cars/x-V/+")
    assert not strict.may_subscribe(b"cars/x-W/+")


def test_known_data_only_grows_younger() -> None:
    """T8, S7."""
    node = FanoutNode()
    vehicle = node.vehicle("V")
    node.data("d", b"first")
    before = t.read_meta(node.store.tables[api.SDV_META][t.digest("d")])
    node.pass_time(5_000)
    node.data("d", b"second")
    after = t.read_meta(node.store.tables[api.SDV_META][t.digest("d")])
    assert after.ts_ms == before.ts_ms + 5_000
    node.trigger(["V"], "task_a_1", "d")
    assert node.drain(vehicle) == [("task_a_1", b"first")]
    assert node.fanout.status().unique_payloads == 1
    node.check()


def test_data_can_be_checked_against_its_id() -> None:
    node = FanoutNode(verify_sha1=True)
    assert node.ask("data/wrong", b"1") == reasons.PAYLOAD_FORMAT_INVALID
    node.data(hashlib.sha1(b"1").hexdigest(), b"1")
    assert node.fanout.status().unique_payloads == 1


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_triggers_of_every_kind_are_stored_and_answered(version: int, qos: int) -> None:
    node = FanoutNode()
    node.data("d", b"1")
    platform = node.client("p", version)
    platform.publish("$SDV-FANOUT/trigger", trigger_json(["V"], "task_a_1", "d"), qos, 1)
    platform.publish("other", b"", 1, 2)
    node.work()
    types = [one.type for one in platform.take_all()]
    assert types == {0: [p.PUBACK], 1: [p.PUBACK] * 2, 2: [p.PUBREC, p.PUBACK]}[qos]
    assert node.pending("V") == ["task_a_1"]


def test_two_triggers_at_once_keep_their_order() -> None:
    """S9."""
    node = FanoutNode()
    platform = node.platform()
    for number in (9, 1, 5):
        body = trigger_json(["V"], f"task_a_{number}", "d")
        platform.publish("$SDV-FANOUT/trigger", body, 1, number)
    node.work()
    assert [one.packet_id for one in platform.take_all()] == [9, 1, 5]
    assert node.pending("V") == ["task_a_9", "task_a_1", "task_a_5"]
    node.crash()
    node.trigger(["V"], "task_a_0", "d")
    assert node.pending("V")[-1] == "task_a_0"


def test_a_large_trigger_is_seen_when_its_last_row_is_durable() -> None:
    """S2, S5, S8."""
    node = FanoutNode()
    node.fanout.storing.rows_per_slice = 2_000
    vehicle = node.vehicle("V0")
    node.data("d", b"1")
    platform = node.platform()
    vins = [f"V{number}" for number in range(10_000)]
    platform.publish("$SDV-FANOUT/trigger", trigger_json(vins, "task_a_1", "d"), 1, 77)
    platform.publish("other", b"", 1, 78)
    for _ in range(5):
        node.loop.run_until_idle()
        assert platform.transport.received == b""
        assert node.pending("V0") == []
        assert node.committer.is_busy()
        node.committer.commit()
    node.work()
    assert [one.packet_id for one in platform.take_all()] == [77, 78]
    assert node.drain(vehicle) == [("task_a_1", b"1")]
    assert node.fanout.request("task_a_1").pending == 9_999
    node.check()


def test_a_crash_in_the_middle_of_a_trigger_leaves_nothing_of_it() -> None:
    """T15."""
    node = FanoutNode()
    node.fanout.storing.rows_per_slice = 2_000
    platform = node.platform()
    vins = [f"V{number}" for number in range(10_000)]
    platform.publish("$SDV-FANOUT/trigger", trigger_json(vins, "task_a_1", "d"), 1, 77)
    for _ in range(3):
        node.loop.run_until_idle()
        node.committer.commit()
    node.loop.run_until_idle()
    assert platform.take_all() == []
    node.crash()
    assert 6_000 <= node.rows() < 7_000
    assert node.fanout.status().remaining_messages == 0
    assert [vin for vin in vins[::500] if node.pending(vin)] == []
    for _ in range(20):
        node.pass_time(1_000)
    assert node.rows() == 0
    assert node.store.tables[api.SDV_TRIGGERS] == {}
    node.trigger(vins[:3], "task_a_1", "d")
    assert node.pending("V0") == ["task_a_1"]
    node.check()


def test_others_have_a_commit_of_their_own_between_two_slices() -> None:
    node = FanoutNode()
    node.fanout.storing.rows_per_slice = 2
    node.client("keeper").subscribe("kept", qos=1)
    other = node.client("other")
    platform = node.platform()
    vins = [f"V{number}" for number in range(6)]
    platform.publish("$SDV-FANOUT/trigger", trigger_json(vins, "task_a_1", "d"), 1, 77)
    seen = []
    for number in range(1, 7):
        node.loop.run_until_idle()
        seen.append(node.rows())
        if number < 5:
            other.publish("kept", b"1", 1, number)
        node.committer.commit()
    node.work()
    assert seen == [0, 2, 2, 4, 4, 6]
    assert [one.packet_id for one in platform.take_all()] == [77]
    assert [one.packet_id for one in other.take_all()] == [1, 2, 3, 4]


def test_slices_are_small_while_others_send_what_waits_for_no_commit() -> None:
    node = FanoutNode()
    other = node.client("other")
    platform = node.platform()
    vins = [f"V{number}" for number in range(2_000)]
    platform.publish("$SDV-FANOUT/trigger", trigger_json(vins, "task_a_1", "d"), 1, 77)
    seen = []
    for number in range(4):
        node.loop.run_until_idle()
        seen.append(node.rows())
        if number < 2:
            other.publish("plain", b"1", 0, 0)
        node.committer.commit()
    node.work()
    sizes = [after - before for before, after in pairwise(seen)]
    assert sizes == [ROWS_PER_SLICE, ROWS_PER_SLICE_SHARED, ROWS_PER_SLICE_SHARED]
    assert [one.packet_id for one in platform.take_all()] == [77]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("fails_at", [0, 1, 4])
def test_a_failed_commit_disconnects_the_publisher(version: int, fails_at: int) -> None:
    """S4."""
    node = FanoutNode()
    node.fanout.storing.rows_per_slice = 2_000
    node.data("d", b"1")
    platform = node.client("p", version)
    vins = [f"V{number}" for number in range(10_000)]
    platform.publish("$SDV-FANOUT/trigger", trigger_json(vins, "task_a_1", "d"), 1, 77)
    for _ in range(fails_at):
        node.loop.run_until_idle()
        node.committer.commit()
    node.store.fail_commits = 1
    node.work()
    assert platform.transport.closed_by_broker()
    assert [one.reason_code for one in platform.take_all()] == ([0x80] if version == 5 else [])
    node.pass_time(RETRY_MS)
    assert node.fanout.status().remaining_messages == 0
    node.trigger(vins[:2], "task_a_1", "d")
    assert (node.pending("V1"), node.pending("V2")) == (["task_a_1"], [])
    node.check()


@pytest.mark.parametrize("version", [4, 5])
def test_data_which_cannot_be_stored_disconnects_its_publisher(version: int) -> None:
    node = FanoutNode()
    platform = node.client("p", version)
    node.store.fail_commits = 1
    platform.publish("$SDV-FANOUT/data/d", b"1", 1, 1)
    node.work()
    assert platform.transport.closed_by_broker()
    assert [one.reason_code for one in platform.take_all()] == ([0x80] if version == 5 else [])
    node.pass_time(RETRY_MS)
    assert node.fanout.status().unique_payloads == 0
    node.check()


def test_the_same_request_again_is_one_more() -> None:
    """S10."""
    node = FanoutNode()
    for _ in range(3):
        node.trigger(["V"], "task_a_1", "d")
    assert node.pending("V") == ["task_a_1"] * 3


def test_the_same_request_again_may_replace_what_was_not_sent() -> None:
    """T13, S10."""
    node = FanoutNode(same_request="replace")
    node.data("old", b"old")
    node.data("new", b"new")
    vehicle = node.vehicle("V")
    for request in ("task_a_1", "task_a_1", "task_b_1"):
        node.trigger(["V"], request, "old")
    node.trigger(["V"], "task_a_1", "new")
    assert node.fanout.request("task_a_1").dropped == 1
    assert node.drain(vehicle) == [("task_a_1", b"old"), ("task_b_1", b"old"), ("task_a_1", b"new")]
    node.check()


def test_the_same_request_again_may_be_ignored() -> None:
    node = FanoutNode(same_request="ignore")
    node.data("old", b"old")
    node.data("new", b"new")
    node.trigger(["V"], "task_a_1", "old")
    node.trigger(["V", "W"], "task_a_1", "new")
    assert node.drain(node.vehicle("V")) == [("task_a_1", b"old")]
    assert node.drain(node.vehicle("W")) == [("task_a_1", b"new")]
    node.check()


def test_over_the_limit_the_oldest_of_the_same_type_goes() -> None:
    node = FanoutNode(max_pending_per_vehicle=3)
    for request in ("task_b_1", "task_a_1", "task_a_2", "task_a_3", "task_c_1"):
        node.trigger(["V"], request, "d")
    assert node.pending("V") == ["task_b_1", "task_a_2", "task_a_3"]
    assert node.fanout.metrics.outcomes[4] == 2
    node.check()
