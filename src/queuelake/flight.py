"""The contract between the export process and the pipeline: Arrow Flight, JSON inside.

Everybody who calls sends the header `authorization: Bearer key:secret`. There are

- `do_get(Range)`: rows of one shard, in the order of their sequences, as record batches with the
  columns of `tables`; rows which are gone are left out;
- `do_put(Stage)`: rows for a queue, or for vehicles; they are durable in `<data-dir>/staging` when
  the server has answered with `Staged`, and nobody sees them;
- `do_action(name, body)`: the actions below. An answer is one JSON value in one result; `SHARDS`
  may answer in several, each a list.

Errors are Flight errors whose message is one line `CODE: words`; `parse_error` takes it apart.
What the caller did wrong is FlightServerError; a wrong key FlightUnauthenticatedError; a broker
which does not answer FlightUnavailableError, and then the call may be made again.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import Struct

from queuelake.tables import Table

# Actions: body -> answer
SHARDS: Final = "shards"  # ShardsAsked -> list[Shard]
COMMIT: Final = "commit"  # CommitAsked -> Committed; again for the same job and batch: the same
ABORT: Final = "abort"  # AbortAsked -> null; a batch which is committed stays
# LeaseAsked -> Lease; LEASE_TAKEN when another holder has it (the words say who, until when),
# LEASE_LOST when the epoch to be kept longer is not the last one any more.
LEASE: Final = "lease"
RELEASE: Final = "release"  # Lease -> null
ARCHIVED: Final = "archived"  # ArchivedTold -> null
JOB: Final = "job"  # JobTold -> JobAnswer
CALL: Final = "call"  # Call -> whatever the control operation answers

# Control operations to be called; `batch` {job, batch} -> Committed or null: what is known of it.
CALLS: Final = frozenset({"batch", "sdv_cancel", "sdv_request", "status"})
JOB_CHARACTERS_MAX: Final = 200
# How the id of a job begins which nobody gave it: such a batch is committed by the write which
# staged it, or never, and is known for as long as a stage is kept.
UNNAMED_JOB: Final = "unnamed:"
STAGE_KEPT_S: Final = 24 * 3600

Kind = Literal["durable", "message", "last_value", "ecq", "fanout"]


class Range(Struct, frozen=True, omit_defaults=True):
    """The ticket of `do_get`: sequences (after, upto] of one shard."""

    table: Table
    queue_id: str
    shard: int
    after: int
    upto: int
    columns: list[str] = []  # none: all
    fail_on_loss: bool = True  # when something of it was lost: an error which names the range


class ShardsAsked(Struct, frozen=True, omit_defaults=True):
    """`queue`: a name as people write it (`$queue/a`, `$q/f`, `$ECQ`, `$SDV-FANOUT`), a pattern of
    names with `*` and `?`, or `*`. With `ts_ms`, `after` of the answer is the place before the
    first row of that time or later."""

    table: Table = "messages"
    queue: str = "*"
    ts_ms: int = 0


class PayloadSchema(Struct, frozen=True):
    """What the payloads of a queue are. `ddl` for json and csv: a schema in Spark's words."""

    format: Literal["json", "csv", "text", "binary"]
    ddl: str = ""


class Shard(Struct, frozen=True, omit_defaults=True):
    """How far one shard reaches: rows (after, upto] may be there."""

    queue: str
    queue_id: str  # `{store}-{number}`: never used for another queue, nor by another store
    kind: Kind
    shard: int
    after: int
    upto: int
    archive: bool = False  # rows above `archived` are kept for the archive
    archived: int = 0
    lost: list[tuple[int, int]] = []  # (after, upto] which were promised to the archive and dropped
    schema: PayloadSchema | None = None


class Stage(Struct, frozen=True, omit_defaults=True):
    """The descriptor of `do_put`, as the command.

    Columns of a message: `payload` binary (required), `key` string, `properties`
    map<string,string>, `content_type` string, `delay_ms` bigint, `message_id` string, `topic`
    string; and of a dead letter which leaves its queue with the commit: `from_queue_id` string,
    `from_partition` int, `from_seqno` bigint. Columns of fan-out: `id` string.
    """

    job: str
    batch: int
    target: str  # the name of a queue, or `$SDV-FANOUT`
    task: str  # names the attempt of the task; a second attempt has another name
    request: str = ""  # fan-out: the request id
    data: str = ""  # fan-out: the data id, whose payload is published or comes later


class Staged(Struct, frozen=True):
    """The answer to `do_put`, in its metadata; to be named in the commit."""

    file: str
    rows: int
    bytes: int


class CommitAsked(Struct, frozen=True, omit_defaults=True):
    """Make these files of a batch visible, all at once; others of the batch are thrown away.

    Rows go to the queue in the order of the files, and of the rows in them.
    """

    job: str
    batch: int
    target: str
    files: list[str]
    request: str = ""
    data: str = ""
    payload: bytes = b""  # fan-out: stored as the data; none: it is published, or comes later


class Committed(Struct, frozen=True):
    rows: int
    repeated: bool = False  # it had been committed before: nothing was done now
    rejected: int = 0  # fan-out: ids which are none, with `on_invalid = "skip"`
    target: str = ""  # of one which was committed before


class AbortAsked(Struct, frozen=True):
    job: str
    batch: int


class LeaseAsked(Struct, frozen=True):
    """Who wants to change a lake; `epoch` of a lease it has, to keep it longer."""

    lake: str  # its location
    holder: str
    ttl_s: float
    epoch: int = 0


class Lease(Struct, frozen=True):
    """The right to change a lake, until then. A later lease has a greater epoch."""

    lake: str
    epoch: int
    until_ms: int


class Mark(Struct, frozen=True, array_like=True):
    queue_id: str
    shard: int
    upto: int


class ArchivedTold(Struct, frozen=True):
    """The lake has the rows of `messages` (or `events`, `stats`) up to these marks.

    `lake` is the id of the Delta table: marks of another table than the one known so far are
    refused unless `adopt` says that the old lake does not count any more.
    """

    table: Table
    lake: str
    marks: list[Mark]
    adopt: bool = False


JobState = Literal["running", "done", "failed", "cancelled", "lost"]


class JobTold(Struct, frozen=True):
    """How far a job has come; the first of an id says that it exists."""

    id: str
    kind: str
    # `lost` is never told: it is said of a running job which has been silent for too long.
    state: JobState = "running"
    done: int = 0
    total: int = 0
    unit: str = "rows"
    message: str = ""
    started_ms: int = 0
    detail: dict[str, str] = {}


class JobAnswer(Struct, frozen=True):
    cancel: bool = False  # somebody wants it to stop


class Call(Struct, frozen=True):
    op: str
    args: dict[str, object] = {}


def encode(message: Struct) -> bytes:
    return msgspec.json.encode(message)


def parse_error(message: str) -> tuple[str, str]:
    """Code and words of an error; what gRPC adds around them is dropped."""
    line = message.partition(". Detail:")[0].partition(". gRPC client debug context:")[0].strip()
    code, colon, words = line.partition(": ")
    if colon and code.isupper() and " " not in code:
        return code, words
    return "INTERNAL_ERROR", line
