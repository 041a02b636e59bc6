"""REST of the data pipeline: jobs, and what waits for the archive."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Path, Query, Request
from starlette.responses import Response

from queuelake.admin.answers import answer
from queuelake.admin.bodies import read_body, takes
from queuelake.admin.job_starting import JobWanted
from queuelake.admin.openapi import returns
from queuelake.admin.paths import SEGMENT
from queuelake.admin.services import Services
from queuelake.control_pipeline import JOBS_PER_PAGE_MAX, ArchiveLag, JobPage
from queuelake.errors import RefusedError
from queuelake.flight import JobTold

JOB_BYTES_MAX = 64 * 1024
JOBS_PATH = "/api/v1/jobs"
JOB_PATH = f"{JOBS_PATH}/{{job_id:{SEGMENT}}}"
TAGS: list[Any] = ["data pipeline"]

JobId = Annotated[str, Path(min_length=1, description="The job, percent-encoded.")]
Limit = Annotated[
    int, Query(ge=1, le=JOBS_PER_PAGE_MAX, description="At most so many items in the answer.")
]
Cursor = Annotated[str, Query(description="`next` of the page before; empty for the first page.")]


def add_pipeline_routes(app: FastAPI, services: Services) -> None:
    @app.get(JOBS_PATH, tags=TAGS, responses=returns(JobPage))
    async def jobs(limit: Limit = 100, cursor: Cursor = "") -> Response:
        """Jobs which run, and the last which ended; the newest first, page by page."""
        return answer(await services.jobs(limit, cursor))

    @app.post(
        JOBS_PATH,
        tags=TAGS,
        status_code=202,
        responses=returns(JobTold, 202),
        openapi_extra=takes(JobWanted),
    )
    async def start(request: Request) -> Response:
        """Start a job on the broker's machine; how far it comes is told by its own path. Needs an
        admin's key: a job runs the SQL it is given, and reads files."""
        wanted = _wanted(await read_body(request, JOB_BYTES_MAX))
        return answer(await services.start_job(wanted), 202)

    @app.get(JOB_PATH, tags=TAGS, responses=returns(JobTold))
    async def job(job_id: JobId) -> Response:
        """How far a job has come; `lost` when it runs and has been silent for a minute."""
        return answer(await services.job(job_id))

    @app.post(f"{JOB_PATH}/cancel", tags=TAGS, status_code=202, responses=returns(JobTold, 202))
    async def cancel(job_id: JobId) -> Response:
        """Ask a job to stop; it does so within seconds, and can be started again."""
        return answer(await services.cancel_job(job_id), 202)

    @app.get("/api/v1/archive", tags=TAGS, responses=returns(ArchiveLag))
    async def archive() -> Response:
        """What waits for the archive, by queue, those furthest behind first; how much is held."""
        return answer(await services.archive_lag())


def _wanted(body: bytes) -> JobWanted:
    try:
        return msgspec.json.decode(body, type=JobWanted)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        problem = 'the body is {"kind": "...", "arguments": {...}}'
        raise RefusedError(f"{problem}: {error}") from error
