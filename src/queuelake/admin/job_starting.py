"""Starting jobs of the pipeline: `queuelake pipeline KIND ...` as a process of its own.

A job outlives the admin process and tells the broker itself how far it has come. What it prints is
in `<data-dir>/jobs/{id}.log`. Only the kinds and arguments listed here can be asked for, and each
argument is one word of the command, whatever is in it: no shell reads it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import uuid
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Annotated, Final

from msgspec import Meta, Struct

from queuelake.control import Status
from queuelake.control_client import ControlClient
from queuelake.control_pipeline import JOB, JOB_START, JOB_TOLD
from queuelake.errors import QueuelakeError, RefusedError
from queuelake.flight import JobAnswer, JobTold

JOBS_MAX: Final = 8
LOGS_MAX: Final = 200
LAST_LINE_BYTES: Final = 2_000
FRAME: Final = " \t│╭╮╰╯─"  # around what the command line says of wrong options
SPARK_MODULES: Final = ("pyspark", "pyarrow", "deltalake")
_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")

# Of each kind: the options it may be given, and of what type.
KINDS: Final[dict[str, dict[str, type]]] = {
    "archive": {
        "once": bool,
        "queue": str,
        "interval": float,
        "rows-max": int,
        "adopt": bool,
        "wait": float,
    },
    "compact": {"file-size": str, "keep": str, "wait": float},
    "retain": {"older-than": str, "erase-key": list, "queue": str, "wait": float},
    "reprocess": {"queue": str, "wait": float},
    "replay": {
        "queue": str,
        "to": str,
        "where": str,
        "order-by": str,
        "rate": float,
        "dry-run": bool,
    },
    "redrive": {"queue": str, "where": str, "set-payload": str, "to": str, "dry-run": bool},
    "fanout": {
        "request": str,
        "from": str,
        "sql": str,
        "table": list,
        "id-column": str,
        "data": str,
        "data-id": str,
        "cancel": bool,
        "watch": bool,
    },
    "report": {"out": str, "queue": str, "since": str, "until": str, "title": str},
    "run": {"file": str, "only": list, "check": bool},
}
POSITIONAL: Final = {"run": "file"}
WORDS: Final[dict[type, str]] = {
    bool: "true or false",
    str: "a text",
    int: "an integer",
    float: "a number",
    list: "a list of texts",
}

Argument = bool | int | float | str | list[str]


class JobWanted(Struct, frozen=True, forbid_unknown_fields=True):
    """A job to be started; `arguments` are the options of `queuelake pipeline KIND`."""

    kind: Annotated[str, Meta(description="such as `archive` or `report`")]
    arguments: Annotated[
        dict[str, Argument], Meta(description='options without `--`, such as {"once": true}')
    ] = {}
    id: Annotated[str, Meta(description="of a job which is to go on; empty: a new one")] = ""


class NoPipelineError(RefusedError):
    """This broker cannot run jobs: install what is missing, or turn it on."""

    http_status = 501
    code = "NOT_IMPLEMENTED"


class TooManyJobsError(RefusedError):
    """As many jobs as may run were started here: wait for the end of one."""

    http_status = 429
    code = "TOO_MANY_REQUESTS"


class JobStarter:
    """Starts jobs for one data directory. `lake`: where its tables are; empty: the usual place."""

    def __init__(self, control: ControlClient, data_dir: Path, lake: str) -> None:
        self._control = control
        self._data_dir = data_dir
        self._lake = lake
        self._watching: set[asyncio.Task[None]] = set()

    async def start(self, wanted: JobWanted) -> JobTold:
        """Raises RefusedError when it cannot be started; what fails later is told by the job."""
        own = arguments(wanted)
        job_id = wanted.id or f"{wanted.kind}-{uuid.uuid4().hex[:12]}"
        if not _ID.fullmatch(job_id):
            allowed = "may have 1 to 100 letters, digits and . _ -"
            raise RefusedError(f"job id {job_id!r} {allowed}")
        _need_spark()
        if len(self._watching) >= JOBS_MAX:
            running = len(self._watching)
            raise TooManyJobsError(f"{running} of {JOBS_MAX} jobs started here are running")
        url = await self._flight_url()
        detail = {name: str(value) for name, value in wanted.arguments.items()}
        told = JobTold(job_id, wanted.kind, message="starting", detail=detail)
        job = await self._control.call(JOB_START, JobTold, _args(told))
        place = ["--data-dir", str(self._data_dir), "--url", url, "--job-id", job_id]
        if self._lake:
            place += ["--lake", self._lake]
        await self._spawn(job, [wanted.kind, *place, *own])
        return job

    async def _spawn(self, job: JobTold, words: list[str]) -> None:
        log = self._open_log(job.id)
        with log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "queuelake.cli.main", "pipeline", *words),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # it outlives this process, and hears none of its signals
            )
        watching = asyncio.create_task(self._watch(job, process, Path(log.name)))
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)

    async def _watch(self, job: JobTold, process: asyncio.subprocess.Process, log: Path) -> None:
        """One which could not even say that it failed is said to have failed."""
        code = await process.wait()
        with contextlib.suppress(QueuelakeError):  # a broker which is away shows it as lost
            told = await self._control.call(JOB, JobTold, {"id": job.id})
            if told.state in ("running", "lost"):
                words = _last_line(log) or f"ended with exit code {code}"
                ended = JobTold(
                    job.id,
                    job.kind,
                    "failed" if code else "done",
                    told.done,
                    told.total,
                    told.unit,
                    words,
                    told.started_ms,
                    told.detail,
                )
                await self._control.call(JOB_TOLD, JobAnswer, _args(ended))

    async def _flight_url(self) -> str:
        addresses = (await self._control.call("status", Status)).addresses
        if "flight" not in addresses:
            raise NoPipelineError("jobs need the Flight service, which is off: see flight.enabled")
        return addresses["flight"]

    def _open_log(self, job_id: str) -> IO[bytes]:
        folder = self._data_dir / "jobs"
        folder.mkdir(mode=0o700, exist_ok=True)
        logs = sorted(folder.glob("*.log"), key=lambda path: path.stat().st_mtime)
        for path in logs[: max(0, len(logs) + 1 - LOGS_MAX)]:
            path.unlink(missing_ok=True)
        return (folder / f"{job_id}.log").open("ab")


def arguments(wanted: JobWanted) -> list[str]:
    """The words of a command line.

    Raises:
        RefusedError: there is no such kind or argument, or it has another type.
    """
    known = KINDS.get(wanted.kind)
    if known is None:
        raise RefusedError(f"kind is {wanted.kind!r}, may be {', '.join(KINDS)}")
    words: list[str] = []
    for name, value in wanted.arguments.items():
        if name not in known:
            raise RefusedError(f"{wanted.kind} takes no {name!r}, only {', '.join(known)}")
        if not _fits(value, known[name]):
            raise RefusedError(f"{name} of {wanted.kind} is {value!r}, may be {WORDS[known[name]]}")
        if name == POSITIONAL.get(wanted.kind):
            continue
        if isinstance(value, list):
            words += [f"--{name}={one}" for one in value]
        elif isinstance(value, bool):
            words += [f"--{name}"] if value else []
        else:
            words.append(f"--{name}={value}")
    positional = wanted.arguments.get(POSITIONAL.get(wanted.kind, ""))
    if positional is not None:
        words += ["--", str(positional)]
    if any(["\0" in word for word in words]):
        raise RefusedError("an argument holds a null character")
    return words


def _fits(value: Argument, kind: type) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is kind


def _need_spark() -> None:
    missing = [name for name in SPARK_MODULES if find_spec(name) is None]
    if missing:
        words = f"jobs need {' and '.join(missing)}: pip install 'queuelake[spark]'"
        raise NoPipelineError(words)


def _args(told: JobTold) -> dict[str, object]:
    return {name: getattr(told, name) for name in told.__struct_fields__}


def _last_line(path: Path) -> str:
    """What it said last."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LAST_LINE_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    said = [line.strip(FRAME) for line in lines]
    return next((line for line in reversed(said) if line), "")
