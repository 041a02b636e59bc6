"""A batch of staged rows is laid out for the broker: see `storage/prepared.py`."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from queuelake.control_pipeline import StageTarget
from queuelake.errors import RefusedError
from queuelake.export.last_values import last_values
from queuelake.export.queues import number_of
from queuelake.export.staged_chunks import Chunk, Layout
from queuelake.export.staged_parts import Choose, everything
from queuelake.export.staged_rows import Rows, blocks
from queuelake.storage.prepared import Letters, Prepared, PreparedWriter

LETTERS_MAX: Final = 100_000  # of one batch: they leave their queue in one commit

Letter = tuple[int, int, int]  # number of the queue, partition, sequence
FindGone = Callable[[list[Letters]], list[Letters]]


def prepare(
    path: Path,
    staged: list[Path],
    target: StageTarget,
    job: str,
    store_id: str,
    find_gone: FindGone,
    choose: Choose = everything,
) -> None:
    """Write the file for the broker, with the rows to be chosen.

    Raises:
        RefusedError: a row breaks a rule; the error names the value and the limit.
    """
    letters = _Letters(store_id)
    letters.find(choose(blocks(staged)), find_gone)
    publisher = f"pipeline:{job}".encode()
    writer = PreparedWriter(path)
    try:
        summary = _Summary(target)
        rows = (Rows(block, target) for block in letters.living(choose(blocks(staged))))
        if target.kind == "last_value":
            chunks = last_values(rows, target, publisher)
        else:
            layout = Layout(target.partitions, target.ttl_ms, publisher)
            chunks = (chunk for block in rows for chunk in layout.chunks(block))
        for chunk in chunks:
            writer.add(chunk.parts)
            summary.add(chunk)
        writer.finish(summary.finish(letters.left()))
    finally:
        writer.close()


class _Summary:
    def __init__(self, target: StageTarget) -> None:
        self._target = target
        self._partitions, self._flags = array("H"), array("B")
        self._counts, self._sizes = array("I"), array("I")
        self._rows = self._largest = self._size = 0

    def add(self, chunk: Chunk) -> None:
        self._rows += chunk.count
        self._largest = max(self._largest, chunk.largest)
        self._size += chunk.payload_bytes
        self._partitions.append(chunk.partition)
        self._counts.append(chunk.count)
        self._sizes.append(chunk.size)
        self._flags.append(chunk.flags)

    def finish(self, letters: list[Letters]) -> Prepared:
        return Prepared(
            self._target.number,
            self._target.partitions,
            self._rows,
            self._largest,
            self._size,
            self._partitions.tobytes(),
            self._counts.tobytes(),
            self._sizes.tobytes(),
            self._flags.tobytes(),
            letters,
        )


class _Letters:
    """Dead letters which leave their queue with the batch. A row whose letter is gone, or comes a
    second time, is left out."""

    def __init__(self, store_id: str) -> None:
        self._store_id = store_id
        self._left: dict[Letter, None] = {}

    def find(self, tables: Iterator[pa.Table], find_gone: FindGone) -> None:
        for block in tables:
            for letter in self._of(block):
                if letter is not None:
                    self._left[letter] = None
        if len(self._left) > LETTERS_MAX:
            problem = f"batch of {len(self._left)} dead letters; limit: {LETTERS_MAX}"
            raise RefusedError(problem)
        if not self._left:
            return
        for gone in find_gone(self.left()):
            for seq in gone.seqs:
                self._left.pop((gone.queue_id, gone.partition, seq), None)

    def _of(self, block: pa.Table) -> list[Letter | None]:
        """The letter of each row; nothing when the block has none."""
        if "from_seqno" not in block.column_names:
            return []
        found: list[Letter | None] = []
        numbers: dict[str, int] = {}
        columns = [block.column(f"from_{name}") for name in ("queue_id", "partition", "seqno")]
        for queue_id, partition, seq in zip(*[one.to_pylist() for one in columns], strict=True):
            if queue_id is None or partition is None or seq is None:
                found.append(None)
                continue
            if queue_id not in numbers:
                numbers[queue_id] = number_of(self._store_id, queue_id)
            found.append((numbers[queue_id], partition, seq))
        return found

    def living(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        seen: set[Letter] = set()
        for block in tables:
            keep: list[bool] = []
            for letter in self._of(block):
                keep.append(letter is None or (letter in self._left and letter not in seen))
                if letter is not None:
                    seen.add(letter)
            if all(keep):
                yield block
            elif any(keep):
                yield block.filter(pa.array(keep)).combine_chunks()

    def left(self) -> list[Letters]:
        found: dict[tuple[int, int], list[int]] = {}
        for queue_id, partition, seq in self._left:
            found.setdefault((queue_id, partition), []).append(seq)
        return [Letters(queue_id, partition, seqs) for (queue_id, partition), seqs in found.items()]
