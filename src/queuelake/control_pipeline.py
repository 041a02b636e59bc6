"""What the export and admin processes ask of the broker for the data pipeline.

As in control.py, the Structs are the answers of the broker and, where there is a route for it, of
the REST API alike. Places are as in tables.py: "up to here".
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from queuelake.flight import JobTold, PayloadSchema

# Operations, with their arguments.
QUEUE_FLAGS: Final = "queue_flags"  # -> list[QueueFlags]: queues for which something is set
STAGE_TARGET: Final = "stage_target"  # target -> StageTarget; makes the queue as a publish does
STAGE_LETTERS: Final = "stage_letters"  # letters: [queue id, partition, sequences] -> those gone
COMMIT_STAGE: Final = "commit_stage"  # CommitStage -> flight.Committed
STAGE_PART: Final = "stage_part"  # StagePart -> null: for a node with a shard, from another one
BATCH: Final = "batch"  # BatchAsked -> flight.Committed or null: what is known
LAKE_LEASE: Final = "lake_lease"  # flight.LeaseAsked -> flight.Lease
LAKE_RELEASE: Final = "lake_release"  # flight.Lease -> null
LAKE_ARCHIVED: Final = "lake_archived"  # flight.ArchivedTold -> null
JOB_START: Final = "job_start"  # flight.JobTold -> flight.JobTold: somebody starts a job
JOB_TOLD: Final = "job_told"  # flight.JobTold -> flight.JobAnswer
JOBS: Final = "jobs"  # limit, cursor -> JobPage
JOB: Final = "job"  # id -> flight.JobTold
JOB_CANCEL: Final = "job_cancel"  # id -> flight.JobTold
ARCHIVE_LAG: Final = "archive_lag"  # -> ArchiveLag

JOBS_PER_PAGE_MAX: Final = 1_000
ARCHIVED_QUEUES_MAX: Final = 1_000  # in one answer or scrape: those furthest behind


class QueueFlags(Struct, frozen=True):
    """What the settings of a queue say to the pipeline; `number` is its id in the store."""

    number: int
    archive: bool
    schema: PayloadSchema | None = None


class StageTarget(Struct, frozen=True):
    """How rows for a queue are laid out."""

    kind: Literal["durable", "message", "last_value", "fanout"]
    address: str = ""  # as publishers name it
    number: int = 0  # its id in the store
    partitions: int = 1
    ttl_ms: int = 0  # 0: messages live for ever
    message_bytes_max: int = 0
    topic: str = ""  # of messages which do not name one; empty: the queue's own address
    topic_filter: str = ""  # of a message queue: topics have to match
    key_expression: str = ""  # of a last-value queue


class BatchAsked(Struct, frozen=True):
    """Whether this batch was committed; without a target, wherever to."""

    job: str = ""
    batch: int = 0
    target: str = ""


class CommitStage(Struct, frozen=True):
    """A batch which is prepared: `file` is in its folder below `staging`."""

    job: str
    batch: int
    target: str
    file: str
    request: str = ""
    data: str = ""
    payload: bytes = b""


class StagePart(Struct, frozen=True):
    """Bytes of a prepared file, which begin there; the first of them make it."""

    job: str
    batch: int
    file: str
    at: int
    data: bytes


CHANGED: Final = "CHANGED"  # code of the error: what was prepared does not fit any more


class JobPage(Struct, frozen=True):
    """Jobs, the newest first; ask again with `next` as the cursor for more."""

    items: list[JobTold]
    next: str | None = None


class ArchivedQueue(Struct, frozen=True):
    """A queue with `archive = true`: how far it reaches, and how far the lake has it."""

    queue: str
    queue_id: str
    upto: list[int]  # of each partition: the last sequence
    archived: list[int]  # of each partition
    behind: int  # messages which the lake does not have
    held_bytes: int  # kept for the archive only: nobody else needs them
    lost: int = 0  # messages which were dropped before they were archived
    oldest_ms: int | None = None  # when the oldest message came which is not archived


class ArchiveLag(Struct, frozen=True):
    """What waits for the archive. `alarm` from 80 % of `hold_bytes_max` on."""

    queues: list[ArchivedQueue]
    held_bytes: int
    hold_bytes_max: int
    hold: Literal["reject", "drop"]
    alarm: bool
    last_commit_ms: int = 0  # when the lake last said what it has; 0: not since the broker started


class ArchiveFigures(Struct, frozen=True):
    """The metrics of the archive: of all queues, and of those furthest behind."""

    held_bytes: int = 0
    hold_bytes_max: int = 0
    alarm: bool = False
    lost: int = 0
    behind_by_queue: dict[str, int] = {}
    told_at_s: float = 0.0  # when the lake told last what it has; 0: not since the start
    jobs_by_state: dict[str, int] = {}
