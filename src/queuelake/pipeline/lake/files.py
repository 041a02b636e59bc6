"""Data files: how rows become Parquet below a table, and how such a file is known.

A file is written under a name nobody else uses and is nothing until a commit names it. The name
begins with the epoch of the lease under which it was written; so what a dead job has left behind
is told apart from what a living one is about to commit, without a look at any clock.

    {table}/{queue, made safe}/{date}/{epoch}-{random}{tag}.parquet

Folders are named for people. What a file holds is said by the log of the table, and by the file.
Rows of a queue and of another which has got its name later are in different files.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct
from pyarrow import fs

from queuelake.pipeline.lake.definitions import Definition

ROW_GROUP_ROWS: Final = 256 * 1024
BUFFERED_BYTES_MAX: Final = 16 * 1024 * 1024  # rows waiting for their row group, per file
OPEN_FILES_MAX: Final = 32
COMPRESSION: Final = "zstd"
# In these columns hardly two values are alike: a dictionary is work for nothing.
UNIQUE: Final = ("payload", "message_id", "seqno", "message_seqno", "ts", "expires")
UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.]+")


class Bounds(Struct, frozen=True):
    """Which rows a file holds, as far as is told beside it: places and times.

    Never keys or payloads: they would stay in the log of the table after they were erased.
    """

    queue_id: str = ""
    partition_min: int = 0
    partition_max: int = 0
    seqno_min: int = 0
    seqno_max: int = 0
    ts_min_us: int = 0
    ts_max_us: int = 0


class DataFile(Struct, frozen=True):
    """A file of a table: where it is, what part of the table it holds."""

    path: str  # below the table
    size: int
    rows: int
    partition: dict[str, str | None]
    bounds: Bounds = Bounds()

    @property
    def tag(self) -> str:
        """What its name ends with: where its rows come from, if not from the archive."""
        return self.path.rpartition("/")[2].removesuffix(".parquet").partition("_")[2]


def epoch_of(path: str) -> int:
    """Under which lease a file was written; 0 for names which are not ours."""
    head = path.rpartition("/")[2].partition("-")[0]
    return int(head) if head.isdigit() else 0


def folder(partition: dict[str, str | None]) -> str:
    """A folder which any file system takes, and which no two values share."""
    return "".join(f"{safe(value or '')}/" for value in partition.values())


def safe(value: str) -> str:
    words = UNSAFE.sub("-", value).strip("-.")[:80]
    if words == value or re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        return words
    return f"{words}~{hashlib.blake2b(value.encode(), digest_size=8).hexdigest()}"


class Writer:
    """Writes rows of one table below `root`, each to the file of its partition."""

    def __init__(
        self, root: str, definition: Definition, schema: pa.Schema, epoch: int, tag: str = ""
    ) -> None:
        self._files, self._root = fs.FileSystem.from_uri(root)
        self._columns = definition.partition_by
        self._by = self._columns + (("queue_id",) if "queue_id" in schema.names else ())
        self._schema = schema
        self._name = f"{epoch}-{{}}{'_' + tag if tag else ''}.parquet"
        self._open: dict[tuple[str | None, ...], _OpenFile] = {}
        self._written: list[DataFile] = []

    def write(self, rows: pa.Table) -> None:
        if rows.num_rows == 0:
            return
        for values, part in split(fitted(rows, self._schema), self._by):
            file = self._open.pop(values, None) or self._start(values)
            self._open[values] = file  # the last one in the dict is the last one used
            file.append(part)

    def finish(self) -> list[DataFile]:
        while self._open:
            self._close_oldest()
        return self._written

    def abandon(self) -> None:
        """Leave no open file behind; what was written is swept later."""
        for file in self._open.values():
            file.abandon()
        self._open.clear()

    def _start(self, values: tuple[str | None, ...]) -> _OpenFile:
        if len(self._open) >= OPEN_FILES_MAX:
            self._close_oldest()
        partition = dict(zip(self._columns, values, strict=False))
        path = folder(partition) + self._name.format(uuid.uuid4().hex)
        return _OpenFile(self._files, self._root, path, partition, self._schema)

    def _close_oldest(self) -> None:
        file = self._open.pop(next(iter(self._open)))
        self._written.append(file.close())


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with exactly these columns: others are dropped, those which are missing are null."""
    if rows.schema.equals(schema):
        return rows
    for field in schema:
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.select(schema.names).cast(schema)


