"""Topic matching against the words of the standard, and the router against topic matching."""

from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from queuelake.broker.router import Router, Target
from queuelake.broker.session import Session, Subscription
from queuelake.protocol import topics
from tests.harness.reading import Reader

LEVELS_MAX = 8
SESSIONS = 4
CACHE_ENTRIES_MAX = 5  # small, so that the cache overflows within a test

names = st.sampled_from([b"a", b"b", b"", b"$x", b"longer", "Ä".encode()])
topic_names = st.lists(names, min_size=1, max_size=5).map(b"/".join).filter(bool)


@st.composite
def filters(draw: st.DrawFn, levels_max: int = 5) -> bytes:
    levels = draw(st.lists(names | st.just(b"+"), max_size=levels_max))
    if draw(st.booleans()) or not any(levels):
        levels.append(b"#")
    return b"/".join(levels)


def naive_matches(wanted: list[bytes], levels: list[bytes]) -> bool:
    """Section 4.7 of the standard, one level at a time."""
    if wanted == [b"#"]:
        return True
    if not wanted or not levels:
        return not wanted and not levels
    return wanted[0] in (b"+", levels[0]) and naive_matches(wanted[1:], levels[1:])


def naive(topic_filter: bytes, topic: bytes) -> bool:
    if topic.startswith(b"$") and topic_filter.startswith((b"+", b"#")):
        return False
    return naive_matches(topic_filter.split(b"/"), topic.split(b"/"))


@settings(max_examples=300, deadline=None)
@given(filters(), topic_names)
def test_matches_agrees_with_the_standard(topic_filter: bytes, topic: bytes) -> None:
    assert topics.matches(topic_filter, topic) == naive(topic_filter, topic)


def test_matches_agrees_with_the_standard_for_every_short_filter_and_topic() -> None:
    short = [b"a", b"$b", b""]
    every_topic = [b"/".join(one) for n in (1, 2, 3) for one in product(short, repeat=n)]
    parts = [*short, b"+", b"#"]
    every_filter = [b"/".join(one) for n in (1, 2, 3) for one in product(parts, repeat=n)]
    for topic_filter in every_filter:
        if topics.filter_problem(topic_filter, LEVELS_MAX):
            continue
        for topic in filter(None, every_topic):
            assert topics.matches(topic_filter, topic) == naive(topic_filter, topic)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([b"a", b"", b"+", b"#", b"a+", b"#a", b"$x"]), max_size=10))
def test_a_filter_is_legal_when_wildcards_stand_alone_and_hash_stands_last(
    levels: list[bytes],
) -> None:
    topic_filter = b"/".join(levels)
    legal = bool(topic_filter) and len(levels) <= LEVELS_MAX
    legal = legal and all(one in (b"a", b"", b"$x", b"+", b"#") for one in levels)
    legal = legal and b"#" not in levels[:-1]
    assert (topics.filter_problem(topic_filter, LEVELS_MAX) == "") == legal


@settings(max_examples=300, deadline=None)
@given(topic_names, filters())
def test_a_topic_is_a_filter_that_matches_itself(topic: bytes, topic_filter: bytes) -> None:
    assert topics.topic_problem(topic, LEVELS_MAX) == ""
    assert topics.filter_problem(topic, LEVELS_MAX) == ""
    assert topics.matches(topic, topic)
    has_problem = topics.topic_problem(topic_filter, LEVELS_MAX) != ""
    assert has_problem == topics.has_wildcard(topic_filter)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([b"g", b"", b"+", b"a#", "Ä".encode()]), filters() | st.just(b""))
def test_a_shared_filter_splits_into_group_and_filter(group: bytes, inner: bytes) -> None:
    shared = b"$share/" + group + b"/" + inner
    legal = group not in (b"", b"+", b"a#") and inner != b""
    assert topics.is_shared(shared)
    assert topics.split_shared(shared) == ((group, inner) if legal else (b"", b""))


