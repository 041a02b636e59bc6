"""Who may publish and subscribe to what: one list of rules, the first that fits decides.

Order: the rules of the client's token, those of the configuration, the shipped ones below, and
then the default. A rule fits

- a publish, when one of its patterns matches the topic;
- a subscription, when it allows and one pattern covers the whole requested filter, or when it
  denies and one pattern has a topic in common with it. Permissions are checked when a client
  subscribes and not at each delivery, so a denied topic may not come in through a wider filter.
  Wildcards never reach `$` topics: the shipped denials do not stand in the way of `#`.

A shared subscription is judged by the filter behind `$share/group/`.

Which rules apply to a client is worked out once, at CONNECT. Clients to whom the same rules apply
share one `RuleSet`; each has only a small `ClientAcl`, which knows the names for the placeholders.
Decisions are remembered by the set, or by the client when a placeholder takes part.
"""

from __future__ import annotations

from typing import Final, final

import msgspec

from queuelake import names
from queuelake.broker.auth.filters import Pattern
from queuelake.broker.auth.matchers import Matcher, check_rules, parse_address
from queuelake.protocol.topics import is_shared, split_shared
from queuelake.sdv_settings import VIN
from queuelake.settings import AclRule

SHARED_DECISIONS_MAX: Final = 4096
CLIENT_DECISIONS_MAX: Final = 64
DECISION_TOPIC_BYTES_MAX: Final = 256  # longer topics are decided each time: no memory by name
RULE_SETS_MAX: Final = 1024

ECQ_PREFIX: Final = b"$ECQ/"
CONFIG_SUFFIX: Final = b"/$config"

# Only rules about `$ECQ/` may hold placeholders here, and those about subscriptions: decisions on
# publishing to other topics are shared.
SHIPPED_RULES: Final[list[AclRule]] = [
    AclRule("deny", ["$SYS/#"], action="publish"),
    AclRule("allow", ["$SYS/#"], action="subscribe", platform=True),
    AclRule("deny", ["$SYS/#"], action="subscribe"),
    AclRule("allow", ["$SDV-FANOUT/#"], action="publish", platform=True),
    AclRule("deny", ["$SDV-FANOUT/#"]),
    AclRule("allow", ["eq $ECQ/${clientid}/#"], action="subscribe"),
    AclRule("deny", ["$ECQ/#"], action="subscribe"),
    AclRule("allow", ["$ECQ/w/#", "$ECQ/+/$rewind"], action="publish", platform=True),
    AclRule("deny", ["$ECQ/w/#"], action="publish"),
    AclRule("allow", ["$ECQ/${clientid}/$rewind"], action="publish"),
    AclRule("deny", ["$ECQ/#"], action="publish"),
]


def vehicle_rules(topic_prefix: str) -> list[AclRule]:
    """A vehicle may subscribe to what is sent to it, and to nothing that is sent to another."""
    own = topic_prefix.replace(VIN, "${clientid}") + "/#"
    levels = ["+" if VIN in level else level for level in topic_prefix.split("/")]
    return [
        AclRule("allow", [own], action="subscribe"),
        AclRule("deny", ["/".join([*levels, "#"])], action="subscribe", platform=False),
    ]


class Acl:
    """All rules of the broker.

    Raises:
        ConfigError: a rule holds a wrong filter, expression or network.
    """

    __slots__ = ("_default_allow", "_matched", "_sets", "_shipped_from")

    def __init__(
        self, rules: list[AclRule], default_allow: bool, vehicles: list[AclRule] | None = None
    ) -> None:
        check_rules(rules, "acl")
        shipped = [*SHIPPED_RULES, *(vehicles or [])]
        self._default_allow = default_allow
        self._matched: list[MatchedRule] = [
            MatchedRule(Matcher(rule), Rule(rule)) for rule in [*rules, *shipped]
        ]
        self._shipped_from = len(rules)
        self._sets: dict[bytes, RuleSet] = {}

    def for_client(
        self, client_id: str, username: str | None, ip: str, platform: bool, extra: list[AclRule]
    ) -> ClientAcl:
        """The permissions of one connection; `username` only when it was proven.

        Raises:
            ConfigError: a rule in `extra` holds a wrong filter, expression or network.
        """
        address = parse_address(ip)
        key = bytearray(b"\1" if platform else b"\0")
        rules: list[Rule] = []
        own = False
        for index, matched in enumerate(self._matched):
            if matched.matcher.applies(client_id, username, address, platform):
                rules.append(matched.rule)
                key += index.to_bytes(4, "big")
                own = own or (index < self._shipped_from and matched.rule.has_templates)
        if extra:
            check_rules(extra, "token acl")
            first: list[Rule] = []
            applied: list[AclRule] = []
            for one in extra:
                if Matcher(one).applies(client_id, username, address, platform):
                    rule = Rule(one)
                    first.append(rule)
                    applied.append(one)
                    own = own or rule.has_templates
            rules = first + rules
            key += msgspec.json.encode(applied)
        return ClientAcl(self._set_of(bytes(key), rules, platform, own), client_id, username)

    def _set_of(self, key: bytes, rules: list[Rule], platform: bool, own: bool) -> RuleSet:
        found = self._sets.get(key)
        if found is None:
            if len(self._sets) >= RULE_SETS_MAX:
                self._sets.clear()  # clients keep theirs; only later ones get a new copy
            found = RuleSet(rules, self._default_allow, platform, own)
            self._sets[key] = found
        return found


