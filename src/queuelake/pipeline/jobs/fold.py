"""The last value of each key: rows of `messages` folded into `current`.

A fold takes only rows above what it has folded before, shard by shard, as the commits of `current`
say. Tasks look for the last row of each key among their files, Spark brings the same keys
together, and a second step writes the last of all. The files of a queue in `current` are replaced
as a whole, in the commit which also says how far the fold is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from queuelake.pipeline.failpoint import failpoint
from queuelake.pipeline.lake import definitions, tasks
from queuelake.pipeline.lake.files import DataFile, Writer, fitted
from queuelake.pipeline.lake.lake import Lake
from queuelake.pipeline.lake.lease import HeldLease
from queuelake.pipeline.lake.newest import newest, newest_of_shard, without_tombstones
from queuelake.pipeline.lake.rewrite import batches
from queuelake.pipeline.lake.table import Change, LakeTable, Move
from queuelake.pipeline.lake.tasks import Written, collected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMIT_ROWS: Final = 20_000_000  # queues are folded together up to so many
TASK_ROWS_MAX: Final = 2_500_000
TASK_BYTES_MAX: Final = 128 * 1024 * 1024
PLACE: Final = ["queue", "owner", "key", "queue_id", "partition", "seqno"]
REPROCESS: Final = "reprocess"


class Folded(Struct, frozen=True):
    """One queue: what is new in it, and what is known of it so far."""

    queue: str
    files: list[DataFile]
    current: list[DataFile]
    moves: dict[str, Move]
    after: dict[str, int]  # what was folded before, by `queue id:shard`

    @property
    def rows(self) -> int:
        return sum(file.rows for file in (*self.files, *self.current))


class Task(Struct, frozen=True):
    files: list[DataFile]
    table: str
    after: dict[str, int]


def fold(spark: SparkSession, lake: Lake, lease: HeldLease, check: tasks.Check) -> int:
    """Bring `current` up to `messages`; the number of rows which were looked at."""
    messages = lake.table(definitions.MESSAGES)
    current = lake.table(definitions.CURRENT)
    mend_value(messages, current, lease)
    reprocessed = Move(current.applied(REPROCESS), messages.applied(REPROCESS))
    generations = ordered_generations(messages.files())
    looked = 0
    together: list[Folded] = []
    queues = pending(messages, current, reprocessed.before)
    for position, queue in enumerate(queues):
        together.append(queue)
        last = position == len(queues) - 1
        if last or sum(one.rows for one in together) >= COMMIT_ROWS:
            check()
            moves = {REPROCESS: reprocessed} if last and reprocessed.after else {}
            fold_queues(spark, messages, current, together, generations, moves, lease)
            looked += sum(file.rows for one in together for file in one.files)
            together = []
    return looked


def pending(messages: LakeTable, current: LakeTable, reprocessed: int) -> list[Folded]:
    """Queues with rows which are not folded yet."""
    by_queue: dict[str, list[DataFile]] = {}
    for file in messages.files():
        by_queue.setdefault(file.partition["queue"] or "", []).append(file)
    known: dict[str, list[DataFile]] = {}
    for file in current.files():
        known.setdefault(file.partition["queue"] or "", []).append(file)
    found = []
    for queue, files in sorted(by_queue.items()):
        moves = {}
        for shard in sorted({shard for file in files for shard in shards_of(file)}):
            move = Move(current.applied(f"current:{shard}"), messages.applied(f"archive:{shard}"))
            if move.after > move.before:
                moves[f"current:{shard}"] = move
        # Rows which came back from quarantine are older than what was folded: look at all.
        again = any(run_of(file.tag) > reprocessed for file in files)
        if not moves and not again:
            continue
        after = {name.partition(":")[2]: move.before for name, move in moves.items()}
        news = files if again else [file for file in files if is_new(file, after)]
        found.append(Folded(queue, news, known.get(queue, []), moves, {} if again else after))
    return found


def shards_of(file: DataFile) -> Iterator[str]:
    for partition in range(file.bounds.partition_min, file.bounds.partition_max + 1):
        yield f"{file.bounds.queue_id}:{partition}"


def is_new(file: DataFile, after: dict[str, int]) -> bool:
    return any(
        after.get(shard, file.bounds.seqno_max) < file.bounds.seqno_max for shard in shards_of(file)
    )


def run_of(tag: str) -> int:
    """Which run of `reprocess` wrote a file; 0: none."""
    return int(tag[1:]) if tag.startswith("r") and tag[1:].isdigit() else 0


def ordered_generations(files: list[DataFile]) -> dict[str, int]:
    """Queues in the order in which their first message came."""
    first: dict[str, int] = {}
    for file in files:
        bounds = file.bounds
        first[bounds.queue_id] = min(bounds.ts_min_us, first.get(bounds.queue_id, bounds.ts_min_us))
    ordered = sorted(first, key=lambda queue_id: (first[queue_id], queue_id))
    return {queue_id: number for number, queue_id in enumerate(ordered)}


def mend_value(messages: LakeTable, current: LakeTable, lease: HeldLease) -> None:
    """`current` has the fields of `value` which `messages` has."""
    there = messages.schema()
    if "value" not in there.names:
        return
    field, have = there.field("value"), current.schema()
    if "value" not in have.names or not have.field("value").type.equals(field.type):
        current.extend(field, lease)


def fold_queues(
    spark: SparkSession,
    messages: LakeTable,
    current: LakeTable,
    queues: list[Folded],
    generations: dict[str, int],
    moves: dict[str, Move],
    lease: HeldLease,
) -> None:
    for queue in queues:
        moves = moves | queue.moves
    removes = [file for queue in queues for file in queue.current]
    adds = folded_files(spark, messages, current, queues, generations, lease.epoch)
    failpoint("compact:before_fold")
    current.commit(Change(adds, removes, moves), lease)


def folded_files(
    spark: SparkSession,
    messages: LakeTable,
    current: LakeTable,
    queues: list[Folded],
    generations: dict[str, int],
    epoch: int,
) -> list[DataFile]:
    from pyspark.sql.pandas.types import from_arrow_schema

    work = list(divided(queues, tasks.parallelism(spark)))
    if not work:
        return []
    roots = {table.definition.name: table.uri for table in (messages, current)}
    schema = current.schema()
    uri, definition = current.uri, current.definition

    def look(task: Task) -> Iterator[pa.RecordBatch]:
        for rows in last_rows(roots[task.table], task):
            yield from fitted(rows, schema).to_batches()

    def write(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = list(parts)
        if not found:
            return
        rows = pa.Table.from_batches(found)
        writer = Writer(uri, definition, schema, epoch)
        writer.write(without_tombstones(newest(rows, generations)))
        yield tasks.report([Written(definition.name, file) for file in writer.finish()])

    found = tasks.spread(spark, work, look, from_arrow_schema(schema))
    parts = max(tasks.parallelism(spark), sum(queue.rows for queue in queues) // TASK_ROWS_MAX)
    together = found.repartition(parts, "queue", "owner", "key")
    return [one.file for one in collected(together.mapInArrow(write, tasks.RESULT_DDL))]


def divided(queues: list[Folded], cores: int) -> Iterator[Task]:
    """Tasks as long as memory allows: the more of a key is together, the less has to travel."""
    rows = sum(queue.rows for queue in queues)
    rows_max = min(TASK_ROWS_MAX, max(100_000, -(-rows // cores)))
    for queue in queues:
        files = sorted(queue.files, key=lambda file: (file.bounds.queue_id, file.bounds.seqno_min))
        for part in chunks(files, rows_max):
            yield Task(part, "messages", queue.after)
        for part in chunks(queue.current, rows_max):
            yield Task(part, "current", {})


def chunks(files: list[DataFile], rows_max: int) -> Iterator[list[DataFile]]:
    part: list[DataFile] = []
    rows = size = 0
    for file in files:
        if part and (rows + file.rows > rows_max * 1.1 or size + file.size > TASK_BYTES_MAX):
            yield part
            part, rows, size = [], 0, 0
        part.append(file)
        rows, size = rows + file.rows, size + file.size
    if part:
        yield part


def last_rows(root: str, task: Task) -> Iterator[pa.Table]:
    """The last row of each key in these files: keys are looked at first, then rows are read."""
    places = pa.concat_tables(batches(root, task.files, PLACE))
    wanted = pc.is_valid(places["key"])
    if task.after:
        wanted = pc.and_(wanted, above(places, task.after))
    positions = pc.indices_nonzero(wanted)
    chosen = positions.take(newest_of_shard(places.take(positions)))
    mask = mask_of(chosen, places.num_rows)
    begin = 0
    for rows in batches(root, task.files):
        yield rows.filter(mask[begin : begin + rows.num_rows])
        begin += rows.num_rows


def above(places: pa.Table, after: dict[str, int]) -> pa.ChunkedArray:
    """Which rows are not folded yet."""
    found = None
    for shard, upto in after.items():
        queue_id, _, partition = shard.rpartition(":")
        same = pc.and_(
            pc.equal(places["queue_id"], queue_id), pc.equal(places["partition"], int(partition))
        )
        new = pc.and_(same, pc.greater(places["seqno"], upto))
        found = new if found is None else pc.or_(found, new)
    return found


def mask_of(positions: pa.Array, rows: int) -> pa.Array:
    mask = np.zeros(rows, dtype=bool)
    mask[positions.to_numpy()] = True
    return pa.array(mask)
