"""The `mq` section (section 7), over REST and from the file."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import BrokerFactory
from tests.harness.broker import BrokerError
from tests.mq.conftest import Connect
from tests.mq.rest import CONFIG, QUEUES, MqRest, assert_error

HOUR_MS = 3600 * 1000


@pytest.mark.rule("section 7", "section 8")
def test_the_defaults(fresh_broker: BrokerFactory) -> None:
    config = MqRest(fresh_broker()).config()
    shown = {
        "enable": True,
        "gc_interval": HOUR_MS,
        "regular_queue_retention_period": 24 * HOUR_MS,
        "max_queue_count": 100,
        "find_queue_retry_interval": 10_000,
    }
    assert {key: config[key] for key in shown} == shown
    assert config["auto_create"]["regular"] is False
    assert config["auto_create"]["lastvalue"]["key_expression"] == "message.from"
    quota = {
        "threshold_percentage": 10,
        "buffer_max_size": 100,
        "buffer_flush_interval": 1000,
        "buffer_pool_size": 16,
    }
    assert {key: config["quota"][key] for key in quota} == quota


@pytest.mark.rule("section 7", "section 8")
def test_what_a_change_omits_stays(fresh_broker: BrokerFactory) -> None:
    rest = MqRest(fresh_broker({"mq.max_queue_count": 7}))
    before = rest.config()
    rest.configure(gc_interval="10m", quota={"threshold_percentage": 20})
    after = rest.config()
    assert (after["gc_interval"], after["max_queue_count"]) == (600_000, 7)
    assert after["quota"] == before["quota"] | {"threshold_percentage": 20}
    assert after["auto_create"] == before["auto_create"]


@pytest.mark.rule("acceptance 17", "acceptance 16", "M14")
def test_only_one_kind_is_created_automatically(fresh_broker: BrokerFactory) -> None:
    rest = MqRest(fresh_broker())
    before = rest.config()
    text = "Queues should be configured to be automatically created either as regular or lastvalue"
    both: dict[str, Any] = {"auto_create": {"regular": {}, "lastvalue": {}}}
    assert_error(rest.call("PUT", CONFIG, both), 400, "BAD_REQUEST", text)
    # The last-value kind is on already.
    answer = rest.call("PUT", CONFIG, {"auto_create": {"regular": {}}})
    assert_error(answer, 400, "BAD_REQUEST", text)
    assert rest.config() == before


@pytest.mark.rule("M14", "section 8")
def test_the_kind_which_is_created_can_be_changed(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker()
    rest, client = MqRest(broker), connect(of=broker)
    rest.configure(
        auto_create={"regular": {"dispatch_strategy": "round_robin"}, "lastvalue": False}
    )
    client.subscribe("$q/a/#")
    found = rest.call("GET", f"{QUEUES}/a%2F%23").json
    assert (found["is_lastvalue"], found["dispatch_strategy"]) == (False, "round_robin")
    rest.configure(auto_create={"regular": False, "lastvalue": {"key_expression": "message.topic"}})
    client.subscribe("$q/b/#")
    found = rest.call("GET", f"{QUEUES}/b%2F%23").json
    assert (found["is_lastvalue"], found["key_expression"]) == (True, "message.topic")
    rest.configure(auto_create={"regular": False, "lastvalue": False})
    assert client.subscribe("$q/c/#") == 1
    assert rest.names() == ["/a/#", "/b/#"]


@pytest.mark.rule("acceptance 16", "section 8")
@pytest.mark.parametrize(
    "change",
    [
        {"gc_interval": "soon"},
        {"gc_interval": 0},
        {"max_queue_count": -1},
        {"max_queue_count": "many"},
        {"quota": {"threshold_percentage": 0}},
        {"quota": {"threshold_percentage": 101}},
        {"enable": "perhaps"},
        {"auto_create": {"lastvalue": {"key_expression": "nonsense("}}},
        {"no_such_setting": 1},
    ],
)
def test_a_wrong_value_is_refused(rest: MqRest, change: dict[str, Any]) -> None:
    before = rest.config()
    assert_error(rest.call("PUT", CONFIG, change), 400, "BAD_REQUEST")
    assert rest.config() == before


@pytest.mark.rule("section 7", "section 8", "acceptance 16")
def test_queues_can_be_turned_off_when_there_are_none(fresh_broker: BrokerFactory) -> None:
    rest = MqRest(fresh_broker())
    queue = rest.create("a/#")
    assert_error(rest.call("PUT", CONFIG, {"enable": False}), 400, "BAD_REQUEST")
    assert rest.config()["enable"] is True
    rest.delete(queue)
    rest.configure(enable=False)
    assert rest.config()["enable"] is False
    for method, path, body in (
        ("GET", QUEUES, None),
        ("POST", QUEUES, {"topic_filter": "a/#"}),
        ("GET", f"{QUEUES}/a", None),
        ("PUT", f"{QUEUES}/a", {"dispatch_strategy": "random"}),
        ("DELETE", f"{QUEUES}/a", None),
        ("GET", "queues", None),
        ("GET", "queue/a", None),
    ):
        answer = rest.call(method, path, body)
        assert_error(answer, 503, "SERVICE_UNAVAILABLE", "Not enabled")
    rest.configure(enable=True)
    assert rest.names() == []
    rest.create("a/#")


@pytest.mark.rule("section 7")
def test_queues_are_off_from_the_start(fresh_broker: BrokerFactory, connect: Connect) -> None:
    broker = fresh_broker({"mq.enable": False})
    rest, client = MqRest(broker), connect(of=broker)
    assert_error(rest.call("GET", QUEUES), 503, "SERVICE_UNAVAILABLE", "Not enabled")
    client.subscribe("a/#")
    client.publish_each("a/x", "x")
    assert client.take().payload == "x"


@pytest.mark.rule("section 7")
@pytest.mark.parametrize(
    "config",
    [
        'gc_interval = "soon"',
        "max_queue_count = -1",
        "quota.threshold_percentage = 0",
        "no_such_setting = 1",
    ],
)
def test_a_broker_with_a_wrong_setting_does_not_start(
    fresh_broker: BrokerFactory, config: str
) -> None:
    with pytest.raises(BrokerError, match=r"mq"):
        fresh_broker(config=f"[mq]\n{config}\n")


@pytest.mark.rule("section 7", "M10")
def test_a_broker_whose_key_expression_cannot_be_read_does_not_start(
    fresh_broker: BrokerFactory,
) -> None:
    with pytest.raises(BrokerError, match="mq"):
        fresh_broker({"mq.auto_create.lastvalue.key_expression": "nonsense("})
