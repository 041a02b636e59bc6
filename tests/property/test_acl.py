"""Filters as sets: containment and intersection against every topic of a small alphabet."""

from __future__ import annotations

from itertools import product

from hypothesis import example, given, settings
from hypothesis import strategies as st

from queuelake.broker.auth.acl import Acl
from queuelake.broker.auth.filters import covers, intersects, split_placeholders
from queuelake.settings import AclRule

# `z` and the fourth level are in no filter: they stand for all the names and depths `+` and `#`
# reach beyond those a filter spells out.
LEVELS = [b"a", b"b", b"", b"$x", b"z"]
TOPICS = [
    levels
    for depth in (1, 2, 3, 4)
    for levels in product(LEVELS, repeat=depth)
    if levels != (b"",)  # a topic name has at least one character
]

level = st.sampled_from([b"a", b"b", b"", b"$x", b"+"])


@st.composite
def filters(draw: st.DrawFn) -> list[bytes]:
    levels = draw(st.lists(level, max_size=3))
    if len(levels) < 3 and (draw(st.booleans()) or not levels):
        levels.append(b"#")
    return levels if levels != [b""] else [b"a"]


def naive_match(wanted: list[bytes], topic: tuple[bytes, ...]) -> bool:
    """The words of the standard, one level at a time."""
    if topic[0].startswith(b"$") and wanted[0] in (b"+", b"#"):
        return False
    return naive_rest(wanted, topic)


def naive_rest(wanted: list[bytes], topic: tuple[bytes, ...]) -> bool:
    if not wanted:
        return not topic
    if wanted[0] == b"#":
        return True
    if not topic or wanted[0] not in (b"+", topic[0]):
        return False
    return naive_rest(wanted[1:], topic[1:])


def topics_of(wanted: list[bytes]) -> set[tuple[bytes, ...]]:
    return {topic for topic in TOPICS if naive_match(wanted, topic)}


@settings(max_examples=400, deadline=None)
@given(filters(), filters())
@example([b"", b"#"], [b"+"])
@example([b"", b"#"], [b"", b"+", b"#"])
def test_covers_is_containment_and_intersects_is_intersection(
    one: list[bytes], two: list[bytes]
) -> None:
    first, second = topics_of(one), topics_of(two)
    assert covers(one, two) == (second <= first)
    assert covers(two, one) == (first <= second)
    assert intersects(one, two) == bool(first & second)
    assert intersects(two, one) == intersects(one, two)


@settings(max_examples=100, deadline=None)
@given(filters(), st.sampled_from(TOPICS))
def test_a_topic_is_a_filter_without_wildcards(one: list[bytes], topic: tuple[bytes, ...]) -> None:
    assert covers(one, list(topic)) == naive_match(one, topic)


rules = st.builds(
    AclRule,
    permission=st.sampled_from(["allow", "deny"]),
    topics=st.lists(filters().map(lambda one: b"/".join(one).decode()), min_size=1, max_size=2),
    action=st.sampled_from(["publish", "subscribe", "all"]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(rules, max_size=4), st.booleans(), filters())
def test_a_granted_subscription_brings_no_topic_that_a_subscription_to_it_alone_would_not(
    given_rules: list[AclRule], default: bool, wanted: list[bytes]
) -> None:
    client = Acl(given_rules, default).for_client("c", None, "", False, [])
    if client.may_subscribe(b"/".join(wanted)):
        for topic in topics_of(wanted):
            assert client.may_subscribe(b"/".join(topic))


@settings(max_examples=200, deadline=None)
@given(st.lists(rules, max_size=4), st.booleans())
def test_open_publish_is_never_wrong(given_rules: list[AclRule], default: bool) -> None:
    client = Acl(given_rules, default).for_client("c", None, "", False, [])
    if client.open_publish:
        for topic in TOPICS:
            if not topic[0].startswith(b"$"):
                assert client.may_publish(b"/".join(topic))


@given(st.text(alphabet="${}clientdusrname/#+", max_size=40))
def test_splitting_at_placeholders_loses_nothing(text: str) -> None:
    assert "".join(split_placeholders(text)) == text


@settings(deadline=None)
@given(st.text(max_size=12), st.none() | st.text(max_size=12))
def test_no_name_reaches_beyond_its_own_level(client_id: str, username: str | None) -> None:
    allowed = [AclRule("allow", ["own/${clientid}/#", "${username}/data"])]
    client = Acl(allowed, False).for_client(client_id, username, "", False, [])
    for topic in TOPICS:
        text = b"/".join(topic)
        if username is None or text != f"{username}/data".encode("utf-8", "surrogatepass"):
            assert not client.may_publish(text)
        assert client.may_publish(b"own/" + text) == (topic[0].decode() == client_id != "")
    assert not client.may_subscribe(b"own/#")
    assert not client.may_subscribe(b"#")
    assert not client.may_subscribe(b"$SYS/#")
