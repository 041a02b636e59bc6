"""The jobs of the pipeline: how far each has come, as it tells itself, and who is to stop.

Jobs run elsewhere; the broker remembers what they told last, over restarts too. A job which is
silent for too long may have been killed: it is shown as lost until it tells again.
"""

from __future__ import annotations

import hashlib
from typing import Final, final, get_args

import msgspec

from queuelake.broker.clock import Clock
from queuelake.broker.runner import Runner
from queuelake.control_pipeline import JobPage
from queuelake.errors import NotFoundError, RefusedError
from queuelake.flight import JOB_CHARACTERS_MAX, JobAnswer, JobState, JobTold
from queuelake.storage import api
from queuelake.storage.api import Store

SILENT_MS: Final = 60_000
ENDED_MAX: Final = 1_000
RUNNING_MAX: Final = 1_000
ROW_BYTES_MAX: Final = 64 * 1024
DIGEST_BYTES: Final = 16


class JobEndedError(RefusedError):
    """The job does not run any more: there is nothing to stop."""

    http_status = 409
    code = "CONFLICT"


class JobRunsError(RefusedError):
    """The job runs already: wait for its end, or cancel it."""

    http_status = 409
    code = "CONFLICT"


class _Job(msgspec.Struct, array_like=True):
    told: JobTold
    seen_ms: int
    cancel: bool = False
    starting: bool = False  # somebody started it, and it has not told anything yet


_decode = msgspec.msgpack.Decoder(_Job).decode


@final
class Jobs:
    """Those which run, and the last which ended."""

    def __init__(self, store: Store, runner: Runner, clock: Clock) -> None:
        self._runner = runner
        self._clock = clock
        self._jobs: dict[str, _Job] = {}
        with store.view() as view:
            for _, value in view.scan(api.JOBS, b"", b"\xff" * (DIGEST_BYTES + 1)):
                job = _decode(value)
                # Nobody could tell anything while the broker was away.
                job.seen_ms = max(job.seen_ms, clock.started_ms)
                self._jobs[job.told.id] = job

    def tell(self, told: JobTold) -> JobAnswer:
        """What a job says of itself; whether it is to stop."""
        _check(told)
        known = self._jobs.get(told.id)
        now_ms = self._clock.now_ms()
        started_ms = told.started_ms or (known.told.started_ms if known is not None else now_ms)
        told = msgspec.structs.replace(told, started_ms=started_ms)
        cancel = known is not None and known.cancel and _is_same_run(known, told)
        if known is None:
            self._make_room()
        self._jobs[told.id] = _Job(told, now_ms, cancel and told.state == "running")
        self._write(told.id)
        return JobAnswer(cancel)

    def start(self, told: JobTold) -> None:
        """Somebody is about to start a job.

        Raises:
            RefusedError: it runs already, or too many do.
        """
        known = self._jobs.get(told.id)
        if known is not None and known.told.state == "running" and not self._is_lost(known):
            raise JobRunsError(f"job {told.id!r} is running")
        self.tell(told)
        self._jobs[told.id].starting = True
        self._write(told.id)

    def get(self, job_id: str) -> JobTold:
        return self._shown(self._job(job_id))

    def cancel(self, job_id: str) -> JobTold:
        """It hears of it when it tells something next."""
        job = self._job(job_id)
        if job.told.state != "running":
            raise JobEndedError(f"job {job_id!r} is {job.told.state}, only a running one can stop")
        job.cancel = True
        self._write(job_id)
        return self._shown(job)

    def page(self, limit: int, cursor: str) -> JobPage:
        """The newest first; the cursor is start and id of the last one."""
        known = sorted(((job.told.started_ms, name) for name, job in self._jobs.items()))[::-1]
        if cursor:
            started, _, name = cursor.partition(":")
            if not started.isascii() or not started.isdigit():
                raise RefusedError(f"cursor is {cursor!r}, may be `next` of the page before")
            known = [one for one in known if one < (int(started), name)]
        page = [self._shown(self._jobs[name]) for _, name in known[:limit]]
        more = len(known) > limit
        return JobPage(page, f"{page[-1].started_ms}:{page[-1].id}" if more else None)

    def count(self) -> dict[str, int]:
        """By state."""
        found = dict.fromkeys(get_args(JobState), 0)
        for job in self._jobs.values():
            found[self._shown(job).state] += 1
        return found

    def _job(self, job_id: str) -> _Job:
        job = self._jobs.get(job_id)
        if job is None:
            raise NotFoundError(f"there is no job {job_id!r}")
        return job

    def _shown(self, job: _Job) -> JobTold:
        if self._is_lost(job):
            return msgspec.structs.replace(job.told, state="lost")
        return job.told

    def _is_lost(self, job: _Job) -> bool:
        return job.told.state == "running" and self._clock.now_ms() - job.seen_ms >= SILENT_MS

    def _make_room(self) -> None:
        """For one more job, which runs: those which ended long ago are forgotten."""
        ended = [job for job in self._jobs.values() if job.told.state != "running"]
        lost = [job for job in self._jobs.values() if self._is_lost(job)]
        running = len(self._jobs) - len(ended) - len(lost)
        if running >= RUNNING_MAX:
            raise RefusedError(f"{running} of {RUNNING_MAX} jobs are running")
        ended.extend(lost)
        ended.sort(key=lambda job: job.seen_ms)
        for job in ended[: max(0, len(ended) - ENDED_MAX)]:
            del self._jobs[job.told.id]
            self._write(job.told.id)

    def _write(self, job_id: str) -> None:
        key = hashlib.blake2b(job_id.encode(), digest_size=DIGEST_BYTES).digest()
        job = self._jobs.get(job_id)
        if job is None:
            self._runner.delete(api.JOBS, key)
        else:
            self._runner.put(api.JOBS, key, msgspec.msgpack.encode(job))
        self._runner.if_failed(lambda: self._write(job_id))


def _check(told: JobTold) -> None:
    if not 0 < len(told.id) <= JOB_CHARACTERS_MAX:
        limit = f"may have 1 to {JOB_CHARACTERS_MAX}"
        raise RefusedError(f"job id has {len(told.id)} characters, {limit}")
    if told.state == "lost":
        raise RefusedError("a job which tells that it is lost is not")
    size = len(msgspec.msgpack.encode(told))
    if size > ROW_BYTES_MAX:
        raise RefusedError(f"job {told.id!r} tells {size} bytes, may be {ROW_BYTES_MAX}")


def _is_same_run(known: _Job, told: JobTold) -> bool:
    """A job which was stopped may be started again under its id."""
    before = known.told
    return before.state == "running" and (known.starting or before.started_ms == told.started_ms)
