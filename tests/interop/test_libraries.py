"""paho-mqtt, aiomqtt and gmqtt against the broker, alone and with each other."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator

import pytest

from tests.interop.aiomqtt_witness import AiomqttWitness
from tests.interop.gmqtt_witness import GmqttWitness
from tests.interop.paho_witness import PahoWitness
from tests.interop.witness import Connect, Endpoint, Message, Witness

Kind = tuple[Connect, int]
KINDS: dict[str, Kind] = {
    "paho-3.1": (PahoWitness, 3),
    "paho-3.1.1": (PahoWitness, 4),
    "paho-5": (PahoWitness, 5),
    "aiomqtt-3.1.1": (AiomqttWitness, 4),
    "aiomqtt-5": (AiomqttWitness, 5),
    "gmqtt-3.1.1": (GmqttWitness, 4),
    "gmqtt-5": (GmqttWitness, 5),
}
MIXED = ["paho-3.1", "paho-3.1.1", "paho-5", "gmqtt-3.1.1", "gmqtt-5"]
Open = Callable[..., Witness]


@pytest.fixture
def open_witness(tcp: Endpoint, prefix: str) -> Iterator[Open]:
    """Connect a witness of a kind, under a name; what is still open at the end is closed."""
    opened: list[Witness] = []

    def connect(kind: str, name: str, clean: bool = True, will: Message | None = None) -> Witness:
        library, level = KINDS[kind]
        witness = library(tcp, f"{prefix}{name}", level, clean=clean, will=will)
        opened.append(witness)
        return witness

    yield connect
    for witness in opened:
        witness.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_arrives_with_its_qos(
    open_witness: Open, prefix: str, kind: str, qos: int
) -> None:
    subscriber, publisher = open_witness(kind, "s"), open_witness(kind, "p")
    subscriber.subscribe(f"{prefix}/+/t", 2)
    publisher.publish(f"{prefix}/a/t", b"payload", qos)
    assert subscriber.next_message() == Message(f"{prefix}/a/t", b"payload", qos, False)


@pytest.mark.parametrize("kind", KINDS)
def test_many_messages_arrive_in_order(open_witness: Open, prefix: str, kind: str) -> None:
    subscriber, publisher = open_witness(kind, "s"), open_witness(kind, "p")
    subscriber.subscribe(f"{prefix}/t", 1)
    for number in range(100):
        publisher.publish(f"{prefix}/t", b"%d" % number, 1)
    assert [subscriber.next_message().payload for _ in range(100)] == [
        b"%d" % n for n in range(100)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_retained_message_waits_for_the_subscriber(
    open_witness: Open, prefix: str, kind: str
) -> None:
    publisher = open_witness(kind, "p")
    publisher.publish(f"{prefix}/t", b"kept", 1, retain=True)
    subscriber = open_witness(kind, "s")
    subscriber.subscribe(f"{prefix}/#", 1)
    assert subscriber.next_message() == Message(f"{prefix}/t", b"kept", 1, True)
    publisher.publish(f"{prefix}/t", b"", 1, retain=True)
    assert subscriber.next_message().payload == b""


@pytest.mark.parametrize("kind", KINDS)
def test_a_will_is_published_when_the_connection_is_lost(
    open_witness: Open, prefix: str, kind: str
) -> None:
    watcher = open_witness(kind, "w")
    watcher.subscribe(f"{prefix}/will", 1)
    open_witness(kind, "d", will=Message(f"{prefix}/will", b"gone", 1, False)).drop()
    assert watcher.next_message() == Message(f"{prefix}/will", b"gone", 1, False)


@pytest.mark.parametrize("kind", KINDS)
def test_a_will_is_not_published_after_disconnect(
    open_witness: Open, prefix: str, kind: str
) -> None:
    watcher = open_witness(kind, "w")
    watcher.subscribe(f"{prefix}/#", 1)
    open_witness(kind, "d", will=Message(f"{prefix}/will", b"never", 1, False)).close()
    watcher.publish(f"{prefix}/end", b"", 1)
    assert watcher.next_message().topic == f"{prefix}/end"


@pytest.mark.parametrize("kind", KINDS)
def test_a_shared_subscription_gives_each_message_to_one_member(
    open_witness: Open, prefix: str, kind: str
) -> None:
    members = [open_witness(kind, f"m{number}") for number in range(2)]
    for member in members:
        member.subscribe(f"$share/team/{prefix}/t", 1)
        member.subscribe(f"{prefix}/end", 1)
    publisher = open_witness(kind, "p")
    sent = [b"%02d" % number for number in range(20)]
    for payload in sent:
        publisher.publish(f"{prefix}/t", payload, 1)
    publisher.publish(f"{prefix}/end", b"", 1)
    shares = [_until_empty(member) for member in members]
    assert sorted(shares[0] + shares[1]) == sent
    assert all(shares), "one member got everything"


def _until_empty(witness: Witness) -> list[bytes]:
    payloads: list[bytes] = []
    while payload := witness.next_message().payload:
        payloads.append(payload)
    return payloads


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_is_resumed_with_the_messages_stored_meanwhile(
    open_witness: Open, prefix: str, kind: str
) -> None:
    keeper = open_witness(kind, "k", clean=False)
    keeper.subscribe(f"{prefix}/t", 2)
    keeper.close()
    publisher = open_witness(kind, "p")
    # paho hands a QoS 2 message over after PUBREL, behind QoS 1 messages sent after it.
    for qos in (1, 1, 2, 2):
        publisher.publish(f"{prefix}/t", b"%d" % qos, qos)
    again = open_witness(kind, "k", clean=False)
    arrived = [again.next_message() for _ in range(4)]
    assert [(m.payload, m.qos) for m in arrived] == [(b"1", 1), (b"1", 1), (b"2", 2), (b"2", 2)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_payload_of_one_megabyte_arrives_whole(
    open_witness: Open, prefix: str, kind: str, qos: int
) -> None:
    payload = bytes(range(256)) * 4096
    subscriber, publisher = open_witness(kind, "s"), open_witness(kind, "p")
    subscriber.subscribe(f"{prefix}/large", 2)
    publisher.publish(f"{prefix}/large", payload, qos)
    assert subscriber.next_message() == Message(f"{prefix}/large", payload, qos, False)


@pytest.mark.smoke
@pytest.mark.parametrize("publishing", MIXED)
@pytest.mark.parametrize("subscribing", MIXED)
def test_levels_and_libraries_mix(
    open_witness: Open, prefix: str, publishing: str, subscribing: str
) -> None:
    subscriber, publisher = open_witness(subscribing, "s"), open_witness(publishing, "p")
    publisher.publish(f"{prefix}/kept", b"kept", 1, retain=True)
    subscriber.subscribe(f"{prefix}/#", 2)
    assert subscriber.next_message() == Message(f"{prefix}/kept", b"kept", 1, True)
    for qos in (0, 1, 2):
        publisher.publish(f"{prefix}/live", b"live", qos)
        assert subscriber.next_message() == Message(f"{prefix}/live", b"live", qos, False)
    publisher.publish(f"{prefix}/kept", b"", 1, retain=True)


def test_a_witness_without_messages_reports_it(
    open_witness: Open, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.interop.witness.TIMEOUT_S", 0.05)
    with pytest.raises(queue.Empty):
        open_witness("paho-5", "s").next_message()
