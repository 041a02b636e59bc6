"""The metrics of queues: one family for each name, one sample for each queue.

The names are those of the contract, without the prefix of the others. The broker chooses which
queues a scrape holds; a queue of any name is only ever a label here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from queuelake.control_queues import QueueMetrics

# The field of QueueMetrics, the name of the metric, and what it is.
GAUGES = (
    ("in_flight", "in_flight", "Messages delivered and not settled"),
    ("ready", "ready", "Messages which wait for a consumer, of the group furthest behind"),
    ("retrying", "retrying", "Messages which wait for their next try"),
    ("delayed", "delayed", "Messages which are not visible before their time"),
)
COUNTERS = (
    ("enqueued", "enqueue", "Messages accepted"),
    ("dequeued", "dequeue", "Deliveries to consumers, repeated ones too"),
    ("acked", "ack", "Messages acknowledged by a group"),
    ("nacked", "nack", "Messages given back with $nack"),
    ("redelivered", "redelivered", "Deliveries which were not the first"),
    ("timed_out", "timed_out", "Deliveries which were not settled in time"),
    ("expired", "expired", "Messages which lived longer than their TTL"),
    ("dropped", "dropped", "Messages deleted unread"),
    ("purged", "purged", "Messages deleted by an administrator"),
    ("refused", "refused", "Publishes refused because the queue is full"),
    ("duplicates", "duplicates", "Publishes not stored because their message was stored before"),
)


def queue_families(queues: Sequence[QueueMetrics], left_out: int) -> Iterator[Metric]:
    text = "Durable queues whose figures are in the sum `(other)` only"
    yield GaugeMetricFamily("queuelake_queues_left_out", text, value=left_out)
    yield _gauge(queues, "depth", "depth", "Messages which some group has not settled yet")
    yield _oldest_age(queues)
    # A counter of a queue which sleeps would fall to 0, and a rate would rise out of that.
    queues = [queue for queue in queues if not queue.asleep]
    for field, name, text in GAUGES:
        yield _gauge(queues, field, name, text)
    yield _limits(queues)
    for field, name, text in COUNTERS:
        counter = CounterMetricFamily(f"mqtt_queue_{name}", text, labels=["queue"])
        for queue in queues:
            counter.add_metric([queue.queue], getattr(queue, field))
        yield counter
    yield _dead_letters(queues)
    yield _consumers(queues)
    yield _latency(queues)


def _gauge(queues: Sequence[QueueMetrics], field: str, name: str, text: str) -> Metric:
    family = GaugeMetricFamily(f"mqtt_queue_{name}", text, labels=["queue"])
    for queue in queues:
        family.add_metric([queue.queue], getattr(queue, field))
    return family


def _oldest_age(queues: Sequence[QueueMetrics]) -> Metric:
    text = "Age of the oldest message which some group has not settled; 0 when there is none"
    family = GaugeMetricFamily("mqtt_queue_oldest_age_seconds", text, labels=["queue"])
    for queue in queues:
        if queue.oldest_age_s is not None:
            family.add_metric([queue.queue], queue.oldest_age_s)
    return family


def _limits(queues: Sequence[QueueMetrics]) -> Metric:
    text = "Messages the queue may hold; no sample where there is no limit"
    family = GaugeMetricFamily("mqtt_queue_depth_max", text, labels=["queue"])
    for queue in queues:
        if queue.depth_max:
            family.add_metric([queue.queue], queue.depth_max)
    return family


def _dead_letters(queues: Sequence[QueueMetrics]) -> Metric:
    labels = ["queue", "reason"]
    family = CounterMetricFamily("mqtt_queue_dlq", "Dead letters, by reason", labels=labels)
    for queue in queues:
        for reason, count in queue.dead_lettered_by_reason.items():
            family.add_metric([queue.queue, reason], count)
    return family


def _consumers(queues: Sequence[QueueMetrics]) -> Metric:
    labels = ["queue", "group"]
    family = GaugeMetricFamily("mqtt_queue_active_consumers", "Consumers connected", labels=labels)
    for queue in queues:
        for group, count in queue.consumers_by_group.items():
            family.add_metric([queue.queue, group], count)
    return family


def _latency(queues: Sequence[QueueMetrics]) -> Metric:
    # The family class of the library knows no quantiles.
    name = "mqtt_queue_delivery_latency_seconds"
    family = Metric(name, "From publish to first delivery", "summary")
    for queue in queues:
        for quantile, value_s in (("0.5", queue.latency_p50_s), ("0.99", queue.latency_p99_s)):
            if value_s is not None:
                family.add_sample(name, {"queue": queue.queue, "quantile": quantile}, value_s)
    return family
