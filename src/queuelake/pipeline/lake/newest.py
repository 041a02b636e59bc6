"""Which row is the last one of its key. Pure: Arrow tables in, Arrow tables out.

Within a shard the greater sequence is the newer row. The same key can be in two shards only when
its queue was made anew or got more partitions; then the later queue wins, and in one queue the
later time.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

IDENTITY: Final = ("queue", "owner", "key")
SHARD: Final = ("queue_id", "partition")
ROW: Final = "_row"


def newest_of_shard(rows: pa.Table) -> pa.Array:
    """The positions of the last row of each key, shard by shard, in ascending order."""
    return last_of(rows, (*IDENTITY, *SHARD), [("seqno", "ascending")])


def newest(rows: pa.Table, generations: dict[str, int]) -> pa.Table:
    """The last row of each key; `generations` orders queues which had the same name in turn."""
    rows = rows.take(newest_of_shard(rows))
    found = rows["queue_id"].unique()
    ranks = pa.array([generations.get(queue_id, 0) for queue_id in found.to_pylist()], pa.int64())
    rank = ranks.take(pc.index_in(rows["queue_id"].combine_chunks(), found))
    ordered = rows.append_column("_rank", rank)
    order = [("_rank", "ascending"), ("ts", "ascending"), ("seqno", "ascending")]
    return rows.take(last_of(ordered, IDENTITY, order))


def last_of(rows: pa.Table, by: tuple[str, ...], order: list[tuple[str, str]]) -> pa.Array:
    """For each group the position of its last row in this order."""
    if rows.num_rows == 0:
        return pa.array([], pa.int64())
    rows = rows.select(sorted({*by, *(name for name, _ in order)}))
    keys = [name for name in by if not constant(rows[name])]
    positions = None
    if not ascending(rows, order):
        positions = pc.sort_indices(rows, sort_keys=order)
        rows = rows.take(positions)
    numbers = pa.array(np.arange(rows.num_rows, dtype=np.int64))
    if not keys:
        last = numbers[-1:]
    else:
        grouped = rows.select(keys).append_column(ROW, numbers).group_by(keys)
        last = grouped.aggregate([(ROW, "max")])[f"{ROW}_max"].combine_chunks()
    if positions is not None:
        last = positions.take(last)
    return pc.take(last, pc.sort_indices(last))


def constant(column: pa.ChunkedArray) -> bool:
    """Whether all rows have the same value, as those of one file mostly do."""
    if column.null_count:
        return bool(column.null_count == len(column))
    return len(column) == 0 or bool(pc.all(pc.equal(column, column[0])).as_py())


def ascending(rows: pa.Table, order: list[tuple[str, str]]) -> bool:
    """Whether rows are in this order already, as they are when the archive wrote them."""
    if len(order) > 1 or rows.num_rows < 2:
        return bool(rows.num_rows < 2)
    column = rows[order[0][0]].combine_chunks()
    return bool(pc.all(pc.greater_equal(column[1:], column[:-1])).as_py())


def without_tombstones(rows: pa.Table) -> pa.Table:
    """Rows which say something: not those with an empty payload and `tombstone=true`."""
    empty = pc.equal(pc.binary_length(rows["payload"]), 0)
    if not pc.any(empty).as_py():
        return rows
    mark = pc.map_lookup(rows["properties"], "tombstone", "last")
    dead = pc.and_(empty, pc.fill_null(pc.equal(mark, "true"), False))
    return rows.filter(pc.invert(pc.fill_null(dead, False)))
