"""The metrics of vehicle fan-out: of all vehicles together, and the progress of the last requests.

The names are those of the contract. One of them, `missing_data`, counts without the ending a
counter has, so it is given no type.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    UnknownMetricFamily,
)

from queuelake.control_sdv import TIME_TO_ACK_BOUNDS_S, SdvFigures

# The field of SdvFigures, which is also the name of the metric, and what it is.
GAUGES = {
    "pending": "Rows which wait for a vehicle",
    "inflight": "Messages sent to a vehicle and not acknowledged",
    "unique_payloads": "Payloads in the store",
}
COUNTERS = {
    "triggers": "Triggers accepted",
    "trigger_invalid": "Triggers refused because they are wrong",
    "acked": "Messages acknowledged by a vehicle",
    "rejected": "Messages answered with a failure by a vehicle",
    "expired": "Rows which became too old",
    "dropped": "Rows replaced, or over the limit of a vehicle",
    "dead_lettered": "Rejected rows moved to the dead-letter queue",
    "gc_runs": "Garbage collections begun",
}
STATES = ("pending", "in_flight", "acked", "rejected", "expired", "cancelled", "dropped")


def sdv_families(figures: SdvFigures) -> Iterator[Metric]:
    for field, text in GAUGES.items():
        yield GaugeMetricFamily(f"sdv_{field}", text, value=getattr(figures, field))
    for field, text in COUNTERS.items():
        yield CounterMetricFamily(f"sdv_{field}", text, value=getattr(figures, field))
    missing = "Rows passed over because their data is not there"
    yield UnknownMetricFamily("sdv_missing_data", missing, value=figures.missing_data)
    dispatched = CounterMetricFamily(
        "sdv_dispatched", "Messages sent to vehicles, by why", labels=["trigger"]
    )
    for trigger, count in figures.dispatched_by_trigger.items():
        dispatched.add_metric([trigger], count)
    yield dispatched
    yield _time_to_ack(figures)
    yield _progress(figures)


def _time_to_ack(figures: SdvFigures) -> Metric:
    total = 0
    buckets: list[tuple[str, float]] = []
    bounds = [*(repr(bound) for bound in TIME_TO_ACK_BOUNDS_S), "+Inf"]
    for bound, count in zip(bounds, figures.time_to_ack_counts, strict=True):
        total += count
        buckets.append((bound, total))
    return HistogramMetricFamily(
        "sdv_time_to_ack_seconds",
        "From the trigger to the acknowledgement of the vehicle",
        buckets=buckets,
        sum_value=figures.time_to_ack_sum_s,
    )


def _progress(figures: SdvFigures) -> Metric:
    family = GaugeMetricFamily(
        "sdv_request_rows",
        "Rows of the requests used last, by what became of them",
        labels=["request", "state"],
    )
    for request in figures.requests:
        for state in STATES:
            family.add_metric([request.request_id, state], getattr(request, state))
    return family
