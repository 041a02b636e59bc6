from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from queuelake.admin.metrics import SnapshotCollector
from queuelake.control import MetricsSnapshot
from tests.api.live import LiveAdmin

NAMES = [
    "queuelake_connections",
    "queuelake_sessions",
    "queuelake_sessions_persistent",
    "queuelake_subscriptions",
    "queuelake_retained_messages",
    "queuelake_messages_received_total",
    "queuelake_messages_sent_total",
    "queuelake_messages_dropped_total",
    "queuelake_bytes_received_total",
    "queuelake_bytes_sent_total",
    "queuelake_publish_refused_total",
    "queuelake_commit_duration_seconds",
    "queuelake_commit_group_messages",
    "queuelake_commit_failures_total",
    "queuelake_loop_lag_seconds",
    "queuelake_store_bytes",
    "queuelake_store_map_bytes",
    "queuelake_resident_memory_bytes",
    "queuelake_connects_total",
    "queuelake_disconnects_total",
    "queuelake_build_info",
    "queuelake_child_restarts_total",
]


def test_the_text_parses_and_holds_every_metric_with_help(admin: LiveAdmin) -> None:
    answer = admin.fetch("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    text = answer.body.decode()
    assert re.findall(r"^# HELP (\w+) \S", text, re.M) == re.findall(r"^# TYPE (\w+) ", text, re.M)
    assert sorted(re.findall(r"^# HELP (\w+) \S", text, re.M)) == sorted(NAMES)
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in parse(text)
        for sample in family.samples
    }
    assert samples[("queuelake_connections",)] == 9
    assert samples[("queuelake_messages_received_total", "2")] == 3
    assert samples[("queuelake_messages_dropped_total", "queue_full")] == 7
    assert samples[("queuelake_bytes_received_total",)] == 1 << 40
    assert samples[("queuelake_commit_duration_seconds_bucket", "0.01")] == 8
    assert samples[("queuelake_commit_duration_seconds_bucket", "+Inf")] == 10
    assert samples[("queuelake_commit_duration_seconds_count",)] == 10
    assert samples[("queuelake_commit_duration_seconds_sum",)] == 0.5
    assert samples[("queuelake_commit_group_messages_bucket", "10.0")] == 2
    assert samples[("queuelake_child_restarts_total", "admin")] == 1
    info = [sample for family in parse(text) for sample in family.samples if "info" in sample.name]
    assert info[0].labels == {"version": "1.2.3", "compiled": "true"}


def test_openmetrics_is_given_to_those_who_ask(admin: LiveAdmin) -> None:
    accept = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
    answer = admin.fetch("/metrics", headers=accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert len(list(parse_openmetrics(answer.body.decode()))) == len(NAMES)


def test_a_broker_that_counted_nothing_yet_has_all_families() -> None:
    families = list(SnapshotCollector(MetricsSnapshot("0", False)).collect())
    assert len(families) == len(NAMES)


def test_the_documentation_lists_the_same_names() -> None:
    text = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    assert sorted(re.findall(r"^\| `(queuelake_\w+)", text, re.M)) == sorted(NAMES)
