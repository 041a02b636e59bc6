"""What a review of fan-out found; each was wrong once."""

from __future__ import annotations

import msgspec
import pytest

from queuelake.broker.fanout import views
from queuelake.broker.fanout.dispatch import FULL_RETRY_MS, ROWS_PER_TURN_MAX
from queuelake.broker.fanout.register import COUNTS_KEPT_MAX
from queuelake.broker.fanout.service import CONFIG_KEY
from queuelake.errors import NotFoundError
from queuelake.sdv_settings import BadSdvSettingsError, read_config
from queuelake.storage import api
from tests.harness import packets as p
from tests.harness.packets import Packet, Will
from tests.simulation.node import RETRY_MS, Peer
from tests.unit.fanout_node import HOUR_MS, FanoutNode, trigger_json


def test_requests_are_forgotten_while_a_commit_with_many_counts_is_under_way() -> None:
    """`Register.stored` looked for the counts of what was just forgotten."""
    node = FanoutNode(data_retention="1h", gc_interval="30d")
    node.leap(HOUR_MS)  # the first run
    node.trigger([], "task_old_1", "d")
    node.leap(2 * HOUR_MS)
    vehicle = node.vehicle("V")
    node.trigger(["V"], "task_a_1", "late")
    for number in range(COUNTS_KEPT_MAX + 10):
        node.trigger([], f"task_b_{number}", "d")
    for number in range(COUNTS_KEPT_MAX + 10):
        assert node.fanout.request(f"task_b_{number}").pending == 0
    node.platform().publish("$SDV-FANOUT/data/late", b"1", 1, node.next_id())
    node.loop.run_until_idle()
    assert node.committer.is_busy()
    assert node.fanout.collect_garbage()
    for _ in range(4):
        node.loop.advance(150)
    node.work()
    assert node.drain(vehicle) == [("task_a_1", b"1")]
    node.leap(1)
    with pytest.raises(NotFoundError):
        node.fanout.request("task_old_1")
    node.check()


def old_data() -> FanoutNode:
    """One node with data which is older than the retention, and not collected yet."""
    node = FanoutNode(data_retention="1h", gc_interval="30d")
    node.leap(HOUR_MS)  # the first run
    node.data("d", b"1")
    node.leap(2 * HOUR_MS)
    assert node.fanout.status().unique_payloads == 1
    return node


@pytest.mark.parametrize("is_sealed", [True, False])
def test_data_published_again_is_not_collected_before_that_is_durable(is_sealed: bool) -> None:
    """The collector went by the time in the store."""
    node = old_data()
    platform = node.platform()
    if is_sealed:
        platform.publish("$SDV-FANOUT/data/d", b"1", 1, node.next_id())
        node.loop.run_until_idle()
    else:
        platform.publish("$SDV-FANOUT/data/other", b"2", 1, node.next_id())
        node.loop.run_until_idle()
        platform.publish("$SDV-FANOUT/data/d", b"1", 1, node.next_id())
        node.loop.run_until_idle()
    assert node.committer.is_busy()
    assert node.fanout.collect_garbage()
    for _ in range(4):
        node.pass_time(250)
    platform.take_all()
    node.trigger(["V"], "task_a_1", "d")
    assert node.drain(node.vehicle("V")) == [("task_a_1", b"1")]
    node.check()
    node.leap(2 * HOUR_MS)
    assert node.fanout.collect_garbage()
    node.leap(1)
    assert node.fanout.status().unique_payloads == 0
    node.check()


def test_data_whose_refresh_failed_is_collected() -> None:
    node = old_data()
    node.store.fail_commits = 1
    node.platform().publish("$SDV-FANOUT/data/d", b"1", 1, node.next_id())
    for _ in range(3):
        node.pass_time(RETRY_MS)
    assert node.fanout.collect_garbage()
    node.leap(1)
    assert node.fanout.status().unique_payloads == 0
    node.check()


