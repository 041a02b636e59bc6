"""The ACL: first match wins, placeholders never widen, wildcards never reach `$` topics."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from queuelake.broker.auth import acl as acl_module
from queuelake.broker.auth.acl import Acl, ClientAcl
from queuelake.errors import ConfigError
from queuelake.settings import AclRule


def client(
    rules: list[AclRule],
    *,
    default: bool = False,
    client_id: str = "c1",
    username: str | None = "ann",
    ip: str = "10.1.2.3",
    platform: bool = False,
    extra: list[AclRule] | None = None,
) -> ClientAcl:
    return Acl(rules, default).for_client(client_id, username, ip, platform, extra or [])


def test_the_first_rule_that_fits_decides() -> None:
    one = client([AclRule("deny", ["a/b"]), AclRule("allow", ["a/#"]), AclRule("deny", ["a/c"])])
    assert not one.may_publish(b"a/b")
    assert one.may_publish(b"a/c")
    assert not one.may_publish(b"b")
    assert client([], default=True).may_publish(b"b")


def test_actions_are_told_apart() -> None:
    one = client([AclRule("allow", ["p"], action="publish"), AclRule("allow", ["s"], "subscribe")])
    assert one.may_publish(b"p")
    assert not one.may_subscribe(b"p")
    assert one.may_subscribe(b"s")
    assert not one.may_publish(b"s")


@pytest.mark.parametrize(
    ("rule", "wanted", "allowed"),
    [
        ("a/#", b"a/+/b", True),
        ("a/#", b"a", True),
        ("a/+", b"a/#", False),
        ("a/+", b"a/b", True),
        ("#", b"$SYS/#", False),
        ("#", b"#", True),
        ("+/#", b"#", True),
        ("#", b"$share/g/a/b", True),
        ("a/#", b"$share/g/b", False),
        ("eq a/#", b"a/#", True),
        ("eq a/#", b"a/b", False),
        ("$queue/#", b"$queue/tasks", True),
        ("#", b"$queue/tasks", False),
        ("#", b"$share/g", False),
        ("#", b"$share//a", False),
    ],
)
def test_a_subscription_is_allowed_only_when_the_whole_filter_is_covered(
    rule: str, wanted: bytes, allowed: bool
) -> None:
    assert client([AclRule("allow", [rule])]).may_subscribe(wanted) is allowed


@pytest.mark.parametrize(
    ("rule", "wanted", "allowed"),
    [
        ("secret/#", b"secret/a", False),
        ("secret/#", b"#", False),
        ("secret/#", b"+/a", False),
        ("secret/#", b"$share/g/#", False),
        ("secret/#", b"open/#", True),
        ("$private/#", b"#", True),
        ("eq #", b"#", False),
        ("eq #", b"a/#", True),
    ],
)
def test_a_denied_topic_does_not_come_in_through_a_wider_filter(
    rule: str, wanted: bytes, allowed: bool
) -> None:
    one = client([AclRule("deny", [rule]), AclRule("allow", ["#"])])
    assert one.may_subscribe(wanted) is allowed


def test_placeholders_stand_for_this_client() -> None:
    one = client([AclRule("allow", ["fleet/${username}/+", "dev-${clientid}/#"])])
    assert one.may_publish(b"fleet/ann/x")
    assert not one.may_publish(b"fleet/bob/x")
    assert one.may_subscribe(b"dev-c1/+/y")
    assert not one.may_subscribe(b"dev-c2/#")


@pytest.mark.parametrize("name", ["+", "#", "a/b", "", "x+", None])
def test_a_name_with_wildcards_or_none_makes_the_pattern_match_nothing(name: str | None) -> None:
    rules = [AclRule("allow", ["u/${username}/#", "c/${clientid}"])]
    one = client(rules, username=name, client_id=name or "")
    for topic in (b"u/a/b", b"u//x", b"u/+/x", b"u/None/x", b"c/", b"c/a", b"c/a/b"):
        assert not one.may_publish(topic)
        assert not one.may_subscribe(topic)
    for wanted in (b"u/#", b"u/+/#", b"c/+", b"c/#"):
        assert not one.may_subscribe(wanted)


def test_a_name_cannot_move_a_pattern_into_dollar_topics_or_become_a_placeholder() -> None:
    rules = [AclRule("allow", ["${clientid}/#", "x/${clientid}"])]
    assert not client(rules, client_id="$SYS").may_subscribe(b"$SYS/#")
    assert client(rules, client_id="$SYS").may_publish(b"x/$SYS")
    tricky = client(rules, client_id="${username}", username="bob")
    assert not tricky.may_publish(b"x/bob")
    assert tricky.may_publish(b"x/${username}")


@pytest.mark.parametrize(
    ("matcher", "fits"),
    [
        ({"clientid": "c1"}, True),
        ({"clientid": "c"}, False),
        ({"clientid_re": "^c[0-9]$"}, True),
        ({"clientid_re": "1"}, True),
        ({"clientid_re": "^1"}, False),
        ({"username": "ann"}, True),
        ({"username_re": "^(ann|bob)$"}, True),
        ({"username_re": "^bob$"}, False),
        ({"ip": "10.1.0.0/16"}, True),
        ({"ip": "10.2.0.0/16"}, False),
        ({"ip": "fd00::/8"}, False),
        ({"platform": False}, True),
        ({"platform": True}, False),
        ({"clientid": "c1", "username": "bob"}, False),
    ],
)
def test_a_rule_applies_when_all_its_matchers_fit(
    matcher: dict[str, str | bool], fits: bool
) -> None:
    rule = AclRule("allow", ["t"], **matcher)  # type: ignore[arg-type]
    assert client([rule]).may_publish(b"t") is fits


def test_addresses_of_unix_sockets_and_mapped_ipv4() -> None:
    rule = AclRule("allow", ["t"], ip="10.0.0.0/8")
    assert client([rule], ip="::ffff:10.1.2.3").may_publish(b"t")
    assert not client([rule], ip="").may_publish(b"t")


def test_rules_about_user_names_do_not_apply_without_one() -> None:
    rules = [AclRule("allow", ["t"], username_re=".*"), AclRule("allow", ["t"], username="None")]
    assert not client(rules, username=None).may_publish(b"t")


@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize(
    ("topic", "ordinary", "platform"),
    [
        (b"$SYS/broker/x", False, False),
        (b"$SDV-FANOUT/trigger", False, True),
        (b"$ECQ/w/c9/key", False, True),
        (b"$ECQ/c1/$rewind", True, True),
        (b"$ECQ/c2/$rewind", False, True),
        (b"$ECQ/c1/key", False, False),
        (b"$queue/tasks/$config", False, True),
        (b"$queue/tasks/deep/$config", False, True),
    ],
)
def test_shipped_publish_rules(default: bool, topic: bytes, ordinary: bool, platform: bool) -> None:
    assert client([], default=default).may_publish(topic) is ordinary
    assert client([], default=default, platform=True).may_publish(topic) is platform


@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize(
    ("wanted", "ordinary", "platform"),
    [
        (b"$SYS/#", False, True),
        (b"$SYS/broker/+", False, True),
        (b"$SDV-FANOUT/#", False, False),
        (b"$ECQ/c1/#", True, True),
        (b"$ECQ/c2/#", False, False),
        (b"$ECQ/+/#", False, False),
        (b"$ECQ/#", False, False),
        (b"$ECQ/c1/x", False, False),
        (b"$share/g/$SYS/#", False, True),
    ],
)
def test_shipped_subscribe_rules(
    default: bool, wanted: bytes, ordinary: bool, platform: bool
) -> None:
    assert client([], default=default).may_subscribe(wanted) is ordinary
    assert client([], default=default, platform=True).may_subscribe(wanted) is platform


def test_the_shipped_rules_leave_ordinary_topics_to_the_default() -> None:
    assert client([], default=True).may_subscribe(b"#")
    assert client([], default=True).may_publish(b"a")
    assert not client([], default=False).may_subscribe(b"#")


def test_operators_may_override_the_shipped_rules() -> None:
    one = client([AclRule("allow", ["$SYS/#"], "subscribe", username="ann")])
    assert one.may_subscribe(b"$SYS/#")


def test_a_wide_rule_for_queues_does_not_hand_out_their_settings() -> None:
    wide = client([AclRule("allow", ["$queue/#"])])
    assert wide.may_publish(b"$queue/tasks")
    assert not wide.may_publish(b"$queue/tasks/$config")
    meant = client([AclRule("allow", ["$queue/+/$config"])])
    assert meant.may_publish(b"$queue/tasks/$config")
    denied = client([AclRule("deny", ["$queue/#"])], platform=True)
    assert not denied.may_publish(b"$queue/tasks/$config")


def test_rules_of_a_token_come_first() -> None:
    extra = [AclRule("allow", ["t/${clientid}"]), AclRule("deny", ["x"])]
    one = client([AclRule("deny", ["t/#"]), AclRule("allow", ["x"])], extra=extra)
    assert one.may_publish(b"t/c1")
    assert not one.may_publish(b"t/c2")
    assert not one.may_publish(b"x")
    with pytest.raises(ConfigError):
        client([], extra=[AclRule("allow", ["a/#/b"])])


@pytest.mark.parametrize(
    ("rules", "default", "is_open"),
    [
        ([], True, True),
        ([], False, False),
        ([AclRule("allow", ["#"])], False, True),
        ([AclRule("allow", ["#"], "subscribe")], False, False),
        ([AclRule("deny", ["a"]), AclRule("allow", ["#"])], False, False),
        ([AclRule("allow", ["#"]), AclRule("deny", ["a"])], False, True),
        ([AclRule("deny", ["$x/#"])], True, True),
        ([AclRule("deny", ["eq #"])], True, True),
        ([AclRule("deny", ["${clientid}/#"])], True, False),
        ([AclRule("deny", ["a"], "subscribe")], True, True),
        ([AclRule("deny", ["a"], clientid="other")], True, True),
    ],
)
def test_open_publish(rules: list[AclRule], default: bool, is_open: bool) -> None:
    assert client(rules, default=default).open_publish is is_open


def test_mistakes_in_rules_are_all_reported() -> None:
    rules = [
        AclRule("allow", ["a/#/b", "a+"]),
        AclRule("allow", ["a"], clientid_re="(a"),
        AclRule("allow", ["a"], ip="10.0.0.0/33"),
        AclRule("allow", []),
    ]
    with pytest.raises(ConfigError) as caught:
        Acl(rules, False)
    assert len(caught.value.mistakes) == 5
    assert "acl[1]" in caught.value.mistakes[2]


def test_decisions_are_bounded_and_right_when_forgotten() -> None:
    for rules in ([AclRule("allow", ["a/#"])], [AclRule("allow", ["a/#", "b/${clientid}"])]):
        one = client(rules)
        for index in range(10_000):
            assert one.may_publish(b"a/%d" % index)
            assert not one.may_publish(b"x/%d" % index)
        assert one.may_publish(b"a/" + b"x" * 60_000)
        shared = one._rules.decisions
        own = one._decisions or {}
        assert 0 < len(shared) + len(own) <= acl_module.SHARED_DECISIONS_MAX
        assert all(len(topic) <= acl_module.DECISION_TOPIC_BYTES_MAX for topic in [*shared, *own])


def test_a_shared_decision_never_leaks_to_another_client() -> None:
    acl = Acl(
        [AclRule("allow", ["own/${clientid}"]), AclRule("allow", ["vip"], clientid="c1")], False
    )
    one = acl.for_client("c1", None, "", False, [])
    two = acl.for_client("c2", None, "", False, [])
    for topic in (b"own/c1", b"vip", b"$ECQ/c1/$rewind"):
        assert one.may_publish(topic)
        assert not two.may_publish(topic)
        assert one.may_publish(topic)
    plain = Acl([AclRule("allow", ["a"])], False)
    first = plain.for_client("c1", None, "", False, [])
    second = plain.for_client("c2", None, "", False, [])
    assert first._rules is second._rules
    assert first.may_publish(b"$ECQ/c1/$rewind")
    assert not second.may_publish(b"$ECQ/c1/$rewind")


def test_an_idle_client_costs_little() -> None:
    acl = Acl([AclRule("allow", ["fleet/${clientid}/#", "shared/#"])], False)
    names = [f"client-{index}" for index in range(5000)]
    acl.for_client("first", None, "10.0.0.1", False, [])
    gc.collect()
    tracemalloc.start()
    try:
        kept = [acl.for_client(name, None, "10.0.0.1", False, []) for name in names]
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / len(kept) < 200
