"""Vehicles of a fan-out batch, in the order of the store: by the hash of their names."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queuelake.errors import RefusedError
from queuelake.export.staged_columns import column
from queuelake.export.staged_rows import blocks
from queuelake.storage.prepared import PreparedIds, PreparedWriter
from queuelake.storage.sdv_tables import DIGEST_BYTES, NAME_BYTES_MAX

IDS_MAX: Final = 2_000_000  # of one batch: they are sorted in memory
BUCKETS: Final = 256


def prepare_ids(path: Path, staged: list[Path]) -> None:
    """Write the file for the broker; an id which comes twice is there once.

    Raises:
        RefusedError: one of them is no id.
    """
    parts: list[pa.Array] = []
    rows = 0
    for block in blocks(staged):
        parts.append(_checked(column(block, "id")))
        rows += block.num_rows
        if rows > IDS_MAX:
            raise RefusedError(f"batch of more than {IDS_MAX} ids: commit it in parts")
    names = pa.concat_arrays(parts) if parts else pa.array([], pa.binary())
    digests = _digests(names)
    # As two numbers each, so that they are sorted as bytes are.
    halves = digests.view(">u8")
    order = np.lexsort((halves[:, 1], halves[:, 0]))
    halves = halves[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (halves[1:] != halves[:-1]).any(axis=1)
    order = order[is_new]
    _write(path, digests[order], names.take(pa.array(order)))


def _checked(ids: pa.Array) -> pa.Array:
    if ids.null_count:
        raise RefusedError("one of ids is null; allowed: a text without / + #")
    bad = pc.or_(pc.match_substring_regex(ids, r"[/+#\x00]"), pc.equal(ids, ""))
    if pc.any(bad).as_py():
        shown = ids.filter(bad)[0].as_py()[:64]
        raise RefusedError(f"one of ids is {shown!r}; allowed: a text without / + #")
    longest = pc.max(pc.binary_length(ids)).as_py() or 0
    if longest > NAME_BYTES_MAX:
        raise RefusedError(f"one of ids has {longest} bytes, the limit is {NAME_BYTES_MAX}")
    return ids.cast(pa.binary())


def _digests(names: pa.Array) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    joined = b"".join(
        [blake2b(name, digest_size=DIGEST_BYTES).digest() for name in names.to_pylist()]
    )
    return np.frombuffer(joined, np.uint8).reshape(len(names), DIGEST_BYTES)


def _write(
    path: Path, digests: np.ndarray[tuple[int, int], np.dtype[np.uint8]], names: pa.Array
) -> None:
    """Both are in order."""
    bounds = np.searchsorted(digests[:, 0], np.arange(BUCKETS + 1))
    lengths = pc.binary_length(names).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    data = b"".join(names.to_pylist())
    counts, sizes = [], []
    writer = PreparedWriter(path)
    try:
        for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            first, last = int(ends[start]), int(ends[stop])
            own_ends = (ends[start + 1 : stop + 1] - first).astype("<u4").tobytes()
            parts = [digests[start:stop].tobytes(), own_ends, data[first:last]]
            writer.add(parts)
            counts.append(stop - start)
            sizes.append(sum(map(len, parts)))
        packed = [np.array(one, "<u4").tobytes() for one in (counts, sizes)]
        writer.finish(PreparedIds(len(names), packed[0], packed[1]))
    finally:
        writer.close()
