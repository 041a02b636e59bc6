"""The metrics of the pipeline: how far the lake is behind, how much is held for it, the jobs."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from queuelake.control_pipeline import ArchiveFigures


def archive_families(figures: ArchiveFigures) -> Iterator[Metric]:
    for name, text, value in (
        ("hold_bytes", "Bytes of messages kept only for the archive", figures.held_bytes),
        ("hold_bytes_max", "The limit lake.archive_hold_bytes_max", figures.hold_bytes_max),
        ("alarm", "1 when 80 % of the limit is held", int(figures.alarm)),
    ):
        yield GaugeMetricFamily(f"queuelake_archive_{name}", text, value=value)
    yield CounterMetricFamily(
        "queuelake_archive_lost_messages",
        "Messages deleted before they were archived although that was promised",
        value=figures.lost,
    )
    lag = GaugeMetricFamily(
        "queuelake_archive_lag_messages",
        "Messages of an archived queue which the lake does not have",
        labels=["queue"],
    )
    for queue, count in figures.behind_by_queue.items():
        lag.add_metric([queue], count)
    yield lag
    yield GaugeMetricFamily(
        "queuelake_archive_last_commit_timestamp_seconds",
        "When the lake told last which messages it has; 0 when not since the start",
        value=figures.told_at_s,
    )
    jobs = GaugeMetricFamily(
        "queuelake_pipeline_jobs", "Jobs of the pipeline which are remembered", labels=["state"]
    )
    for state, count in figures.jobs_by_state.items():
        jobs.add_metric([state], count)
    yield jobs