@final
class ClientAcl:
    """What one client may do. `open_publish`: every topic that does not start with `$`."""

    __slots__ = ("_client_id", "_decisions", "_rules", "_username", "open_publish", "platform")

    def __init__(self, rules: RuleSet, client_id: str, username: str | None) -> None:
        self._rules = rules
        self._client_id = client_id
        self._username = username
        self._decisions: dict[bytes, bool] | None = None
        self.open_publish: bool = rules.open_publish
        self.platform: bool = rules.platform

    def may_publish(self, topic: bytes) -> bool:
        rules = self._rules
        if len(topic) > DECISION_TOPIC_BYTES_MAX:
            return rules.may_publish(topic, self._client_id, self._username)
        limit = SHARED_DECISIONS_MAX
        decisions: dict[bytes, bool] | None = rules.decisions
        if rules.own_decisions or (topic[1:2] == b"E" and topic.startswith(ECQ_PREFIX)):
            limit = CLIENT_DECISIONS_MAX
            decisions = self._decisions
            if decisions is None:
                decisions = {}
                self._decisions = decisions
        assert decisions is not None
        known = decisions.get(topic)
        if known is not None:
            return known
        allowed = rules.may_publish(topic, self._client_id, self._username)
        if len(decisions) >= limit:
            decisions.clear()
        decisions[topic] = allowed
        return allowed

    def may_subscribe(self, filter: bytes) -> bool:
        if is_shared(filter):
            filter = split_shared(filter)[1]
        if not filter:
            return False
        rules = self._rules
        for prefix in names.MQ_PREFIXES:
            if filter.startswith(prefix):  # what comes out of the queue are messages of its topics
                inner = filter[len(prefix) :]
                if not inner or not rules.may_subscribe(inner, self._client_id, self._username):
                    return False
        return rules.may_subscribe(filter, self._client_id, self._username)


@final
class RuleSet:
    """The rules which apply to a client, in order; shared by all clients with the same ones."""

    __slots__ = (
        "_default_allow",
        "_rules",
        "decisions",
        "open_publish",
        "own_decisions",
        "platform",
    )

    def __init__(
        self, rules: list[Rule], default_allow: bool, platform: bool, own_decisions: bool
    ) -> None:
        self._rules = rules
        self._default_allow = default_allow
        self.platform = platform
        self.own_decisions = own_decisions
        self.decisions: dict[bytes, bool] = {}
        self.open_publish: bool = self._is_open()

    def may_publish(self, topic: bytes, client_id: str, username: str | None) -> bool:
        levels = topic.split(b"/")
        admin = topic.startswith(names.PREFIX) and topic.endswith(CONFIG_SUFFIX)
        for rule in self._rules:
            if not rule.publish:
                continue
            for template in rule.patterns:
                pattern = template.of(client_id, username)
                if pattern is None or not pattern.covers(topic, levels):
                    continue
                # `allow $queue/#` is meant for messages: it does not hand out the settings too.
                if admin and rule.allow and not pattern.text.endswith(CONFIG_SUFFIX):
                    continue
                return rule.allow
        return self.platform if admin else self._default_allow

    def may_subscribe(self, filter: bytes, client_id: str, username: str | None) -> bool:
        levels = filter.split(b"/")
        for rule in self._rules:
            if not rule.subscribe:
                continue
            for template in rule.patterns:
                pattern = template.of(client_id, username)
                if pattern is None:
                    continue
                if rule.allow:
                    if pattern.covers(filter, levels):
                        return True
                elif pattern.meets(filter, levels):
                    return False
        return self._default_allow

    def _is_open(self) -> bool:
        """Never True wrongly: a denial that might concern an ordinary topic closes it."""
        for rule in self._rules:
            if not rule.publish:
                continue
            for pattern in rule.patterns:
                if rule.allow and not pattern.literal and pattern.text in (b"#", b"+/#"):
                    return True
                if not rule.allow and not pattern.leaves_ordinary_topics_alone():
                    return False
        return self._default_allow


@final
class Rule:
    """What a rule says, without to whom."""

    __slots__ = ("allow", "has_templates", "patterns", "publish", "subscribe")

    def __init__(self, rule: AclRule) -> None:
        self.allow: bool = rule.permission == "allow"
        self.publish: bool = rule.action != "subscribe"
        self.subscribe: bool = rule.action != "publish"
        self.patterns: list[Pattern] = [Pattern(topic) for topic in rule.topics]
        self.has_templates = False
        for pattern in self.patterns:
            if pattern.is_template():
                self.has_templates = True


@final
class MatchedRule:
    """A rule and to whom it applies."""

    __slots__ = ("matcher", "rule")

    def __init__(self, matcher: Matcher, rule: Rule) -> None:
        self.matcher = matcher
        self.rule = rule