def test_the_prefix_does_not_change_at_run_time() -> None:
    """The rules about what vehicles may subscribe to did not follow."""
    node = FanoutNode()
    config = node.fanout.config
    with pytest.raises(BadSdvSettingsError, match="the configuration file and a restart"):
        read_config(config, {"topic_prefix": "cars/{VIN}/cmd"})
    assert read_config(config, {"topic_prefix": config.topic_prefix}) == config


def test_a_prefix_which_was_changed_at_run_time_before_is_not_used() -> None:
    node = FanoutNode()
    changes = {"topic_prefix": "cars/{VIN}/cmd", "gc_interval": "2h"}
    node.store.tables[api.META][CONFIG_KEY] = msgspec.json.encode(changes)
    node.crash()
    assert node.fanout.config.topic_prefix == "agent/{VIN}/proxy/request"
    assert node.fanout.config.gc_interval == "2h"


def test_a_request_which_is_forgotten_stays_so_when_somebody_asks_for_it() -> None:
    """The answer came from the store, which had not heard of it, and was remembered."""
    node = FanoutNode(data_retention="1h", gc_interval="30d")
    node.leap(HOUR_MS)  # the first run
    node.trigger([], "task_old_1", "d")
    node.leap(2 * HOUR_MS)
    assert node.fanout.collect_garbage()
    for _ in range(4):
        node.loop.advance(150)
    assert node.committer.is_busy()
    for _ in range(2):
        with pytest.raises(NotFoundError):
            node.fanout.request("task_old_1")
        node.work()
    assert not node.store.tables[api.SDV_REQUESTS]


@pytest.mark.parametrize("slices", [0, 1, 2])
def test_a_will_which_asks_for_something_gets_it_when_the_store_works_again(slices: int) -> None:
    """Nobody would send it again."""
    node = FanoutNode()
    node.fanout.storing.rows_per_slice = 1
    topics = [("data/d", b"1"), ("trigger", trigger_json(["V", "W", "X"], "task_a_1", "d"))]
    for topic, body in topics:
        will = Will(f"$SDV-FANOUT/{topic}", body, 2)
        node.client("platform", clean=True, will=will).transport.hang_up()
        node.loop.run_until_idle()
        while topic == "trigger" and node.rows() < slices:
            node.committer.commit()
            node.loop.run_until_idle()
        assert node.committer.is_busy()
        node.fail_commit()
        node.pass_time(RETRY_MS)
        node.leap(1)
    assert node.drain(node.vehicle("V")) == [("task_a_1", b"1")]
    assert node.pending("W") == node.pending("X") == ["task_a_1"]
    node.check()


def trigger_again(node: FanoutNode, is_under_way: bool, body: bytes) -> Packet:
    """A trigger of QoS 2 whose connection is lost, and how it is answered when it comes again."""
    node.fanout.storing.rows_per_slice = 1
    former = node.client("platform")
    former.publish("$SDV-FANOUT/trigger", body, 2, 5)
    node.loop.turn()
    former.transport.hang_up()
    if not is_under_way:
        node.work()
    platform = Peer(node, "platform", 5)
    platform.connect()
    platform.transport.send(p.publish("$SDV-FANOUT/trigger", body, qos=2, packet_id=5, dup=True))
    node.work()
    connack, answer = platform.take_all()
    assert (connack.session_present, answer.type, answer.packet_id) == (True, p.PUBREC, 5)
    return answer


@pytest.mark.parametrize("is_under_way", [True, False])
def test_a_trigger_of_qos_2_which_comes_again_counts_once(is_under_way: bool) -> None:
    """Its packet id was forgotten with its connection."""
    node = FanoutNode()
    body = trigger_json(["V", "W", "X"], "task_a_1", "d")
    assert trigger_again(node, is_under_way, body).reason_code == 0
    assert node.fanout.request("task_a_1").pending == 3
    node.crash()
    assert node.session("platform").inbound == {5}
    node.check()


