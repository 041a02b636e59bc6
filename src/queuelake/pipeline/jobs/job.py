"""The frame in which every job runs.

A job is a function `run(context, options) -> Summary` in a module of its own, with its `Options`
beside it. It does its work in steps which may be repeated, calls `context.check()` between them,
and keeps `context.progress` true. The frame does the rest:

- once a second the progress is shown, and told to the broker, which may answer "cancel";
- Ctrl-C, SIGTERM and "cancel" make the next `check()` raise JobStoppedError. Spark's work which
  goes on for `GRACE_S` after that is called off; a second Ctrl-C does not wait at all. Either way
  the step is abandoned, which is safe, and the next run with the same job id continues;
- an error of Spark becomes one line which says what the user can mend;
- the lake gets a row in `jobs`, if there is one.

Exit codes are those of the command line: 0 done, 130 stopped; errors are raised.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from queuelake.errors import QueuelakeError, RefusedError
from queuelake.flight import JOB_CHARACTERS_MAX, JobAnswer, JobTold
from queuelake.pipeline.failures import one_line
from queuelake.pipeline.jobs.progress import Outcome, Progress, View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from queuelake.pipeline.connection import Connection

TELL_EVERY_S = 1.0
GRACE_S = 10.0
FIRST_ANSWER_S = "5"
EXIT_DONE = 0
EXIT_STOPPED = 130


class JobStoppedError(QueuelakeError):
    """Somebody wants the job to stop: leave, without finishing the step."""


class JobFailedError(QueuelakeError):
    """Spark could not do it: the text is the line of its error which says why."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a job did: a sentence without its name, figures, and what only programs want to read."""

    words: str
    detail: dict[str, object] = field(default_factory=dict)
    tables: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job works. An empty `lake` or `url`: the job has to do without."""

    url: str = ""
    token: str = ""
    lake: str = ""
    tls_ca: str = ""
    master: str = "local[*]"
    remote: str = ""
    conf: dict[str, str] = field(default_factory=dict)

    def options(self) -> dict[str, str]:
        """Where the broker is, as options of source and sink."""
        options = {"uri": self.url, "token": self.token, "tls_ca": self.tls_ca}
        return {name: value for name, value in options.items() if value}


class JobContext:
    """What a job gets: its id, its progress, and connections which are made when first used.

    A session of Spark which is handed in is used, and left open.
    """

    def __init__(
        self, kind: str, place: Place, job_id: str = "", spark: SparkSession | None = None
    ) -> None:
        if len(job_id) > JOB_CHARACTERS_MAX:
            raise RefusedError(f"job id has {len(job_id)} characters of {JOB_CHARACTERS_MAX}")
        self.kind = kind
        self.place = place
        self.id = job_id or f"{kind}-{uuid.uuid4().hex[:12]}"
        self.progress = Progress()
        self.started_ms = time.time_ns() // 1_000_000
        self.detail: dict[str, str] = {}  # told to the broker, and kept in the lake
        self._stop = threading.Event()
        self._grace: threading.Timer | None = None
        self._connection: Connection | None = None
        self._spark = spark
        self._owns_spark = spark is None

    @property
    def lake(self) -> str:
        """The location of the lake."""
        if not self.place.lake:
            raise RefusedError("where is the lake? name it with --lake, or use --data-dir")
        return self.place.lake

    @property
    def connection(self) -> Connection:
        """The broker, through its Flight service."""
        if self._connection is None:
            # Later a broker may be away for a while. One which is not there now is a mistake of
            # the user's, more likely than not: say so soon, and before Spark is started.
            with connect(self.place, retry_s=FIRST_ANSWER_S) as first:
                first.call("status")
            self._connection = connect(self.place)
        return self._connection

    @property
    def spark(self) -> SparkSession:
        """The Spark session; the first use takes some seconds."""
        if self._spark is None:
            from queuelake.pipeline.session import build_session

            doing, self.progress.message = self.progress.message, "starting Spark"
            place = self.place
            self._spark = build_session(
                f"queuelake {self.kind} {self.id}",
                place.master,
                place.remote or None,
                place.conf,
            )
            self.progress.message = doing
            # Spark has put its own handler of Ctrl-C in the place of ours.
            _handle_signals(self)
        return self._spark

    def stop(self) -> None:
        """Let the job end at its next check; what Spark does then has `GRACE_S` to end."""
        if not self._stop.is_set():
            self._stop.set()
            self._grace = threading.Timer(GRACE_S, self._call_off)
            self._grace.daemon = True
            self._grace.start()

    def ended(self) -> None:
        """The job is over: what its session does from now on is somebody else's."""
        if self._grace is not None:
            self._grace.cancel()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def check(self) -> None:
        """To be called between two steps."""
        if self._stop.is_set():
            raise JobStoppedError("stopped")

    def wait(self, seconds: float) -> None:
        """Do nothing for a while, or until the job is to stop."""
        if self._stop.wait(seconds):
            raise JobStoppedError("stopped")

    def close(self) -> None:
        if self._spark is not None and self._owns_spark:
            with contextlib.suppress(Exception):  # it may have died already, of what ended us
                self._spark.stop()
        if self._connection is not None:
            self._connection.close()

    def _call_off(self) -> None:
        if self._spark is not None:
            with contextlib.suppress(Exception):
                self._spark.interruptAll()


