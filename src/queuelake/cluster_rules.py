"""Rules about the `[cluster]` section which types alone cannot express."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from queuelake.cluster_settings import NAME_CHARACTERS_MAX, ClusterConfig
from queuelake.config_layers import shown
from queuelake.config_rules import Finding, authorities, key_pair, readable

LEASE_MS_MIN: Final = 1_000
LEASE_MS_MAX: Final = 60_000
LOG_BYTES_MIN: Final = 64 * 1024**2
SCHEMES: Final = ("nats", "tls")
LOGINS: Final = ("user", "token", "credentials_file", "nkey_seed_file")

_NAME: Final = re.compile(f"[A-Za-z0-9_-]{{1,{NAME_CHARACTERS_MAX}}}")


def config_findings(config: ClusterConfig) -> Iterator[Finding]:
    """Everything that is wrong with a section whose single values have the right type."""
    allowed = f"allowed: 1 to {NAME_CHARACTERS_MAX} of A-Z, a-z, 0-9, _ and -"
    if _NAME.fullmatch(config.name) is None:
        yield _finding("name", config.name, allowed)
    if config.node and _NAME.fullmatch(config.node) is None:
        yield _finding("node", config.node, allowed)
    yield from _urls(config.urls)
    yield from _logins(config)
    yield from authorities("cluster.ca_file", config.ca_file)
    yield from key_pair("cluster", config.certificate, config.key)
    if not LEASE_MS_MIN <= config.lease_ms <= LEASE_MS_MAX:
        seconds = f"{LEASE_MS_MIN // 1000}s to {LEASE_MS_MAX // 1000}s"
        yield _finding("lease", config.lease, f"allowed: {seconds}")
    if config.log_bytes_max < LOG_BYTES_MIN:
        reason = f"allowed: at least {LOG_BYTES_MIN}, which is {LOG_BYTES_MIN // 1024**2}MiB"
        yield _finding("log_bytes_max", config.log_bytes_max, reason)
    yield from _packages(config)


def _urls(urls: list[str]) -> Iterator[Finding]:
    if not urls:
        yield _finding("urls", urls, "allowed: at least one URL of a NATS server")
    for url in urls:
        reason = _url_mistake(url)
        if reason:
            value = "(hidden)" if "@" in url else f'"{url}"'
            yield Finding(("cluster.urls",), f"cluster.urls holds {value}: {reason}")


def _url_mistake(url: str) -> str:
    allowed = 'allowed: such as "nats://10.0.0.1:4222" or "tls://nats.example.com:4222"'
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"{error}; {allowed}"
    if parts.username is not None or parts.password is not None:
        return "allowed: no user in a URL; there are cluster.user, cluster.password, cluster.token"
    rest = parts.path.strip("/") or parts.query or parts.fragment
    if parts.scheme not in SCHEMES or not parts.hostname or port == 0 or rest:
        return allowed
    return ""


def _logins(config: ClusterConfig) -> Iterator[Finding]:
    used = [key for key in LOGINS if getattr(config, key)]
    if len(used) > 1:
        keys = tuple(f"cluster.{key}" for key in used)
        message = f"{keys[0]}: cannot be used together with {keys[1]}; allowed: one way to log in"
        yield Finding(keys, message)
    for key, other in (("user", "password"), ("password", "user")):
        if getattr(config, key) and not getattr(config, other):
            keys = (f"cluster.{key}", f"cluster.{other}")
            yield Finding(keys, f"cluster.{key}: needs cluster.{other}")
    yield from readable("cluster.credentials_file", config.credentials_file)
    yield from readable("cluster.nkey_seed_file", config.nkey_seed_file)


def _packages(config: ClusterConfig) -> Iterator[Finding]:
    needed = ["nats"]
    if config.credentials_file or config.nkey_seed_file:
        needed.append("nkeys")
    if config.enabled and not all(map(importlib.util.find_spec, needed)):
        message = "cluster.enabled: a cluster needs more packages; pip install 'queuelake[cluster]'"
        yield Finding(("cluster.enabled",), message)


def _finding(key: str, value: object, reason: str) -> Finding:
    key = f"cluster.{key}"
    return Finding((key,), f"{key} = {shown(key, value)}: {reason}")