class RouterAgainstMatching(RuleBasedStateMachine):
    """Subscriptions come and go; every route must be what matching one by one would give."""

    def __init__(self) -> None:
        super().__init__()
        self.router = Router(CACHE_ENTRIES_MAX)
        self.sessions = [Session(n + 1, f"client-{n}", 5, 60) for n in range(SESSIONS)]
        self.model: dict[tuple[int, bytes], Subscription] = {}

    @rule(
        number=st.integers(0, SESSIONS - 1),
        topic_filter=filters(3) | topic_names,
        group=st.sampled_from([b"", b"", b"g", b"h"]),
        qos=st.integers(0, 2),
        no_local=st.booleans(),
        retain_as_published=st.booleans(),
        subscription_id=st.sampled_from([0, 1, 200]),
    )
    def subscribe(
        self,
        number: int,
        topic_filter: bytes,
        group: bytes,
        qos: int,
        no_local: bool,
        retain_as_published: bool,
        subscription_id: int,
    ) -> None:
        shared = b"$share/" + group + b"/" + topic_filter if group else b""
        subscription = Subscription(
            self.sessions[number],
            topic_filter,
            qos,
            no_local and not group,
            retain_as_published,
            subscription_id,
            shared,
            [],
        )
        self.router.add(subscription)
        self.model[number + 1, shared or topic_filter] = subscription

    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        if self.model:
            key = data.draw(st.sampled_from(sorted(self.model)))
            self.router.remove(self.model.pop(key))

    @rule(number=st.integers(0, SESSIONS - 1), topic_filter=filters(3) | topic_names)
    def unsubscribe_what_is_not_there(self, number: int, topic_filter: bytes) -> None:
        shared = b"$share/nobody/" + topic_filter
        for given_shared in (b"", shared):
            if (number + 1, given_shared or topic_filter) not in self.model:
                session = self.sessions[number]
                missing = Subscription(session, topic_filter, 0, False, False, 0, given_shared, [])
                self.router.remove(missing)
        assert self.router.group(topic_filter, shared) is None

    @rule(topic=topic_names)
    def publish(self, topic: bytes) -> None:
        self.check(topic)
        self.check(topic)  # now from the cache

    @rule()
    def publish_to_every_subscribed_name(self) -> None:
        for subscription in list(self.model.values()):
            self.check(subscription.topic_filter.replace(b"+", b"a").replace(b"#", b"b"))

    def check(self, topic: bytes) -> None:
        route = self.router.route(topic)
        matching = [one for one in self.model.values() if naive(one.topic_filter, topic)]
        plain = [one for one in matching if not one.shared]
        assert len(route.targets) == len({one.session.id for one in plain})
        for target in route.targets:
            own = [one for one in plain if one.session is target.session]
            check_target(target, own)
            without_echo = [one for one in own if not one.no_local]
            assert target.no_local == (len(without_echo) < len(own))
            if target.no_local and without_echo:
                assert target.own is not None
                check_target(target.own, without_echo)
            else:
                assert target.own is None
        members = Counter((one.shared, one.session.id) for one in matching if one.shared)
        found = Counter((one.shared, m.session.id) for one in route.groups for m in one.members)
        assert found == members
        for group in route.groups:
            assert self.router.group(group.members[0].topic_filter, group.shared) is group

    @invariant()
    def every_subscription_is_counted_once(self) -> None:
        assert self.router.count == len(self.model)

    @invariant()
    def the_cache_keeps_its_limit(self) -> None:
        assert len(self.router._cache) <= CACHE_ENTRIES_MAX

    def teardown(self) -> None:
        for subscription in self.model.values():
            self.router.remove(subscription)
        assert self.router.count == 0
        assert not self.router._exact, "a filter nobody has is still in the index"
        assert not self.router._root.children, "a branch nobody has is still in the tree"


def check_target(target: Target, subscriptions: list[Subscription]) -> None:
    assert target.qos == max(one.qos for one in subscriptions)
    assert target.retain_as_published == any(one.retain_as_published for one in subscriptions)
    sent = Reader(bytes([len(target.ids)]) + target.ids).properties()
    wanted = Counter(one.subscription_id for one in subscriptions if one.subscription_id)
    assert Counter(sent.get("subscription_identifier", [])) == wanted


TestRouterAgainstMatching = RouterAgainstMatching.TestCase
TestRouterAgainstMatching.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
