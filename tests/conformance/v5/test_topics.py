"""Topic names and filters (4.7): wildcards, `$` topics, no normalisation."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Clients
from tests.harness import packets as p
from tests.harness.wire import Wire

FILTER_INVALID_CODES = (0x81, 0x82, 0x8F)


def expect_filter_refused(client: Wire, filter_: str) -> None:
    """A SUBACK of 0x8F for this filter alone, or DISCONNECT: the standard allows both."""
    client.send(p.subscribe(1, [(filter_, 0)]))
    answer = client.receive()
    if answer.type == p.SUBACK:
        assert answer.reason_codes == [0x8F]
    else:
        assert answer.type == p.DISCONNECT
        assert answer.reason_code in FILTER_INVALID_CODES
        client.expect_closed()


@pytest.mark.conforms("MQTT-4.7.1-1")
@pytest.mark.parametrize("filter_", ["a/#/b", "a#", "#a", "a/b#", "##", "#/"])
def test_the_multi_level_wildcard_is_last_and_alone(clients: Clients, filter_: str) -> None:
    expect_filter_refused(clients(), filter_)


@pytest.mark.conforms("MQTT-4.7.1-2")
@pytest.mark.parametrize("filter_", ["a+", "+a", "a/b+/c", "a/+b", "++", "+#"])
def test_the_single_level_wildcard_fills_a_level(clients: Clients, filter_: str) -> None:
    expect_filter_refused(clients(), filter_)


@pytest.mark.conforms("MQTT-4.7.3-1")
def test_an_empty_filter_is_refused(clients: Clients) -> None:
    expect_filter_refused(clients(), "")


MATCHES = {
    "N/a/b": ["N/a/b"],
    "N/#": ["N", "N/a", "N/a/b", "N/", "N//b", "N/A", "N/a "],
    "N/+": ["N/a", "N/", "N/A", "N/a "],
    "N/+/b": ["N/a/b", "N//b"],
    "N/+/#": ["N/a", "N/a/b", "N/", "N//b", "N/A", "N/a "],
    "N/a/#": ["N/a", "N/a/b"],
    "+/a": ["N/a"],
    "+/+/+": ["N/a/b", "N//b"],
    "N/": ["N/"],
    "N/A": ["N/A"],
    "/N/#": ["/N", "/N/a"],
    "+/N": ["/N"],
}
TOPICS = ["N", "N/a", "N/a/b", "N/", "N//b", "N/A", "N/a ", "/N", "/N/a", "other/N/x/y"]


@pytest.mark.conforms("MQTT-4.7.1-1", "MQTT-4.7.1-2", "MQTT-4.7.3-4", "MQTT-3.3.2-3")
@pytest.mark.parametrize("filter_", MATCHES)
def test_filters_match_what_they_should(clients: Clients, name: str, filter_: str) -> None:
    subscriber, publisher = clients(), clients()
    subscriber.subscribe(filter_.replace("N", name))
    for topic in TOPICS:
        publisher.publish(topic.replace("N", name), topic)
    subscriber.ping()
    received = []
    for _ in MATCHES[filter_]:
        received.append(next_own_topic(subscriber, name))
    assert received == [topic for topic in TOPICS if topic in MATCHES[filter_]]


def next_own_topic(subscriber: Wire, name: str) -> str:
    """Filters with a leading wildcard also see what other tests publish: skip that."""
    while True:
        message = subscriber.expect_publish()
        if name in message.topic:
            return message.payload.decode()


@pytest.mark.conforms("MQTT-4.7.3-4", "MQTT-1.5.4-3")
def test_topics_are_not_normalised(clients: Clients, name: str) -> None:
    subscriber, publisher = clients(), clients()
    composed, decomposed, marked = f"{name}/\u00e9", f"{name}/e\u0301", f"{name}/\ufeffe"
    subscriber.subscribe(composed, marked)
    for topic in (decomposed, f"{name}/e", composed, f"{name}//\u00e9", marked):
        publisher.publish(topic, b"x")
    subscriber.expect_publish(composed)
    subscriber.expect_publish(marked)
    subscriber.expect_nothing()


@pytest.mark.conforms("MQTT-1.5.4-3", "MQTT-3.3.2-17")
def test_the_byte_order_mark_is_kept_in_every_string(clients: Clients, name: str) -> None:
    subscriber = clients()
    subscriber.subscribe(f"{name}/#")
    properties = {
        "content_type": "\ufefftext",
        "response_topic": "\ufeffanswer",
        "user_property": [("\ufeffk", "v\ufeff")],
    }
    clients().publish(f"{name}/\ufeff", b"\xef\xbb\xbfx", properties=properties)
    message = subscriber.expect_publish(f"{name}/\ufeff", b"\xef\xbb\xbfx")
    assert message.properties == properties


@pytest.mark.conforms("MQTT-4.7.2-1")
@pytest.mark.parametrize("filter_", ["#", "+/#", "+/T/x", "+/+/+"])
def test_a_leading_wildcard_does_not_match_dollar_topics(
    clients: Clients, name: str, filter_: str
) -> None:
    subscriber, exact, publisher = clients(), clients(), clients()
    subscriber.subscribe(filter_.replace("T", name))
    exact.subscribe(f"$test/{name}/#")
    publisher.publish(f"$test/{name}/x", b"x")
    exact.expect_publish(f"$test/{name}/x")
    publisher.publish(f"{name}/{name}/x", b"end")
    while (message := subscriber.expect_publish()).topic != f"{name}/{name}/x":
        assert not message.topic.startswith("$")


@pytest.mark.conforms("MQTT-4.7.2-1")
def test_sys_topics_need_a_filter_which_names_them(clients: Clients) -> None:
    watcher, everything = clients(), clients()
    watcher.subscribe("$SYS/#")
    assert watcher.expect_publish(timeout=15).topic.startswith("$SYS/")
    everything.subscribe("#")
    assert not [one.topic for one in everything.drain() if one.topic.startswith("$")]


@pytest.mark.conforms("MQTT-4.7.3-3")
def test_a_topic_of_65535_bytes_works(clients: Clients, name: str) -> None:
    topic = f"{name}/".ljust(65535, "x")
    subscriber, publisher = clients(), clients()
    subscriber.subscribe((topic, 1), (f"{name}/+", 0))
    publisher.publish(topic, b"long", qos=1)
    subscriber.expect_publish(topic, b"long")


def test_a_space_and_unusual_characters_are_ordinary(clients: Clients, name: str) -> None:
    subscriber = clients()
    topics = [f"{name}/ ", f"{name}/\u2603", f"{name}/\U0001f600", f"{name}/a$b"]
    subscriber.subscribe(*topics)
    publisher = clients()
    for topic in topics:
        publisher.publish(topic, b"x")
        subscriber.expect_publish(topic)
