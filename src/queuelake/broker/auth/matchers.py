"""To whom a rule applies: compiled once, asked once for each connection.

Expressions are RE2 (they cannot backtrack, so no client id can hang the broker) and are searched
for: write `^` and `$` where you mean the whole name. All matchers of a rule must fit. A user name
is only ever one that was proven; without one, rules which ask for a user name do not apply.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any, final

import re2

from queuelake.config_rules import filter_mistake
from queuelake.errors import ConfigError
from queuelake.settings import AclRule

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@final
class Matcher:
    """The conditions of one rule."""

    __slots__ = ("_clientid", "_clientid_re", "_network", "_platform", "_username", "_username_re")

    def __init__(self, rule: AclRule) -> None:
        self._clientid = rule.clientid
        self._clientid_re = compile_expression(rule.clientid_re) if rule.clientid_re else None
        self._username = rule.username
        self._username_re = compile_expression(rule.username_re) if rule.username_re else None
        self._network = parse_network(rule.ip) if rule.ip else None
        self._platform = rule.platform

    def applies(
        self, client_id: str, username: str | None, address: Address | None, platform: bool
    ) -> bool:
        if self._platform is not None and self._platform != platform:
            return False
        if self._clientid and self._clientid != client_id:
            return False
        if self._username and self._username != username:
            return False
        if self._network is not None and (address is None or address not in self._network):
            return False
        if self._clientid_re is not None and self._clientid_re.search(client_id) is None:
            return False
        if self._username_re is None:
            return True
        return username is not None and self._username_re.search(username) is not None


def compile_expression(pattern: str) -> Any:
    """The RE2 expression. Raises ValueError when it is none."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"is not an RE2 expression: {text}") from error


def parse_network(text: str) -> Network:
    """An address or CIDR network. Raises ValueError when it is neither."""
    return ipaddress.ip_network(text)


def parse_address(text: str) -> Address | None:
    """The peer's address, IPv4 also when it came over an IPv6 socket; None for a Unix socket."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def check_rules(rules: Sequence[AclRule], where: str) -> None:
    """Raise ConfigError with one line for each mistake in these rules."""
    mistakes: list[str] = []
    for index, rule in enumerate(rules):
        name = f"{where}[{index}]"
        try:
            Matcher(rule)
        except ValueError as error:
            mistakes.append(f"{name}: {error}")
        if not rule.topics:
            mistakes.append(f"{name}.topics = []: allowed: at least one topic filter")
        for topic in rule.topics:
            mistake = filter_mistake(topic.removeprefix("eq ")) or _encoding_mistake(topic)
            if mistake:
                mistakes.append(f"{name}.topics holds {topic!r}: {mistake}")
    if mistakes:
        raise ConfigError(mistakes)


def _encoding_mistake(topic: str) -> str:
    try:
        topic.encode("utf-8")
    except UnicodeEncodeError:
        return "is not Unicode text"
    return ""
