"""The `[sdv]` section (section 6), and a prefix of one's own from end to end (T10)."""

from __future__ import annotations

import pytest

from queuelake.errors import AnswerError
from tests.conftest import BrokerFactory
from tests.ecq.conftest import BARE, VERSIONS
from tests.harness.broker import BrokerError
from tests.queues.client import wait_until
from tests.sdv.client import SESSION, requests
from tests.sdv.conftest import ConnectPlatform, ConnectVehicle
from tests.sdv.control import Fanout

DEFAULTS = {
    "dispatcher_pool_size": 0,
    "data_retention": "7d",
    "gc_interval": "1h",
    "topic_prefix": "agent/{VIN}/proxy/request",
    "same_request": "append",
    "on_invalid": "puback",
    "on_reject": "done",
    "keep_referenced": True,
    "verify_sha1": False,
    "heartbeat_topics": ["ecp/{VIN}/online", "ecp/{VIN}/heartbeat"],
    "max_pending_per_vehicle": 0,
}
WRONG = [
    """
    dispatcher_pool_size = -1
    data_retention = "soon"
    gc_interval = "x"
    topic_prefix = "agent/VIN"
    same_request = "perhaps"
    on_invalid = "shout"
    on_reject = "cry"
    keep_referenced = "maybe"
    verify_sha1 = 3
    max_pending_per_vehicle = -1
    heartbeat_topics = ["ecp/+/online"]
    no_such_key = 1
    """,
    """
    dispatcher_pool_size = 10241
    topic_prefix = "{VIN}/{VIN}"
    """,
]
WRONG_PREFIXES = ["", "x", "{VIN}/{VIN}", "agent/{VIN}/+", "agent/{VIN}/#", "agent/{VIN}/", "{vin}"]


@pytest.mark.rule("section 6")
def test_the_defaults(fanout: Fanout) -> None:
    config = fanout.config()
    assert {key: config["origin"][key] for key in DEFAULTS} == DEFAULTS
    assert config["inuse"]["data_retention"] == 7 * 24 * 3600 * 1000


@pytest.mark.rule("section 6")
@pytest.mark.parametrize("text", WRONG)
def test_a_broker_with_wrong_settings_does_not_start_and_names_each(
    fresh_broker: BrokerFactory, text: str
) -> None:
    lines = [line.strip() for line in text.strip().splitlines()]
    with pytest.raises(BrokerError) as refusal:
        fresh_broker(BARE, config="\n".join(["[sdv]", *lines, ""]))
    for line in lines:
        assert line.partition(" ")[0] in str(refusal.value)


@pytest.mark.rule("section 6")
@pytest.mark.parametrize("prefix", WRONG_PREFIXES)
def test_a_wrong_prefix_is_refused(fanout: Fanout, prefix: str) -> None:
    with pytest.raises(AnswerError, match="topic_prefix"):
        fanout.configure(topic_prefix=prefix)


@pytest.mark.rule("section 6")
@pytest.mark.parametrize(
    ("key", "value"),
    [("topic_prefix", "x"), ("gc_interval", "soon"), ("dispatcher_pool_size", -1), ("x", 1)],
)
def test_a_wrong_change_is_refused_with_its_key(fanout: Fanout, key: str, value: object) -> None:
    before = fanout.config()
    with pytest.raises(AnswerError, match=key):
        fanout.configure(**{key: value, "on_reject": "dlq"})
    assert fanout.config() == before


@pytest.mark.rule("T10", "section 6", "S14", "S18")
@pytest.mark.parametrize(
    "prefix", ["cars/{VIN}/cmd", "{VIN}", "a/b/c/{VIN}", "cars/vin-{VIN}-x/cmd", "{VIN}/agent"]
)
def test_a_prefix_of_ones_own_works_from_end_to_end(
    fresh_broker: BrokerFactory,
    connect: ConnectPlatform,
    vehicle: ConnectVehicle,
    vin: str,
    prefix: str,
) -> None:
    broker = fresh_broker(BARE | {"sdv.topic_prefix": prefix})
    platform = connect(of=broker)
    device = vehicle(vin, listening=False, of=broker)
    own = prefix.replace("{VIN}", vin)
    assert device.subscribe(f"{own}/+") == 1
    platform.request("r1", vin)
    platform.request("r2", vin)
    received = device.drain()
    assert [one.topic for one in received] == [f"{own}/r1", f"{own}/r2"]
    wait_until(lambda: Fanout(broker).pending(vin) == [])


@pytest.mark.rule("T10", "S16", "S19")
@VERSIONS
def test_a_prefix_of_ones_own_and_a_lost_connection(
    fresh_broker: BrokerFactory,
    connect: ConnectPlatform,
    vehicle: ConnectVehicle,
    vin: str,
    version: int,
) -> None:
    broker = fresh_broker(BARE | {"sdv.topic_prefix": "cars/{VIN}/cmd"})
    fields = SESSION if version == 5 else {"clean": False, "version": 4}
    device = vehicle(vin, listening=False, of=broker, **fields)
    device.subscribe(f"cars/{vin}/cmd/+")
    platform = connect(of=broker)
    platform.request("r1", vin)
    platform.request("r2", vin)
    device.hold()
    broker.kill()
    broker.restart()
    again = vehicle(vin, listening=False, of=broker, **fields)
    assert requests(again.drain()) == ["r1", "r2"]
    wait_until(lambda: Fanout(broker).pending(vin) == [])


@pytest.mark.rule("section 6", "S15", "S17")
def test_heartbeat_topics_of_ones_own(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vehicle: ConnectVehicle, vin: str
) -> None:
    config = '[sdv]\nheartbeat_topics = ["cars/{VIN}/here"]\n'
    broker = fresh_broker(BARE, config=config)
    watcher = connect(of=broker)
    watcher.subscribe("cars/#")
    connect(of=broker).request("r1", vin)
    device = vehicle(vin, of=broker)
    device.publish(f"cars/{vin}/here", "x")
    assert requests(device.drain()) == ["r1"]
    assert watcher.take().topic == f"cars/{vin}/here"


@pytest.mark.rule("section 6")
def test_a_change_counts_at_once_and_after_a_restart(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vin: str
) -> None:
    broker = fresh_broker(BARE)
    Fanout(broker).configure(same_request="ignore")
    for expected in (1, 1):
        platform = connect(of=broker)
        for _ in range(3):
            platform.request("r", vin)
        assert len(Fanout(broker).pending(vin)) == expected
        broker.kill()
        broker.restart()


@pytest.mark.rule("S24a", "section 6")
def test_a_vehicle_which_never_acknowledges_can_be_given_up(
    fresh_broker: BrokerFactory, connect: ConnectPlatform, vehicle: ConnectVehicle, vin: str
) -> None:
    """It is disconnected, and gets the message again when it is back."""
    broker = fresh_broker(BARE | {"sdv.ack_timeout": "500ms"})
    device = vehicle(vin, of=broker)
    connect(of=broker).request("r1", vin)
    device.hold()
    device.wire.expect_disconnect()
    assert requests(vehicle(vin, of=broker).drain()) == ["r1"]
