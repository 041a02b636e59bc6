"""Refusals by rules: user names and passwords at CONNECT, the ACL at PUBLISH and SUBSCRIBE."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.conftest import Clients
from tests.conftest import BrokerFactory
from tests.harness import packets as p
from tests.harness.broker import BrokerProcess, package_root
from tests.harness.packets import Will

BAD_USER_OR_PASSWORD, NOT_AUTHORIZED, BANNED, QUOTA_EXCEEDED = 0x86, 0x87, 0x8A, 0x97

RULES = """
[[acl]]
permission = "deny"
action = "publish"
topics = ["closed/#"]

[[acl]]
permission = "deny"
action = "subscribe"
topics = ["secret/#"]

[[bans]]
clientid = "unwanted"
"""


def add_user(folder: Path, name: str, password: str, *extra: str) -> Path:
    """Make a password file the way an operator does."""
    path = folder / "users.txt"
    command = [sys.executable, "-m", "queuelake.cli.main", "users", "add", str(path), name]
    subprocess.run(
        [*command, "--password-stdin", *extra],
        input=f"{password}\n",
        text=True,
        check=True,
        env={"PYTHONPATH": package_root()},
    )
    return path


@pytest.fixture
def guarded(fresh_broker: BrokerFactory) -> BrokerProcess:
    return fresh_broker(config=RULES)


@pytest.mark.conforms("MQTT-3.4.2-1")
def test_a_refused_qos_1_publish_gets_not_authorized_and_is_not_delivered(
    guarded: BrokerProcess, clients: Clients
) -> None:
    watcher, publisher = clients(of=guarded), clients(of=guarded)
    watcher.subscribe("closed/#", "open/#")
    assert publisher.publish("closed/a", b"x", qos=1).reason_code == NOT_AUTHORIZED
    assert publisher.publish("open/a", b"x", qos=1).reason_code == 0
    watcher.expect_publish("open/a")
    watcher.expect_nothing()


@pytest.mark.conforms("MQTT-3.5.2-1", "MQTT-4.3.3-9")
def test_after_a_refused_qos_2_publish_the_identifier_is_free(
    guarded: BrokerProcess, clients: Clients
) -> None:
    watcher, publisher = clients(of=guarded), clients(of=guarded)
    watcher.subscribe("open/#", "closed/#", qos=2)
    publisher.send_publish("closed/a", b"no", qos=2, packet_id=5)
    publisher.expect(p.PUBREC, packet_id=5, reason_code=NOT_AUTHORIZED)
    publisher.send_publish("open/a", b"yes", qos=2, packet_id=5)
    publisher.expect(p.PUBREC, packet_id=5, reason_code=0)
    publisher.acknowledge(p.PUBREL, 5)
    publisher.expect(p.PUBCOMP, packet_id=5, reason_code=0)
    watcher.expect_publish("open/a", b"yes")
    watcher.expect_nothing()


def test_a_refused_qos_0_publish_is_dropped_and_nothing_retained(
    guarded: BrokerProcess, clients: Clients
) -> None:
    watcher, publisher = clients(of=guarded), clients(of=guarded)
    watcher.subscribe("closed/#")
    publisher.publish("closed/a", b"x", retain=True)
    watcher.expect_nothing()
    late = clients(of=guarded)
    late.subscribe("closed/#")
    late.expect_nothing()


@pytest.mark.conforms("MQTT-3.8.4-7", "MQTT-3.9.3-1", "MQTT-3.9.3-2", "MQTT-3.8.4-6")
def test_a_refused_filter_fails_alone(guarded: BrokerProcess, clients: Clients) -> None:
    client = clients(of=guarded)
    assert client.subscribe(("secret/a", 1), ("open/a", 1)).reason_codes == [NOT_AUTHORIZED, 1]
    clients(of=guarded).publish("open/a", b"x")
    client.expect_publish("open/a")


@pytest.mark.conforms("MQTT-3.1.4-2", "MQTT-3.2.2-7", "MQTT-3.1.3-8")
def test_a_banned_client_is_refused(guarded: BrokerProcess, dial: Clients) -> None:
    client = dial(of=guarded)
    client.send(p.connect("unwanted"))
    client.expect_refused(BANNED)


@pytest.mark.conforms("MQTT-3.1.4-2", "MQTT-3.1.4-6", "MQTT-3.2.2-6", "MQTT-3.2.2-7")
def test_only_the_right_password_opens(
    fresh_broker: BrokerFactory, dial: Clients, clients: Clients, tmp_path: Path
) -> None:
    users = add_user(tmp_path, "ann", "right")
    broker = fresh_broker({"auth.password_file": str(users)})
    clients(of=broker, username="ann", password="right").expect_nothing()
    for username, password in (("ann", "wrong"), ("bob", "right"), ("ann", None), (None, None)):
        client = dial(of=broker)
        client.send(p.connect("x", username=username, password=password))
        client.expect_refused(BAD_USER_OR_PASSWORD, NOT_AUTHORIZED)


@pytest.mark.conforms("MQTT-3.1.4-2", "MQTT-3.1.4-3")
def test_a_refused_client_does_not_take_a_session_over(
    fresh_broker: BrokerFactory, dial: Clients, clients: Clients, tmp_path: Path
) -> None:
    users = add_user(tmp_path, "ann", "right")
    broker = fresh_broker({"auth.password_file": str(users)})
    owner = clients("mine", of=broker, username="ann", password="right")
    thief = dial(of=broker)
    thief.send(p.connect("mine", username="ann", password="wrong"))
    thief.expect_refused(BAD_USER_OR_PASSWORD, NOT_AUTHORIZED)
    owner.expect_nothing()


@pytest.mark.conforms("MQTT-3.1.2-8")
def test_a_will_is_held_to_the_rules_for_publishing(
    guarded: BrokerProcess, dial: Clients, clients: Clients
) -> None:
    watcher = clients(of=guarded)
    watcher.subscribe("closed/#", "open/#")
    for topic in ("closed/will", "open/will"):
        client = dial(of=guarded)
        client.send(p.connect(topic, will=Will(topic)))
        if client.expect(p.CONNACK).reason_code == 0:
            client.close()
        else:
            client.expect_closed()
    watcher.expect_publish("open/will")
    watcher.expect_nothing()


@pytest.mark.conforms("MQTT-3.1.4-2", "MQTT-3.2.2-7", "MQTT-3.2.2-8")
def test_a_client_above_the_connection_limit_is_refused(
    fresh_broker: BrokerFactory, dial: Clients, clients: Clients
) -> None:
    broker = fresh_broker({"limits.connections_max": 2})
    first, second = clients(of=broker), clients(of=broker)
    third = dial(of=broker)
    third.send(p.connect("third"))
    third.expect_refused(0x88, 0x89, QUOTA_EXCEEDED)
    first.disconnect()
    second.expect_nothing()
    clients("third", of=broker).expect_nothing()


@pytest.mark.conforms("MQTT-3.8.4-7", "MQTT-3.9.3-2")
def test_a_subscription_above_the_limit_fails_alone(
    fresh_broker: BrokerFactory, clients: Clients
) -> None:
    client = clients(of=fresh_broker({"limits.subscriptions_per_client_max": 2}))
    assert client.subscribe("a", "b", "c").reason_codes == [0, 0, QUOTA_EXCEEDED]
    assert client.subscribe("a", qos=1).reason_codes == [1]
    client.unsubscribe("b")
    assert client.subscribe("c").reason_codes == [0]
