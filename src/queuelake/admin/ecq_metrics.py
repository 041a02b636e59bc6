"""The metrics of device mailboxes: of all together, because there may be millions."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from queuelake.control_ecq import EcqFigures

# The field of EcqFigures, which is also the name of the metric, and what it is.
GAUGES = {
    "queues": "Device mailboxes in the store",
    "attached": "Owners which read their mailbox now",
}
COUNTERS = {
    "writes": "Entries written",
    "compacted": "Entries replaced by a newer one of their key",
    "delivered": "Deliveries to owners, repeated ones too",
    "acked": "Deliveries acknowledged",
    "rejected": "Deliveries answered with a failure",
    "dead_lettered": "Rejected entries moved to a dead-letter queue",
    "expired": "Entries which became too old, and were deleted",
    "direct_publish_rejected": "Publishes to a topic which only the broker publishes to",
    "polls": "Looks into a mailbox without a hint that there is something new",
    "rewinds": "Positions moved by a rewind",
    "gc_runs": "Garbage collections begun",
}


def ecq_families(figures: EcqFigures) -> Iterator[Metric]:
    for field, text in GAUGES.items():
        yield GaugeMetricFamily(f"ecq_{field}", text, value=getattr(figures, field))
    for field, text in COUNTERS.items():
        yield CounterMetricFamily(f"ecq_{field}", text, value=getattr(figures, field))
    errors = CounterMetricFamily(
        "ecq_write_errors", "Writes refused or failed, by reason", labels=["reason"]
    )
    for reason, count in figures.write_errors_by_reason.items():
        errors.add_metric([reason], count)
    yield errors
