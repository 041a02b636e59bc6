"""What somebody should look at now: found in the figures, said in a line each."""

from __future__ import annotations

from typing import Final, NamedTuple

from queuelake import names
from queuelake.admin.console import human
from queuelake.admin.console.sampler import Sampler
from queuelake.control import MetricsSnapshot

FULL_SHARE: Final = 0.8
DISK_FREE_BYTES_MIN: Final = 512 * 1024 * 1024
LISTED_MAX: Final = 5


class Alarm(NamedTuple):
    """`queue` is the bare name of the queue it is about, or empty."""

    is_bad: bool
    text: str
    queue: str = ""


def alarms(sampler: Sampler) -> list[Alarm]:
    """The worst first; empty when all is well."""
    if sampler.problem:
        return [Alarm(True, f"The broker does not answer: {sampler.problem}")]
    found = [Alarm(True, f"Not ready: {reason}") for reason in sampler.readiness.reasons]
    if sampler.metrics is not None:
        found += _of_the_store(sampler.metrics)
        found += _of_queues(sampler.metrics)
    return found


def _of_the_store(metrics: MetricsSnapshot) -> list[Alarm]:
    found: list[Alarm] = []
    if metrics.commit_failures:
        text = f"{metrics.commit_failures:,} commits failed since the start; see the broker's log"
        found.append(Alarm(True, text))
    if 0 < metrics.disk_free_bytes < DISK_FREE_BYTES_MIN:
        found.append(Alarm(True, f"The disk has {human.size(metrics.disk_free_bytes)} left"))
    limit = metrics.store_bytes_max
    if limit and metrics.store_bytes > FULL_SHARE * limit:
        share = f"{human.size(metrics.store_bytes)} of {human.size(limit)}"
        found.append(Alarm(True, f"The store holds {share} (storage.map_size_bytes_max)"))
    if metrics.archive.alarm:
        held = human.size(metrics.archive.held_bytes)
        found.append(Alarm(True, f"{held} wait for the lake, near lake.archive_hold_bytes_max"))
    if metrics.archive.lost:
        found.append(Alarm(True, f"{metrics.archive.lost:,} messages were dropped unarchived"))
    return found


def _of_queues(metrics: MetricsSnapshot) -> list[Alarm]:
    full: list[Alarm] = []
    dead: list[Alarm] = []
    for one in metrics.queue_metrics:
        if not one.queue.startswith("$queue/"):
            continue  # the sum of those which are not named
        name = one.queue.removeprefix("$queue/")
        if names.is_dead_letter(name):
            if one.depth:
                origin = name.removeprefix(names.DEAD_LETTERS)
                text = f"{one.depth:,} dead letters of $queue/{origin}"
                dead.append(Alarm(False, text, origin))
        elif one.depth_max and one.depth > FULL_SHARE * one.depth_max:
            text = f"{one.queue} is nearly full: {one.depth:,} of {one.depth_max:,} messages"
            full.append(Alarm(True, text, name))
    return [*_listed(full, "queues are nearly full"), *_listed(dead, "queues have dead letters")]


def _listed(found: list[Alarm], words: str) -> list[Alarm]:
    more = len(found) - LISTED_MAX
    if more <= 0:
        return found
    return [*found[:LISTED_MAX], Alarm(found[0].is_bad, f"{more:,} more {words}")]
