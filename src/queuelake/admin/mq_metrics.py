"""The metrics of message queues: by class for all of them, by name for the deepest.

The broker chooses which queues a scrape names; a queue of any name is only ever a label here.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from queuelake.control_mq import INSERT_LATENCY_BOUNDS_MS, MqFigures
from queuelake.control_queues import OTHER

# The field of MqClassFigures, which is also the name of the metric, and what it counts.
CLASS_COUNTERS = {
    "received_messages": "Messages which matched the filter of a queue, once for each queue",
    "inserted_messages": "Messages stored",
    "insert_errors": "Messages which could not be stored",
}
# The field of MqStats, which is also the name of the metric, and what it is.
GAUGES = {
    "messages": "Messages in the queue",
    "ready": "Messages waiting for a subscriber",
    "in_flight": "Messages delivered and not acknowledged",
    "subscribers": "Subscribers attached",
    "bytes": "Bytes of the messages in the queue",
}
COUNTERS = {
    "received": "Messages which matched the filter",
    "inserted": "Messages stored",
    "key_errors": "Messages without a key, not stored",
    "delivered": "Deliveries to subscribers, repeated ones too",
    "redispatched": "Deliveries which were not the first",
    "rejected": "Deliveries answered with a failure",
    "acked": "Messages acknowledged",
    "expired": "Messages kept for the retention period, and deleted",
    "dropped": "Messages deleted because of a limit",
}


def mq_families(figures: MqFigures) -> Iterator[Metric]:
    yield GaugeMetricFamily("queuelake_mq_queues", "Message queues", value=figures.queues)
    text = "Message queues whose figures are in the sum `(other)` only"
    yield GaugeMetricFamily("queuelake_mq_queues_left_out", text, value=figures.left_out)
    for field, text in CLASS_COUNTERS.items():
        counter = CounterMetricFamily(f"queuelake_mq_{field}", text, labels=["class"])
        for name, counted in figures.classes.items():
            counter.add_metric([name], getattr(counted, field))
        yield counter
    yield _insert_latency(figures)
    for field, text in GAUGES.items():
        gauge = GaugeMetricFamily(f"queuelake_mq_{field}", text, labels=["queue"])
        for name, stats in figures.named.items():
            gauge.add_metric([name], getattr(stats, field))
        yield gauge
    yield _oldest_age(figures)
    for field, text in COUNTERS.items():
        counter = CounterMetricFamily(f"queuelake_mq_{field}", text, labels=["queue"])
        for name, stats in figures.named.items():
            counter.add_metric([name], getattr(stats, field))
        yield counter


def _insert_latency(figures: MqFigures) -> Metric:
    text = "Milliseconds from a publish to its message being stored"
    family = HistogramMetricFamily("queuelake_mq_insert_latency_ms", text, labels=["class"])
    bounds = [*(repr(bound) for bound in INSERT_LATENCY_BOUNDS_MS), "+Inf"]
    for name, counted in figures.classes.items():
        total = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip(bounds, counted.latency_counts, strict=True):
            total += count
            buckets.append((bound, total))
        family.add_metric([name], buckets, counted.latency_sum_ms)
    return family


def _oldest_age(figures: MqFigures) -> Metric:
    text = "Age of the oldest message; 0 when there is none"
    family = GaugeMetricFamily("queuelake_mq_oldest_age_seconds", text, labels=["queue"])
    for name, stats in figures.named.items():
        if name != OTHER:  # ages have no sum
            family.add_metric([name], stats.oldest_age_ms / 1000)
    return family
