"""What Spark tasks and drivers do, without Spark: stage, commit, look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import flight

from queuelake import flight as contract
from queuelake.flight import AbortAsked, CommitAsked, Committed, Stage, Staged
from tests.export.reading import Flight


class Stager(Flight):
    """Calls which write."""

    def put(
        self, job: str, batch: int, target: str, table: pa.Table, task: str = "t", **more: str
    ) -> Staged:
        stage = Stage(job, batch, target, task, **more)
        descriptor = flight.FlightDescriptor.for_command(contract.encode(stage))
        writer, reader = self.client.do_put(descriptor, table.schema, self.options)
        with writer:
            writer.write_table(table, max_chunksize=20_000)
            writer.done_writing()
            return msgspec.json.decode(reader.read().to_pybytes(), type=Staged)

    def commit(
        self, job: str, batch: int, target: str, files: Sequence[Staged], **more: Any
    ) -> Committed:
        asked = CommitAsked(job, batch, target, [one.file for one in files], **more)
        return msgspec.convert(self.act(contract.COMMIT, asked)[0], Committed)

    def abort(self, job: str, batch: int) -> None:
        self.act(contract.ABORT, AbortAsked(job, batch))

    def write(self, job: str, batch: int, target: str, table: pa.Table, **more: Any) -> Committed:
        return self.commit(job, batch, target, [self.put(job, batch, target, table)], **more)


def messages(*payloads: str | bytes, **columns: Any) -> pa.Table:
    """Rows with these payloads; other columns are lists, or one value for all rows."""
    encoded = [one.encode() if isinstance(one, str) else one for one in payloads]
    found: dict[str, Any] = {"payload": pa.array(encoded, pa.binary())}
    for name, values in columns.items():
        each = values if isinstance(values, list) else [values] * len(payloads)
        kind = pa.map_(pa.string(), pa.string()) if name == "properties" else None
        found[name] = pa.array(each, kind)
    return pa.table(found)


def numbered(count: int, first: int = 0, size: int = 8) -> pa.Table:
    """Rows whose payloads begin with their numbers."""
    return messages(*[f"{n:08d}".ljust(size, "x") for n in range(first, first + count)])
