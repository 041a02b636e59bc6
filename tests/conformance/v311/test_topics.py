"""Section 4.7 (topic names and topic filters)."""

from __future__ import annotations

import os

import pytest

from tests.conformance.v311.conftest import Client
from tests.conformance.v311.reading import answer_or_close, drain, expect_refused_subscription
from tests.harness import packets as p
from tests.harness.broker import SHARDS_VARIABLE

# Below a level of the test's own: filter, matching names, names which do not match.
MATCHES = [
    ("a/b/#", ["a/b", "a/b/c", "a/b/c/d", "a/b/"], ["a", "a/bc", "A/b"]),
    ("a/+", ["a/b", "a/"], ["a", "a/b/c"]),
    ("+/+", ["a/b", "/b", "/"], ["a", "a/b/c"]),
    ("a/+/c", ["a/b/c", "a//c"], ["a/c", "a/b/c/d", "a/b/d"]),
    ("+/b/#", ["a/b", "a/b/c", "/b"], ["b", "a/c"]),
    ("+", ["a", ""], ["a/b", "/a"]),
    ("#", ["a", "a/b", ""], []),
    ("a b", ["a b"], ["ab", "a  b"]),
    ("a//b", ["a//b"], ["a/b"]),
    ("/", ["/"], ["", "a/"]),
]


@pytest.mark.conforms311("MQTT-4.7.1-1", "MQTT-4.7.1-2", "MQTT-4.7.1-3", "MQTT-3.3.2-3")
@pytest.mark.parametrize(("filter_", "matching", "others"), MATCHES, ids=[m[0] for m in MATCHES])
def test_a_filter_matches_these_names_and_no_others(
    client: Client, name: str, filter_: str, matching: list[str], others: list[str]
) -> None:
    wire = client()
    assert wire.subscribe(f"{name}/{filter_}").reason_codes == [0]
    for topic in [*matching, *others]:
        wire.send_publish(f"{name}/{topic}")
    found, wanted = [one.topic for one in drain(wire)], [f"{name}/{one}" for one in matching]
    if SHARDS_VARIABLE in os.environ:  # there is no order across topics
        found, wanted = sorted(found), sorted(wanted)
    assert found == wanted


@pytest.mark.conforms311("MQTT-4.7.1-2", "MQTT-4.7.3-4")
def test_the_filter_above_a_multi_level_wildcard_matches_its_parent(
    client: Client, name: str
) -> None:
    wire = client()
    wire.subscribe(f"{name}/#")
    wire.publish(name, b"parent")
    wire.expect_publish(name, b"parent")


@pytest.mark.conforms311("MQTT-4.7.1-2", "MQTT-4.7.1-3")
@pytest.mark.parametrize("filter_", ["a#", "a/#/b", "#/", "##", "a/b#", "a+", "+a", "a/b+/c", "++"])
def test_a_wildcard_in_a_wrong_place_is_refused(client: Client, filter_: str) -> None:
    wire = client()
    wire.send(p.subscribe(1, [(filter_, 0)], version=4))
    expect_refused_subscription(wire)


@pytest.mark.conforms311("MQTT-4.7.2-1")
@pytest.mark.parametrize("filter_", ["#", "+/#", "+/monitor", "+/+"])
def test_a_filter_starting_with_a_wildcard_does_not_match_dollar_topics(
    client: Client, name: str, filter_: str
) -> None:
    wire = client()
    wire.subscribe(filter_)
    # Somebody else's messages may match too; only names beginning with $ must not be among them.
    wire.send_publish(f"$test{name}/monitor", b"hidden")
    assert not [m for m in drain(wire) if m.topic.startswith("$")]


@pytest.mark.conforms311("MQTT-4.7.2-1")
@pytest.mark.parametrize("filter_", ["#", "+", "monitor"])
def test_a_dollar_topic_is_matched_by_filters_which_begin_with_it(
    client: Client, name: str, filter_: str
) -> None:
    wire = client()
    wire.subscribe(f"$test{name}/{filter_}")
    wire.publish(f"$test{name}/monitor", b"seen")
    wire.expect_publish(f"$test{name}/monitor", b"seen")


@pytest.mark.conforms311("MQTT-4.7.3-1")
def test_an_empty_topic_name_closes_the_connection(client: Client) -> None:
    wire = client()
    wire.send(p.publish("", b"x", version=4))
    wire.expect_closed()


@pytest.mark.conforms311("MQTT-4.7.3-1")
def test_an_empty_topic_filter_is_refused(client: Client) -> None:
    wire = client()
    wire.send(p.subscribe(1, [("", 0)], version=4))
    expect_refused_subscription(wire)


@pytest.mark.conforms311("MQTT-4.7.3-1", "MQTT-4.8.0-1")
def test_an_empty_filter_to_unsubscribe_closes_or_is_ignored(client: Client) -> None:
    wire = client()
    wire.send(p.unsubscribe(1, [""], version=4))
    answer = answer_or_close(wire)
    assert answer is None or answer.type == p.UNSUBACK


@pytest.mark.conforms311("MQTT-4.7.3-3")
def test_a_topic_name_of_65535_bytes_is_carried(client: Client, name: str) -> None:
    wire = client()
    topic = (name + "x" * 65535)[:65535]
    wire.subscribe(topic)
    wire.publish(topic, b"long")
    wire.expect_publish(topic, b"long")


@pytest.mark.conforms311("MQTT-4.7.3-4")
def test_names_are_compared_without_any_normalisation(client: Client, name: str) -> None:
    wire = client()
    wire.subscribe(f"{name}/caf\u00e9", f"{name}/Straße", f"{name}/a/../b")
    for other in ("cafe\u0301", "CAF\u00c9", "strasse", "b", "a/./b", "caf\u00e9 "):
        wire.send_publish(f"{name}/{other}")
    wire.expect_nothing()
    for same in ("caf\u00e9", "Straße", "a/../b"):
        wire.publish(f"{name}/{same}")
        wire.expect_publish(f"{name}/{same}")


@pytest.mark.conforms311("MQTT-4.7.3-4")
@pytest.mark.parametrize("text", ["\U0002a6d4", "\u200b", "\U0010fffd", "temp °C", "%2F"])
def test_any_characters_are_carried_unchanged(client: Client, name: str, text: str) -> None:
    wire = client()
    wire.subscribe(f"{name}/+")
    wire.publish(f"{name}/{text}", text.encode())
    wire.expect_publish(f"{name}/{text}", text.encode())