@pytest.mark.parametrize("is_under_way", [True, False])
def test_a_wrong_trigger_of_qos_2_is_refused_when_it_comes_again(is_under_way: bool) -> None:
    node = FanoutNode()
    vins = [f"V{number}" for number in range(5_000)] + ["a/b"]
    answer = trigger_again(node, is_under_way, trigger_json(vins, "task_a_1", "d"))
    assert (answer.reason_code, node.rows()) == (0x99, 0)


def test_a_trigger_of_qos_2_which_could_not_be_stored_is_stored_when_it_comes_again() -> None:
    node = FanoutNode()
    for _ in range(2):
        platform = node.client("platform")
        node.store.fail_commits = 0 if platform.session_present else 1
        body = trigger_json(["V"], "task_a_1", "d")
        platform.publish("$SDV-FANOUT/trigger", body, 2, 5)
        node.work()
        node.pass_time(RETRY_MS)
    [answer] = platform.take_all()
    assert (answer.type, answer.reason_code) == (p.PUBREC, 0)
    assert node.pending("V") == ["task_a_1"]
    node.check()


@pytest.mark.parametrize("vins", [["V", "W"], []])
def test_a_request_is_called_off_however_many_rows_wait_before_it(
    vins: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a vehicle which was named only the first slice was looked at."""
    monkeypatch.setattr(views, "ROWS_PER_SLICE", 2)
    node = FanoutNode()
    for request_id in ("task_b_1", "task_a_1", "task_b_2", "task_b_3", "task_a_1", "task_a_1"):
        node.trigger(["V", "W"], request_id, "d")
    done = list(node.fanout.cancel("task_a_1", vins))
    assert sum(one.cancelled for one in done) == 6
    assert node.pending("V") == node.pending("W") == ["task_b_1", "task_b_2", "task_b_3"]
    node.check()


def test_what_is_too_large_for_a_vehicle_does_not_keep_it_waiting_for_its_next_heartbeat() -> None:
    """S15, S21: to look for the next row was taken for a store which cannot be read."""
    node = FanoutNode()
    node.data("large", bytes(500))
    node.data("small", b"1")
    for number in range(3):
        node.trigger(["V"], f"task_a_{number}", "large")
    node.trigger(["V"], "task_b_1", "small")
    vehicle = Peer(node, "V", 5)
    vehicle.transport.send(p.connect("V", properties={"maximum_packet_size": 100}))
    node.work()
    assert vehicle.take().type == p.CONNACK
    node.subscribe(vehicle)
    assert node.drain(vehicle) == [("task_b_1", b"1")]
    assert node.fanout.metrics.rejected() == 3
    node.check()


def test_a_row_is_found_behind_any_number_of_rows_without_data() -> None:
    """S20."""
    node = FanoutNode()
    for number in range(ROWS_PER_TURN_MAX + 1):
        node.trigger(["V"], f"task_a_{number}", "missing")
    node.data("d", b"1")
    node.trigger(["V"], "task_b_1", "d")
    vehicle = node.vehicle("V")
    assert node.drain(vehicle) == [("task_b_1", b"1")]
    node.data("missing", b"2")
    [first] = node.take(vehicle)
    assert first.topic.endswith("/task_a_0")


def test_a_vehicle_whose_session_was_full_needs_no_heartbeat() -> None:
    """S15: nobody looked again when it had room."""
    node = FanoutNode()
    node.broker.delivery._queued_max = 1
    vehicle = node.vehicle("V")
    vehicle.subscribe("plain", qos=1)
    node.platform().publish("plain", b"", 1, node.next_id())
    node.work()
    [plain] = node.take(vehicle)
    node.platform().take_all()
    node.data("d", b"1")
    node.trigger(["V"], "task_a_1", "d")
    assert node.requests(vehicle) == []
    node.acknowledge(vehicle, plain)
    node.pass_time(FULL_RETRY_MS + 300)
    assert node.drain(vehicle) == [("task_a_1", b"1")]
    node.check()
