from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from queuelake.admin.metrics import SnapshotCollector
from queuelake.control import MetricsSnapshot
from queuelake.control_cluster import ClusterFigures
from tests.api.live import LiveAdmin, fetch

DOCS = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
# The table of the documentation: name -> type and labels.
DOCUMENTED = {
    name: (kind, re.findall(r"`(\w+)`", labels))
    for name, kind, labels in re.findall(
        r"^\| `((?:queuelake|mqtt_queue|ecq|sdv)_\w+)` \| (\w+) \|([^|]*)\|", DOCS, re.M
    )
}
LABELS = ("reason", "group", "quantile")


def test_the_text_parses_and_holds_every_metric_of_the_documentation_with_help(
    admin: LiveAdmin,
) -> None:
    answer = admin.fetch("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    text = answer.body.decode()
    assert re.findall(r"^# HELP (\w+) \S", text, re.M) == re.findall(r"^# TYPE (\w+) ", text, re.M)
    assert sorted(re.findall(r"^# HELP (\w+) \S", text, re.M)) == sorted(DOCUMENTED)
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
    assert samples[("queuelake_cluster_owner",)] == 1
    assert samples[("queuelake_cluster_lag", "b")] == 7
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
        ("mqtt_queue_depth_max", image, None, None, None): 100,
        ("mqtt_queue_ready", image, None, None, None): 3,
        ("mqtt_queue_in_flight", image, None, None, None): 2,
        ("mqtt_queue_retrying", image, None, None, None): 0,
        ("mqtt_queue_delayed", image, None, None, None): 0,
        ("mqtt_queue_oldest_age_seconds", image, None, None, None): 1.5,
        ("mqtt_queue_enqueue_total", image, None, None, None): 100,
        ("mqtt_queue_dequeue_total", image, None, None, None): 97,
        ("mqtt_queue_ack_total", image, None, None, None): 90,
        ("mqtt_queue_nack_total", image, None, None, None): 4,
        ("mqtt_queue_redelivered_total", image, None, None, None): 6,
        ("mqtt_queue_timed_out_total", image, None, None, None): 2,
        ("mqtt_queue_expired_total", image, None, None, None): 1,
        ("mqtt_queue_dropped_total", image, None, None, None): 3,
        ("mqtt_queue_purged_total", image, None, None, None): 0,
        ("mqtt_queue_refused_total", image, None, None, None): 0,
        ("mqtt_queue_duplicates_total", image, None, None, None): 0,
        ("mqtt_queue_dlq_total", image, "max_retries", None, None): 2,
        ("mqtt_queue_dlq_total", image, "rejected", None, None): 1,
        ("mqtt_queue_active_consumers", image, None, "workers", None): 3,
        ("mqtt_queue_active_consumers", image, None, "audit", None): 0,
        ("mqtt_queue_delivery_latency_seconds", image, None, None, "0.5"): 0.002,
        ("mqtt_queue_delivery_latency_seconds", image, None, None, "0.99"): 0.25,
    }
    # One which delivered nothing yet has no latency; one without a limit no depth_max.
    assert not {name[0] for name in samples if name[1] == odd} & {
        "mqtt_queue_delivery_latency_seconds",
        "mqtt_queue_depth_max",
        "mqtt_queue_oldest_age_seconds",
    }


def test_openmetrics_is_given_to_those_who_ask(admin: LiveAdmin) -> None:
    accept = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
    answer = admin.fetch("/metrics", headers=accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert len(list(parse_openmetrics(answer.body.decode()))) == len(DOCUMENTED)


def test_refused_requests_are_counted(admin: LiveAdmin) -> None:
    assert fetch(admin.port, "/metrics", authorization="Bearer nobody:knows").status == 401
    text = admin.fetch("/metrics").body.decode()
    assert 'queuelake_api_refused_total{reason="bad_api_key"} 1.0' in text


def test_the_documentation_has_every_metric_with_its_type_and_labels() -> None:
    """Also: a broker that counted nothing yet has all families, each with help."""
    snapshot = MetricsSnapshot("0", False, cluster=[ClusterFigures(), ClusterFigures(shard=1)])
    families = list(SnapshotCollector(snapshot, {}).collect())
    found = {}
    for family in families:
        assert family.documentation, family.name
        kind = {"info": "gauge", "unknown": "untyped"}.get(family.type, family.type)
        ending = {"counter": "_total", "info": "_info"}.get(family.type, "")
        found[family.name + ending] = kind, list(getattr(family, "_labelnames", ()))
    # What the library has no class for says its labels with its samples.
    found["queuelake_build_info"][1].extend(["version", "compiled"])
    found["mqtt_queue_delivery_latency_seconds"][1].extend(["queue", "quantile"])
    assert found == DOCUMENTED


def test_a_single_node_tells_nothing_of_a_cluster() -> None:
    families = SnapshotCollector(MetricsSnapshot("0", False), {}).collect()
    assert not [one.name for one in families if "cluster" in one.name]


def test_names_are_as_prometheus_wants_them() -> None:
    """What `promtool check metrics` looks at, but for two names which a contract gives."""
    contract = {"queuelake_mq_insert_latency_ms", "sdv_missing_data"}
    for name, (kind, labels) in DOCUMENTED.items():
        assert (kind == "counter") == name.endswith("_total"), name
        assert not name.endswith(("_count", "_sum", "_bucket")), name
        assert not set(labels) & {"le", "instance", "job"}, name
        if name not in contract:
            assert kind != "untyped", name
            assert not re.search(r"_(ms|milliseconds|minutes|kb|mb|kilobytes)(_|$)", name), name