def split(
    rows: pa.Table, columns: tuple[str, ...]
) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
    """Rows by the values of these columns, which in a batch are few."""
    if not columns:
        yield (), rows
        return
    values = rows[columns[0]].unique()
    for value in values:
        alone = len(values) == 1
        same = rows if alone else rows.filter(pc.equal(rows[columns[0]], value))
        text = None if value.as_py() is None else str(value.as_py())
        for rest, part in split(same, columns[1:]):
            yield (text, *rest), part


class _OpenFile:
    """One Parquet file being written."""

    def __init__(
        self,
        files: fs.FileSystem,
        root: str,
        path: str,
        partition: dict[str, str | None],
        schema: pa.Schema,
    ) -> None:
        self._files = files
        self._path = path
        self._place = f"{root}/{path}"
        self._partition = partition
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._waiting_rows = 0
        self._rows = 0
        self._bounds: dict[str, tuple[int, int]] = {}
        self._queue_id = ""
        files.create_dir(self._place.rpartition("/")[0], recursive=True)
        self._sink = files.open_output_stream(self._place)
        self._parquet = pq.ParquetWriter(
            self._sink, schema, compression=COMPRESSION, use_dictionary=repeating(schema)
        )

    def append(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        self._waiting_rows += rows.num_rows
        if self._waiting_rows >= ROW_GROUP_ROWS or self._waiting_bytes >= BUFFERED_BYTES_MAX:
            self._write_group()

    def _write_group(self) -> None:
        group = pa.concat_tables(self._waiting)
        self._waiting, self._waiting_bytes, self._waiting_rows = [], 0, 0
        self._widen(group)
        self._parquet.write_table(group, row_group_size=ROW_GROUP_ROWS)
        self._rows += group.num_rows

    def close(self) -> DataFile:
        if self._waiting:
            self._write_group()
        self._parquet.close()
        self._sink.close()
        if isinstance(self._files, fs.LocalFileSystem):
            sync(self._place, self._path.count("/") + 1)
        size = self._files.get_file_info(self._place).size
        return DataFile(self._path, size, self._rows, self._partition, self._told())

    def abandon(self) -> None:
        self._parquet.close()
        self._sink.close()

    def _widen(self, group: pa.Table) -> None:
        if "queue_id" in group.column_names:
            self._queue_id = group["queue_id"][0].as_py()
        for name in ("partition", "seqno", "ts"):
            if name in group.column_names:
                column = group[name].cast(pa.int64())
                least, greatest = (bound.as_py() for bound in pc.min_max(column).values())
                if least is not None:
                    known = self._bounds.get(name, (least, greatest))
                    self._bounds[name] = (min(known[0], least), max(known[1], greatest))

    def _told(self) -> Bounds:
        partition = self._bounds.get("partition", (0, 0))
        seqno = self._bounds.get("seqno", (0, 0))
        return Bounds(self._queue_id, *partition, *seqno, *self._bounds.get("ts", (0, 0)))


def repeating(schema: pa.Schema) -> list[str]:
    """The columns worth a dictionary, as Parquet names their leaves."""
    return [
        leaf
        for field in schema
        if field.name not in UNIQUE
        for leaf in leaves(field.name, field.type)
    ]


def leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from leaves(f"{path}.key_value.key", kind.key_type)
        yield from leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path


def sync(path: str, folders: int) -> None:
    """Durable are a file and the folders that name it: the broker forgets what the lake has."""
    for _ in range(folders + 1):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        path = os.path.dirname(path)
