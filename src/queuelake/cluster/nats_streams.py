"""What a cluster has in JetStream: a stream for the log of each shard, and a bucket of records.

They are made by whoever comes first; several nodes may come at once. What is there already must be
as it would be made now: a log which forgets by itself, or has fewer copies than was said, loses
what was confirmed.
"""

from __future__ import annotations

from typing import Any, Final

from queuelake.cluster.engine import UnavailableError
from queuelake.cluster.nats_link import ApiError, Link, NoAnswerError
from queuelake.cluster_settings import ClusterConfig
from queuelake.errors import ConfigError

CREATE_TIMEOUT_S: Final = 5.0  # it takes an election
DUPLICATE_WINDOW_NS: Final = 100_000_000  # the shortest; nothing we send has an id
SHARDS: Final = "queuelake.shards"

# Numbers of the JetStream API.
NAME_IN_USE: Final = 10058
STREAM_NOT_FOUND: Final = 10059
NOT_CLUSTERED: Final = 10074
NO_JETSTREAM: Final = (10039, 10076)

Table = dict[str, Any]


def log_subject(config: ClusterConfig, shard: int) -> str:
    return f"queuelake.{config.name}.log.{shard}"


def log_stream(config: ClusterConfig, shard: int) -> Table:
    return _stream(config, f"QL_{config.name}_{shard}", log_subject(config, shard)) | {
        "description": f"Queuelake, cluster {config.name}: the log of shard {shard}",
        "duplicate_window": DUPLICATE_WINDOW_NS,
        "max_msgs_per_subject": -1,
    }


def bucket(config: ClusterConfig) -> str:
    return f"QL_{config.name}"


def record_stream(config: ClusterConfig) -> Table:
    """A key-value bucket, as the tools of NATS know it."""
    return _stream(config, f"KV_{bucket(config)}", f"$KV.{bucket(config)}.>") | {
        "description": f"Queuelake, cluster {config.name}: who owns what",
        "max_msgs_per_subject": 1,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
    }


def _stream(config: ClusterConfig, name: str, subject: str) -> Table:
    return {
        "name": name,
        "subjects": [subject],
        "num_replicas": config.replicas,
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "max_age": 0,
        "max_bytes": -1,
        "max_msgs": -1,
        "max_msg_size": -1,
        "max_consumers": -1,
        "allow_direct": True,
        "metadata": {SHARDS: str(config.shards)},
    }


async def ensure_stream(link: Link, wanted: Table) -> Table:
    """Make a stream unless it is there; returns its state.

    Raises:
        ConfigError: it is there and different, or these servers cannot have it.
        UnavailableError: JetStream does not answer, or has too few servers now; try again.
    """
    name = wanted["name"]
    try:
        try:
            info = await link.call(f"STREAM.INFO.{name}", {})
        except ApiError as error:
            if error.number != STREAM_NOT_FOUND:
                raise
            info = await _create(link, wanted)
    except ApiError as error:
        raise _refusal(name, wanted, error) from error
    except NoAnswerError as error:
        raise UnavailableError(f"stream {name}: {error}") from error
    _compare(wanted, info["config"])
    state: Table = info["state"]
    return state


async def _create(link: Link, wanted: Table) -> Table:
    name = wanted["name"]
    try:
        return await link.call(f"STREAM.CREATE.{name}", wanted, CREATE_TIMEOUT_S)
    except ApiError as error:
        if error.number != NAME_IN_USE:
            raise
        # Another node was faster, with other settings: these are compared.
        return await link.call(f"STREAM.INFO.{name}", {})


def _refusal(name: str, wanted: Table, error: ApiError) -> ConfigError | UnavailableError:
    if error.number == NOT_CLUSTERED:
        replicas = wanted["num_replicas"]
        return ConfigError(
            [f"cluster.replicas = {replicas}: this NATS server is alone; allowed: 1"]
        )
    if error.number in NO_JETSTREAM:
        return ConfigError([f"cluster.urls: {error}; allowed: NATS servers with JetStream"])
    return UnavailableError(f"stream {name}: {error}")


def _compare(wanted: Table, found: Table) -> None:
    name = wanted["name"]
    mistakes = []
    for key, value in wanted.items():
        there = found.get(key, False)
        if key in ("description", "metadata") or there == value:
            continue
        if key == "num_replicas":
            mistakes.append(f"cluster.replicas = {value}: the stream {name} has {there}")
        else:
            mistakes.append(f"stream {name}: has {key} = {there!r}; allowed: {value!r}")
    shards = found.get("metadata", {}).get(SHARDS)
    if shards is not None and shards != wanted["metadata"][SHARDS]:
        value = wanted["metadata"][SHARDS]
        mistakes.append(f"cluster.shards = {value}: the cluster was made with {shards}")
    if mistakes:
        raise ConfigError(mistakes)
