"""What several brokers answered to the same question, as one answer. Pure.

Numbers are added up, field by field; texts are those of the first. `RULES` has what is neither: a
client has a session in every shard, a message queue a part, so of these the most is meant, not the
sum; and brokers of one process share its memory, its disk and its loop.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, TypeVar

from msgspec import Struct

from queuelake.control import ClientInfo, Histogram, MetricsSnapshot, Readiness, Status
from queuelake.control_ecq import EcqGcAnswer, EcqRange, EcqStatus
from queuelake.control_mq import MqFigures, MqStats
from queuelake.control_pipeline import (
    ARCHIVED_QUEUES_MAX,
    ArchivedQueue,
    ArchiveFigures,
    ArchiveLag,
)
from queuelake.control_queues import (
    ConsumerInfo,
    GroupStats,
    LettersDone,
    PartitionStats,
    QueueMetrics,
    QueueStats,
    QueueSummary,
)
from queuelake.control_sdv import (
    REQUESTS_PER_SCRAPE_MAX,
    SdvFigures,
    SdvGcAnswer,
    SdvRequest,
    SdvStatus,
)
from queuelake.storage.ecq_tables import digest

T = TypeVar("T")
Rule = Callable[[Sequence[Any]], Any]


def total(parts: Sequence[T]) -> T:
    """One answer made of at least one; texts are those of the first."""
    return _total(parts)  # type: ignore[no-any-return]


def _total(parts: Sequence[Any]) -> Any:
    first = parts[0]
    if isinstance(first, Struct):
        rules = RULES.get(type(first), {})
        fields = first.__struct_fields__
        values = {name: [getattr(one, name) for one in parts] for name in fields}
        return type(first)(**{name: rules.get(name, _total)(values[name]) for name in fields})
    if isinstance(first, dict):
        return _by_key(parts, _total)
    if isinstance(first, list):  # of numbers; one which is empty so far has none
        return [sum(column) for column in zip_longest(*parts, fillvalue=0)]
    if isinstance(first, int | float) and not isinstance(first, bool):
        return sum(parts)
    return first


def _by_key(parts: Iterable[Mapping[str, Any]], rule: Rule) -> dict[str, Any]:
    found: dict[str, list[Any]] = {}
    for part in parts:
        for key, value in part.items():
            found.setdefault(key, []).append(value)
    return {key: rule(values) for key, values in found.items()}


def _most_by_key(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return _by_key(parts, max)


def _known(rule: Rule) -> Rule:
    """Of those which are known."""

    def apply(values: Sequence[Any]) -> Any:
        found = [one for one in values if one is not None]
        return rule(found) if found else None

    return apply


def _joined(lists: Sequence[list[Any]]) -> list[Any]:
    """All there is, each once."""
    return list(dict.fromkeys([one for part in lists for one in part]))


def _same(field: str) -> Rule:
    """Lists of structs: what has the same name becomes one, in the order they come in."""

    def apply(lists: Sequence[list[Any]]) -> list[Any]:
        found: dict[object, list[Any]] = {}
        for one in [one for part in lists for one in part]:
            found.setdefault(getattr(one, field), []).append(one)
        return [_total(same) for same in found.values()]

    return apply


def _furthest_behind(lists: Sequence[list[ArchivedQueue]]) -> list[ArchivedQueue]:
    found = [one for part in lists for one in part]
    return heapq.nlargest(ARCHIVED_QUEUES_MAX, found, key=lambda one: one.behind)


def _lately(lists: Sequence[list[SdvRequest]]) -> list[SdvRequest]:
    found: list[SdvRequest] = _same("request_id")(lists)
    return heapq.nlargest(REQUESTS_PER_SCRAPE_MAX, found, key=lambda one: one.last_trigger_ms)


def _range(ranges: Sequence[EcqRange | str]) -> EcqRange | str:
    """From the first to the last in the order of the table, which is that of digests."""
    found = [one for one in ranges if isinstance(one, EcqRange)]
    if not found:
        return ranges[0]
    ends = [end for one in found for end in (one.first, one.last)]
    ends.sort(key=lambda end: (digest(end.clientid.encode()), end.seqno))
    return EcqRange(ends[0], ends[-1])


RULES: Final[Mapping[type[Struct], Mapping[str, Rule]]] = {
    Readiness: {"ready": all, "reasons": _joined},
    Status: {
        "started_at_ms": min,
        "uptime_s": max,
        "addresses": lambda parts: parts[0],
        **dict.fromkeys(("connections", "sessions", "subscriptions"), max),
    },
    ClientInfo: {
        **dict.fromkeys(("protocol_level", "connected_at_ms"), lambda parts: parts[0]),
        **dict.fromkeys(("keepalive_s", "session_expiry_s", "subscriptions"), max),
    },
    Histogram: {"bounds": lambda parts: max(parts, key=len)},
    MetricsSnapshot: {
        "ready": all,
        "started_at_s": min,
        **dict.fromkeys(("connections", "sessions", "sessions_persistent", "subscriptions"), max),
        "connects": max,
        "disconnects_by_reason": _most_by_key,
        "loop_lag_s": max,
        "disk_free_bytes": min,
        **dict.fromkeys(("resident_memory_bytes", "cpu_s", "open_files", "open_files_max"), max),
        "child_restarts": _most_by_key,
        **dict.fromkeys(("audit_entries", "audit_failures"), max),
        "queue_metrics": _same("queue"),
        "cluster": lambda parts: parts[0],
    },
    QueueMetrics: {
        **dict.fromkeys(("latency_p50_s", "latency_p99_s", "oldest_age_s"), _known(max)),
        "consumers_by_group": _most_by_key,
        "depth_max": max,
        "asleep": all,
    },
    QueueSummary: {"partitions": max, "groups": max, "consumers": max},
    QueueStats: {
        "partitions": _same("partition"),
        "groups": _same("group"),
        **dict.fromkeys(("latency_p50_s", "latency_p99_s"), _known(max)),
    },
    PartitionStats: {"partition": max, "first_offset": min, "next_offset": max},
    GroupStats: {"consumers": max},
    ConsumerInfo: {"partitions": _joined, "last_heartbeat_ms": max},
    LettersDone: {"more": any},
    MqFigures: {"queues": max, "left_out": max},
    MqStats: {"subscribers": max, "oldest_age_ms": max},
    EcqStatus: {"messages": _range, "consumer_states": _range},
    EcqGcAnswer: {"started": any},
    SdvGcAnswer: {"started": any},
    SdvStatus: {"unique_payloads": max},  # data are everywhere
    SdvFigures: {"unique_payloads": max, "requests": _lately},
    SdvRequest: {"last_trigger_ms": max},
    ArchiveLag: {"queues": _furthest_behind, "alarm": any, "last_commit_ms": max},
    ArchiveFigures: {"alarm": any, "told_at_s": max},
}
