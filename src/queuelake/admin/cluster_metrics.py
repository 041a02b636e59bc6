"""The metrics of a node of a cluster; a single node has none of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from queuelake.control_cluster import ClusterFigures

# The field of ClusterFigures, the name of the metric, and what it is.
GAUGES = (
    ("is_owner", "owner", "1 on the node whose broker serves the clients of all"),
    ("epoch", "epoch", "The epoch of the last entry applied; each owner has a higher one"),
    ("position", "position", "The position of the log up to which this node has applied it"),
    ("lease_age_s", "lease_age_seconds", "How long ago this node has seen the lease renewed"),
)
COUNTERS = {
    "failovers": "Times this node became the owner",
    "fenced": "Times this node was the owner and lost that",
    "copies": "Stores copied from another node",
}


def cluster_families(figures: Sequence[ClusterFigures]) -> Iterator[Metric]:
    """One sample of each for a shard; the label `shard` is there when there are several."""
    if not figures:
        return
    labels = ["shard"] if len(figures) > 1 else []
    families: list[tuple[str, CounterMetricFamily | GaugeMetricFamily]] = [
        (field, GaugeMetricFamily(f"queuelake_cluster_{name}", text, labels=labels))
        for field, name, text in GAUGES
    ]
    families += [
        (field, CounterMetricFamily(f"queuelake_cluster_{field}", text, labels=labels))
        for field, text in COUNTERS.items()
    ]
    text = "Positions a node which is heard is behind"
    lag = GaugeMetricFamily("queuelake_cluster_lag", text, labels=["node", *labels])
    for one in figures:
        values = [str(one.shard)] if labels else []
        for field, family in families:
            family.add_metric(values, getattr(one, field))
        for node, behind in sorted(one.lag_by_node.items()):
            lag.add_metric([node, *values], behind)
    yield from [family for _, family in families]
    yield lag
