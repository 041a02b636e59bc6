"""The metrics of a node of a cluster; a single node has none of them."""

from __future__ import annotations

from collections.abc import Iterator

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


def cluster_families(figures: ClusterFigures | None) -> Iterator[Metric]:
    if figures is None:
        return
    for field, name, text in GAUGES:
        yield GaugeMetricFamily(f"queuelake_cluster_{name}", text, value=getattr(figures, field))
    for field, text in COUNTERS.items():
        value = getattr(figures, field)
        yield CounterMetricFamily(f"queuelake_cluster_{field}", text, value=value)
    lag = GaugeMetricFamily(
        "queuelake_cluster_lag", "Positions a node which is heard is behind", labels=["node"]
    )
    for node, behind in sorted(figures.lag_by_node.items()):
        lag.add_metric([node], behind)
    yield lag
