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
    "queuelake_queues",
    "queuelake_webhook_alerts_total",
    "mqtt_queue_depth",
    "mqtt_queue_in_flight",
    "mqtt_queue_enqueue_total",
    "mqtt_queue_dequeue_total",
    "mqtt_queue_ack_total",
    "mqtt_queue_nack_total",
    "mqtt_queue_redelivered_total",
    "mqtt_queue_expired_total",
    "mqtt_queue_dropped_total",
    "mqtt_queue_dlq_total",
    "mqtt_queue_active_consumers",
    "mqtt_queue_delivery_latency_seconds",
    "queuelake_mq_queues",
    "queuelake_mq_received_messages_total",
    "queuelake_mq_inserted_messages_total",
    "queuelake_mq_insert_errors_total",
    "queuelake_mq_insert_latency_ms",
    "queuelake_mq_messages",
    "queuelake_mq_ready",
    "queuelake_mq_in_flight",
    "queuelake_mq_subscribers",
    "queuelake_mq_bytes",
    "queuelake_mq_oldest_age_seconds",
    "queuelake_mq_received_total",
    "queuelake_mq_inserted_total",
    "queuelake_mq_key_errors_total",
    "queuelake_mq_delivered_total",
    "queuelake_mq_redispatched_total",
    "queuelake_mq_rejected_total",
    "queuelake_mq_acked_total",
    "queuelake_mq_expired_total",
    "queuelake_mq_dropped_total",
    "queuelake_ecq_queues",
    "queuelake_ecq_attached",
    "queuelake_ecq_writes_total",
    "queuelake_ecq_compacted_total",
    "queuelake_ecq_delivered_total",
    "queuelake_ecq_acked_total",
    "queuelake_ecq_rejected_total",
    "queuelake_ecq_dead_lettered_total",
    "queuelake_ecq_expired_total",
    "queuelake_ecq_direct_publish_rejected_total",
    "queuelake_ecq_polls_total",
    "queuelake_ecq_rewinds_total",
    "queuelake_ecq_gc_runs_total",
    "queuelake_ecq_write_errors_total",
    "queuelake_archive_hold_bytes",
    "queuelake_archive_hold_bytes_max",
    "queuelake_archive_alarm",
    "queuelake_archive_lost_messages_total",
    "queuelake_archive_lag_messages",
    "queuelake_sdv_pending",
    "queuelake_sdv_inflight",
    "queuelake_sdv_unique_payloads",
    "queuelake_sdv_triggers_total",
    "queuelake_sdv_trigger_invalid_total",
    "queuelake_sdv_acked_total",
    "queuelake_sdv_rejected_total",
    "queuelake_sdv_expired_total",
    "queuelake_sdv_dropped_total",
    "queuelake_sdv_dead_lettered_total",
    "queuelake_sdv_gc_runs_total",
    "queuelake_sdv_missing_data",
    "queuelake_sdv_dispatched_total",
    "queuelake_sdv_time_to_ack_seconds",
    "queuelake_sdv_request_rows",
]
LABELS = ("reason", "group", "quantile")


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
    assert samples[("queuelake_webhook_alerts_total", "sent")] == 2
    info = [sample for family in parse(text) for sample in family.samples if "info" in sample.name]
    assert info[0].labels == {"version": "1.2.3", "compiled": "true"}


def test_the_metrics_of_a_queue_have_the_names_of_the_contract(admin: LiveAdmin) -> None:
    """Acceptance 20."""
    samples = {
        (sample.name, *(sample.labels.get(label) for label in ("queue", *LABELS))): sample.value
        for family in parse(admin.fetch("/metrics").body.decode())
        for sample in family.samples
        if sample.name.startswith("mqtt_queue_")
    }
    image, odd = "$queue/tasks/image", '$queue/a"b'
    assert {name: value for name, value in samples.items() if name[1] == image} == {
        ("mqtt_queue_depth", image, None, None, None): 5,
        ("mqtt_queue_in_flight", image, None, None, None): 2,
        ("mqtt_queue_enqueue_total", image, None, None, None): 100,
        ("mqtt_queue_dequeue_total", image, None, None, None): 97,
        ("mqtt_queue_ack_total", image, None, None, None): 90,
        ("mqtt_queue_nack_total", image, None, None, None): 4,
        ("mqtt_queue_redelivered_total", image, None, None, None): 6,
        ("mqtt_queue_expired_total", image, None, None, None): 1,
        ("mqtt_queue_dropped_total", image, None, None, None): 3,
        ("mqtt_queue_dlq_total", image, "max_retries", None, None): 2,
        ("mqtt_queue_dlq_total", image, "rejected", None, None): 1,
        ("mqtt_queue_active_consumers", image, None, "workers", None): 3,
        ("mqtt_queue_active_consumers", image, None, "audit", None): 0,
        ("mqtt_queue_delivery_latency_seconds", image, None, None, "0.5"): 0.002,
        ("mqtt_queue_delivery_latency_seconds", image, None, None, "0.99"): 0.25,
    }
    # One which delivered nothing yet has no latency.
    assert len([name for name in samples if name[1] == odd]) == 9


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
    assert sorted(re.findall(r"^\| `((?:queuelake|mqtt_queue)_\w+)", text, re.M)) == sorted(NAMES)