def connect(place: Place, **options: str) -> Connection:
    """The Flight service of a place; `options` are more of those which source and sink take."""
    from queuelake.pipeline.connection import Connection, endpoint_from

    return Connection(endpoint_from(place.options() | options))


class Teller(Protocol):
    """Who hears how far a job is, and may want it to stop."""

    def tell(self, told: JobTold) -> JobAnswer: ...


def run_job(
    context: JobContext,
    job: Callable[[JobContext], Summary],
    view: View,
    teller: Teller | None = None,
    journal: Callable[[Outcome], None] | None = None,
) -> int:
    """Run a job to its end, whatever that is, and return the exit code. `journal` keeps its end.

    Raises:
        QueuelakeError: the job failed; the text is one line.
    """
    with _signals(context), _ticking(context, view, teller):
        try:
            summary = job(context)
            outcome = _outcome(context, "done", summary)
        except KeyboardInterrupt:
            outcome = _stopped(context)
        except Exception as error:
            if isinstance(error, JobStoppedError) or context.stopping:
                outcome = _stopped(context)
            else:
                failure = _failure(error)
                outcome = _outcome(context, "failed", Summary(str(failure)))
                _end(context, view, teller, journal, outcome)
                raise failure from error
        finally:
            context.ended()
        _end(context, view, teller, journal, outcome)
    return EXIT_DONE if outcome.state == "done" else EXIT_STOPPED


def _outcome(context: JobContext, state: str, summary: Summary) -> Outcome:
    return Outcome(context.id, context.kind, state, summary.words, summary.detail, summary.tables)


def _stopped(context: JobContext) -> Outcome:
    progress = context.progress
    words = f"stopped after {progress.done:,} {progress.unit}; to continue: --job-id {context.id}"
    return _outcome(context, "cancelled", Summary(words))


def _failure(error: Exception) -> Exception:
    """What people get to see: our own errors as they are, those of Spark in one line."""
    if isinstance(error, QueuelakeError | OSError):
        return error
    line = one_line(error)
    return JobFailedError(line) if line else error


def _end(
    context: JobContext,
    view: View,
    teller: Teller | None,
    journal: Callable[[Outcome], None] | None,
    outcome: Outcome,
) -> None:
    _tell(context, teller, outcome)
    try:
        if journal is not None:
            journal(outcome)
    except (QueuelakeError, OSError) as error:
        if outcome.state != "failed":  # why it failed is what is to be told, not this as well
            print(f"warning: the lake has no row of this run: {error}", file=sys.stderr)
    view.end(context.progress, outcome)


def _tell(context: JobContext, teller: Teller | None, outcome: Outcome | None = None) -> None:
    if teller is None:
        return
    progress = context.progress
    told = JobTold(
        id=context.id,
        kind=context.kind,
        state=outcome.state if outcome else "running",  # type: ignore[arg-type]
        done=progress.done,
        total=progress.total,
        unit=progress.unit,
        message=outcome.words if outcome else progress.message,
        started_ms=context.started_ms,
        detail=context.detail,
    )
    # A broker which is away now is told the next time; the job itself finds out when it asks.
    with contextlib.suppress(QueuelakeError):
        if teller.tell(told).cancel:
            context.stop()


@contextlib.contextmanager
def _ticking(context: JobContext, view: View, teller: Teller | None) -> Iterator[None]:
    """Show and tell about once a second, in a thread: the job may be inside Spark for minutes."""
    over = threading.Event()

    def tick() -> None:
        _tell(context, teller)
        while not over.wait(TELL_EVERY_S):
            view.show(context.progress)
            _tell(context, teller)

    thread = threading.Thread(target=tick, name="queuelake-job", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(TELL_EVERY_S)


@contextlib.contextmanager
def _signals(context: JobContext) -> Iterator[None]:
    """Ctrl-C and SIGTERM stop the job, once its step is done; a second one ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread of a process can have handlers
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    _handle_signals(context)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _handle_signals(context: JobContext) -> None:
    def handle(number: int, frame: FrameType | None) -> None:
        if context.stopping:
            raise KeyboardInterrupt
        context.stop()

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handle)
        signal.signal(signal.SIGTERM, handle)
