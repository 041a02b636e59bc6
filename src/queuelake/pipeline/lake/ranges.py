"""Which rows a round of the archive takes. Pure: numbers in, numbers out.

A round is bounded in rows. Every shard gets an equal share of it, what one does not need goes to
the others; so a queue with a long backlog does not keep the others waiting. Shares are then cut
and packed into tasks of about the same length. Rows are counted by their sequences: those that
are gone already make a task shorter, never longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from queuelake.flight import Shard


class Slice(Struct, frozen=True, omit_defaults=True):
    """Sequences (after, upto] of one shard."""

    queue: str
    queue_id: str
    shard: int
    after: int
    upto: int
    # When the round before committed the rows which do not fit and then died: where they are.
    # What is left of this range goes to `messages`, whatever the schema says by now.
    settled: bool = False
    skip: list[int] = []

    @property
    def rows(self) -> int:
        return self.upto - self.after


class Reach(Struct, frozen=True):
    """How far a shard is in the lake, and how far it may get in this round."""

    shard: Shard
    committed: int
    upto: int  # at most

    @property
    def after(self) -> int:
        return max(self.committed, self.shard.after)

    @property
    def pending(self) -> int:
        return max(0, self.upto - self.after)


def source(shard: Shard) -> str:
    """The name of a shard among the application transactions of a table."""
    return f"archive:{shard.queue_id}:{shard.shard}"


def reaches(shards: Iterable[Shard], committed: Callable[[Shard], int]) -> list[Reach]:
    return [Reach(shard, committed(shard), shard.upto) for shard in shards]


def plan(reached: list[Reach], rows_max: int) -> list[Reach]:
    """Those which move in this round, and how far; together at most `rows_max` rows."""
    share = level([reach.pending for reach in reached], rows_max)
    moving = []
    for reach in reached:
        # Rows which are gone without having been archived cost nothing: the mark just passes.
        upto = min(reach.upto, reach.after + share)
        if upto > reach.committed:
            moving.append(Reach(reach.shard, reach.committed, upto))
    return moving


def level(pending: list[int], rows_max: int) -> int:
    """The greatest share with which all of them together stay within `rows_max`; at least 1."""
    left = rows_max
    waiting = sorted(pending)
    for position, rows in enumerate(waiting):
        share = left // (len(waiting) - position)
        if rows > share:
            return max(1, share)
        left -= rows
    return max(1, waiting[-1]) if waiting else 1


def task_rows(rows: int, parallelism: int, least: int = 20_000, most: int = 500_000) -> int:
    """How long a task should be: all cores work, and files are neither tiny nor endless."""
    return min(most, max(least, -(-rows // max(1, parallelism))))


def packed(slices: Iterable[Slice], rows_per_task: int) -> Iterator[list[Slice]]:
    """Slices as tasks: long ones are cut, short ones share a task with their neighbours."""
    task: list[Slice] = []
    room = rows_per_task
    for whole in sorted(slices, key=lambda part: (part.queue, part.queue_id, part.shard)):
        for part in cut(whole, rows_per_task):
            if part.rows > room and task:
                yield task
                task, room = [], rows_per_task
            task.append(part)
            room -= part.rows
    if task:
        yield task


def cut(whole: Slice, rows_max: int) -> Iterator[Slice]:
    after = whole.after
    while after < whole.upto:
        upto = min(whole.upto, after + rows_max)
        skip = [place for place in whole.skip if after < place <= upto]
        yield Slice(whole.queue, whole.queue_id, whole.shard, after, upto, whole.settled, skip)
        after = upto
