"""Vehicles of a fan-out batch, in the order of the store: by the hash of their names."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from queuelake.errors import RefusedError
from queuelake.export.staged_columns import column
from queuelake.export.staged_parts import Choose, everything
from queuelake.export.staged_rows import blocks
from queuelake.storage.prepared import PreparedIds, PreparedWriter
from queuelake.storage.sdv_tables import DIGEST_BYTES, NAME_BYTES_MAX

IDS_MAX: Final = 2_000_000  # of one batch: they are sorted in memory
BUCKETS: Final = 256

Digests = np.ndarray[tuple[int, int], np.dtype[np.uint8]]


def prepare_ids(path: Path, staged: list[Path], choose: Choose = everything) -> None:
    """Write the file for the broker; an id which comes twice is there once.

    Raises:
        RefusedError: one of them is no id.
    """
    parts: list[pa.Array] = []
    rows = 0
    for block in choose(blocks(staged)):
        parts.append(_checked(column(block, "id")))
        rows += block.num_rows
        if rows > IDS_MAX:
            raise RefusedError(f"batch of more than {IDS_MAX} ids: commit it in parts")
    names = pa.concat_arrays(parts) if parts else pa.array([], pa.binary())
    digests = _digests(names)
    order = _ordered(digests)
    _write(path, digests[order], names.take(pa.array(order)))


def _ordered(digests: Digests) -> NDArray[np.int64]:
    """Where each digest is for the first time, in the order of their bytes."""
    # As two numbers each; those of the machine are sorted several times as quickly as others.
    high, low = digests.view(">u8").astype(np.uint64).T
    order = np.argsort(high)
    is_new = np.ones(len(order), bool)
    is_new[1:] = high[order[1:]] != high[order[:-1]]
    if is_new.all():
        return order
    # Mostly an id which is there twice.
    order = np.lexsort((low, high))
    high, low = high[order], low[order]
    is_new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    return order[is_new]


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


def _digests(names: pa.Array) -> Digests:
    joined = b"".join(
        [blake2b(name, digest_size=DIGEST_BYTES).digest() for name in names.to_pylist()]
    )
    return np.frombuffer(joined, np.uint8).reshape(len(names), DIGEST_BYTES)


def _write(path: Path, digests: Digests, names: pa.Array) -> None:
    """Both are in order, and the names have just been copied: they begin with their buffer."""
    assert names.offset == 0
    bounds = np.searchsorted(digests[:, 0], np.arange(BUCKETS + 1))
    _, offsets, texts = names.buffers()
    ends = np.frombuffer(offsets, np.int32)[: len(names) + 1]
    data = memoryview(texts or b"")
    counts, sizes = [], []
    writer = PreparedWriter(path)
    try:
        for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            first, last = int(ends[start]), int(ends[stop])
            own_ends = (ends[start + 1 : stop + 1] - first).astype("<u4").tobytes()
            parts = [digests[start:stop].tobytes(), own_ends, bytes(data[first:last])]
            writer.add(parts)
            counts.append(stop - start)
            sizes.append(sum(map(len, parts)))
        packed = [np.array(one, "<u4").tobytes() for one in (counts, sizes)]
        writer.finish(PreparedIds(len(names), packed[0], packed[1]))
    finally:
        writer.close()
