"""Housekeeping of a lake: last values, fewer and larger files, no files nobody needs.

Every step commits as it goes. A run which is stopped or dies has done what it has committed, and
the next one goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from queuelake.pipeline.failpoint import failpoint
from queuelake.pipeline.jobs import fold, reprocess
from queuelake.pipeline.jobs.job import JobContext, Summary
from queuelake.pipeline.lake import definitions, sweep
from queuelake.pipeline.lake.files import DataFile
from queuelake.pipeline.lake.lake import Lake
from queuelake.pipeline.lake.lease import HeldLease
from queuelake.pipeline.lake.rewrite import rewrite
from queuelake.pipeline.lake.table import LakeTable

MERGED: Final = (*definitions.ARCHIVED.values(), definitions.CURRENT, definitions.QUARANTINE)
COMMIT_BYTES: Final = 1024 * 1024 * 1024  # files are merged, and committed, up to so much at a time
COMMIT_GROUPS: Final = 1000


class Options(Struct, frozen=True):
    file_bytes: int = 128 * 1024 * 1024  # files are merged up to this size
    vacuum_hours: int = 168  # how far back earlier versions can be read
    wait_s: float = 600.0


def run(context: JobContext, options: Options) -> Summary:
    lake = Lake(context.lake)
    with lake.lease(context.connection, context.id, options.wait_s) as lease:
        for definition in MERGED:
            sweep.sweep(lake.table(definition), lease)
        reprocess.finish(context.spark, lake, lease)
        context.progress.message = "last values"
        folded = fold.fold(context.spark, lake, lease, context.check)
        context.progress.add(folded)
        merged = removed = 0
        for definition in MERGED:
            context.progress.message = f"small files of {definition.name}"
            merged += merge(context, lake.table(definition), lease, options.file_bytes)
        for definition in MERGED:
            context.check()
            context.progress.message = f"old files of {definition.name}"
            removed += sweep.vacuum(lake.table(definition), lease, options.vacuum_hours)
    detail: dict[str, object] = {
        "rows folded": folded,
        "files merged": merged,
        "files removed": removed,
    }
    return Summary(f"{lake.uri} is tidy", detail)


def merge(context: JobContext, table: LakeTable, lease: HeldLease, file_bytes: int) -> int:
    """Put small files of the same partition together; how many there were."""
    merged = 0
    for groups in portions(mergeable(table.files(), file_bytes)):
        context.check()
        rewrite(context.spark, table, groups, lease)
        failpoint("compact:after_merge")
        merged += sum(len(group) for group in groups)
        context.progress.add(sum(file.rows for group in groups for file in group))
    return merged


def mergeable(files: list[DataFile], file_bytes: int) -> Iterator[list[DataFile]]:
    """Groups of files which together make about one: of one queue and date, in their order."""
    alike: dict[tuple[str | None, ...], list[DataFile]] = {}
    for file in files:
        if file.size < file_bytes * 3 // 4:
            key = (*file.partition.values(), file.bounds.queue_id)
            alike.setdefault(key, []).append(file)
    for some in alike.values():
        group: list[DataFile] = []
        for file in sorted(some, key=lambda file: (file.bounds.seqno_min, file.path)):
            if group and sum(one.size for one in group) + file.size > file_bytes:
                if len(group) > 1:
                    yield group
                group = []
            group.append(file)
        if len(group) > 1:
            yield group


def portions(groups: Iterator[list[DataFile]]) -> Iterator[list[list[DataFile]]]:
    portion: list[list[DataFile]] = []
    size = 0
    for group in groups:
        portion.append(group)
        size += sum(file.size for file in group)
        if size >= COMMIT_BYTES or len(portion) >= COMMIT_GROUPS:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
