"""Loading the configuration: three layers become one `Settings`, or a list of all mistakes.

The file, the environment and the `--set` assignments are laid over the defaults one after the other
(`config_layers.py`), then the rules about several keys are asked (`config_rules.py`).

Below `[queues]`, a table whose name is no key is one queue. Its values are checked at once but kept
as the partial tree they are: which defaults lie below it is known only after the last layer.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Mapping
from typing import cast

import msgspec

from queuelake import cluster_rules, config_rules, mq_rules, names, queue_rules, sdv_rules
from queuelake.config_layers import Layers, Table, kind_of, known_names, read_text
from queuelake.errors import ConfigError
from queuelake.placing import Placing
from queuelake.queue_settings import QueueSettings, Replication, base_of, merged
from queuelake.settings import AclRule, Queues, Settings

ENVIRONMENT_PREFIX = "QUEUELAKE__"
FILE_KEYS = (
    "data_dir",
    "listeners.unix.path",
    "tls.certificate",
    "tls.key",
    "tls.client_ca",
    "grpc.certificate",
    "grpc.key",
    "flight.certificate",
    "flight.key",
    "auth.password_file",
    "auth.scram_file",
    "auth.jwt.public_key_file",
    "auth.jwt.jwks_file",
    "cluster.credentials_file",
    "cluster.nkey_seed_file",
    "cluster.ca_file",
    "cluster.certificate",
    "cluster.key",
)


def load_settings(
    path: str | None, environ: Mapping[str, str], assignments: list[str]
) -> tuple[Settings, dict[str, str]]:
    """Read the file, the environment and the `--set` assignments; the later wins.

    Returns the settings, and where each value came from which is no default.

    Raises:
        ConfigError: one line for each mistake; show them all and stop.
    """
    loader = _Loader()
    if path is not None:
        loader.add_file(path)
    for name in sorted(environ):
        if name.upper().startswith(ENVIRONMENT_PREFIX):
            key = name[len(ENVIRONMENT_PREFIX) :].lower().replace("__", ".")
            loader.add_text(f"environment {name}", key, environ[name])
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if equals:
            loader.add_text("--set", key.strip(), text)
        else:
            mistake = f"{key!r} has no value; write --set section.key=value"
            loader.layers.add_mistake("--set", mistake)
    return loader.settings(), loader.layers.origins


def read_rules(origin: str, rules: object) -> list[AclRule]:
    """The rules of an `[[acl]]` list which is not in the configuration, checked as if it were.

    Raises:
        ConfigError: one line for each mistake.
    """
    loader = _Loader()
    loader.layers.lay_table(origin, "", {"acl": rules}, kind_of(Settings), loader.values)
    return loader.settings().acl


class _Loader:
    """The values so far, and the queues which have a table of their own."""

    def __init__(self) -> None:
        self.layers = Layers()
        self.values = cast(Table, msgspec.to_builtins(Settings()))
        self.named: dict[str, Table] = {}

    def settings(self) -> Settings:
        for key in FILE_KEYS:
            self._expand_home(key.split("."))
        queues = cast(Table, self.values["queues"])
        queues["named"] = self.named
        replication = self._replication()
        if "queues.defaults.replication" not in self.layers.origins:
            cast(Table, queues["defaults"])["replication"] = replication
        settings = msgspec.convert(self.values, Settings)
        for finding in config_rules.findings(settings):
            self.layers.add_finding(finding.keys, finding.message)
        for finding in mq_rules.config_findings(settings.mq):
            keys = tuple(f"mq.{key}" for key in finding.keys)
            self.layers.add_finding(keys, f"mq: {finding.message}")
        for finding in sdv_rules.config_findings(settings.sdv):
            keys = tuple(f"sdv.{key}" for key in finding.keys)
            self.layers.add_finding(keys, f"sdv.{finding.message}")
        for finding in cluster_rules.config_findings(settings.cluster):
            self.layers.add_finding(finding.keys, finding.message)
        placing = settings.cluster.placing
        self._check_defaults(settings.queues.defaults, replication, placing)
        for name, tree in self.named.items():
            self._check_named(name, tree, settings.queues.defaults, replication, placing)
        if self.layers.mistakes:
            raise ConfigError(self.layers.mistakes)
        return settings

    def add_file(self, path: str) -> None:
        origin = f"file {path}"
        try:
            with open(path, "rb") as file:
                table = tomllib.load(file)
        except OSError as error:
            self.layers.add_mistake(origin, f"cannot be read: {error.strerror or error}")
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            self.layers.add_mistake(origin, f"is not TOML: {error}")
        else:
            self._lay_root(origin, table)

    def add_text(self, origin: str, key: str, text: str) -> None:
        levels = _split_key(key)
        if levels[0] == "queues" and len(levels) > 2 and _is_no_key(levels[1]):
            self._lay_named_text(origin, levels[1], levels[2:], text)
            return
        value = read_text(text, kind_of(Settings))
        if levels[0] == "queues" and len(levels) <= 2 and isinstance(value, dict):
            self._lay_root(origin, {"queues": {levels[1]: value} if levels[1:] else value})
        else:
            self.layers.lay_text(origin, "", levels, text, kind_of(Settings), self.values)

    def _lay_root(self, origin: str, table: Table) -> None:
        queues = table.get("queues")
        tables: Table = {}
        if isinstance(queues, dict):
            tables = {
                name: value
                for name, value in queues.items()
                if isinstance(value, dict) and _is_no_key(name)
            }
            rest = {name: value for name, value in queues.items() if name not in tables}
            table = {**table, "queues": rest}
        self.layers.lay_table(origin, "", table, kind_of(Settings), self.values)
        for name, value in tables.items():
            bare = self._queue_name(origin, name)
            if bare:
                tree = self.named.setdefault(bare, {})
                above = queue_section(bare)
                self.layers.lay_table(
                    origin, above, cast(Table, value), kind_of(QueueSettings), tree
                )

    def _lay_named_text(self, origin: str, name: str, levels: list[str], text: str) -> None:
        bare = self._queue_name(origin, name)
        if bare:
            tree = self.named.setdefault(bare, {})
            self.layers.lay_text(
                origin, queue_section(bare), levels, text, kind_of(QueueSettings), tree
            )

    def _queue_name(self, origin: str, written: str) -> str:
        """The queue which a table below `[queues]` is about; "" when it is about none."""
        near = difflib.get_close_matches(written, ["defaults"], cutoff=0.8)
        if near:
            mistake = f"did you mean queues.{near[0]}? The queue is {queue_section(written)}"
            self.layers.add_mistake(origin, f"queues.{written}: {mistake}")
            return ""
        try:
            return names.bare_name(written)
        except names.BadAddressError as error:
            self.layers.add_mistake(origin, f"queues.{json.dumps(written)}: {error}")
            return ""

    def _replication(self) -> Replication:
        """Of every queue: the log of a cluster is that of its whole store."""
        return "quorum" if cast(Table, self.values["cluster"])["enabled"] else "none"

    def _check_defaults(
        self, defaults: QueueSettings, replication: Replication, placing: Placing | None
    ) -> None:
        found = [*queue_rules.findings(defaults, "", replication)]
        if placing is not None:
            found += queue_rules.elsewhere(defaults, "", placing)
        for finding in found:
            keys = tuple(f"queues.defaults.{key}" for key in finding.keys)
            self.layers.add_finding(keys, f"queues.defaults.{finding.message}")
        if defaults.type == "quorum":
            message = 'queues.defaults.type = "quorum": allowed: in the table of one queue'
            self.layers.add_finding(("queues.defaults.type",), message)
        if defaults.topics:
            message = "every queue would take the same messages; allowed: in the table of one queue"
            self.layers.add_finding(
                ("queues.defaults.topics",), f"queues.defaults.topics: {message}"
            )

    def _check_named(
        self,
        name: str,
        tree: Table,
        defaults: QueueSettings,
        replication: Replication,
        placing: Placing | None,
    ) -> None:
        section = queue_section(name)
        base = base_of(name, defaults, tree)
        whole = merged(cast(Table, msgspec.to_builtins(base)), tree)
        settings = msgspec.convert(whole, QueueSettings)
        found = [*queue_rules.foreign(base, settings, tree)]
        found += queue_rules.findings(settings, name, replication)
        if placing is not None:
            found += queue_rules.elsewhere(settings, name, placing)
        for finding in found:
            # What the defaults alone got wrong is reported with them.
            if any(_holds(tree, key) for key in finding.keys):
                keys = tuple(f"{section}.{key}" for key in finding.keys)
                defaults_keys = tuple(f"queues.defaults.{key}" for key in finding.keys)
                self.layers.add_finding((*keys, *defaults_keys), f"{section}.{finding.message}")

    def _expand_home(self, levels: list[str]) -> None:
        values = self.values
        for name in levels[:-1]:
            values = cast(Table, values[name])
        values[levels[-1]] = os.path.expanduser(cast(str, values[levels[-1]]))


def queue_section(name: str) -> str:
    """The table of one queue, as every message about it names it."""
    return f"queues.{json.dumps(names.address(name), ensure_ascii=False)}"


def _is_no_key(name: str) -> bool:
    """Whether a name below `[queues]` is that of a queue."""
    return name not in known_names(kind_of(Queues))


def _holds(tree: Table, key: str) -> bool:
    name, _, rest = key.partition(".")
    value = tree.get(name)
    if not rest:
        return name in tree
    return isinstance(value, dict) and _holds(value, rest)


def _split_key(key: str) -> list[str]:
    """The levels of a dotted key; a level in quotes may hold dots, as in TOML."""
    try:
        table: object = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        return key.split(".")
    levels: list[str] = []
    while isinstance(table, dict) and len(table) == 1:
        ((level, table),) = table.items()
        levels.append(level)
    return levels if table == 0 else key.split(".")
