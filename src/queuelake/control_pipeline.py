"""What the export and admin processes ask of the broker for the data pipeline.

As in control.py, the Structs are the answers of the broker and, where there is a route for it, of
the REST API alike. Places are as in tables.py: "up to here".
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from queuelake.flight import PayloadSchema

# Operations, with their arguments.
QUEUE_FLAGS: Final = "queue_flags"  # -> list[QueueFlags]: queues for which something is set
COMMIT_STAGE: Final = "commit_stage"  # CommitStage -> flight.Committed
BATCH: Final = "batch"  # job, batch -> flight.Committed or null: what is known of a batch
LAKE_LEASE: Final = "lake_lease"  # flight.LeaseAsked -> flight.Lease
LAKE_RELEASE: Final = "lake_release"  # flight.Lease -> null
LAKE_ARCHIVED: Final = "lake_archived"  # flight.ArchivedTold -> null
JOB_TOLD: Final = "job_told"  # flight.JobTold -> flight.JobAnswer
JOBS: Final = "jobs"  # limit, cursor -> JobPage
JOB: Final = "job"  # id -> flight.JobTold
JOB_CANCEL: Final = "job_cancel"  # id -> flight.JobTold
ARCHIVE_LAG: Final = "archive_lag"  # -> ArchiveLag


class QueueFlags(Struct, frozen=True):
    """What the settings of a queue say to the pipeline; `number` is its id in the store."""

    number: int
    archive: bool
    schema: PayloadSchema | None = None
