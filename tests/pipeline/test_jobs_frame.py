"""The frame of a job: what it tells, how it stops, what people get to read (P12)."""

from __future__ import annotations

import json
import os
import signal
import threading

import pytest

from queuelake.errors import BrokerDownError, RefusedError
from queuelake.flight import JobAnswer, JobTold
from queuelake.pipeline.failures import one_line
from queuelake.pipeline.jobs import job as frame
from queuelake.pipeline.jobs.job import JobContext, Place, Summary, run_job
from queuelake.pipeline.jobs.progress import JsonView, LineView, Progress, numbers


class Hearing:
    """A broker which hears everything, and cancels when it is told to."""

    def __init__(self) -> None:
        self.told: list[JobTold] = []
        self.cancel = False
        self.heard = threading.Event()

    def tell(self, told: JobTold) -> JobAnswer:
        self.told.append(told)
        self.heard.set()
        return JobAnswer(self.cancel)


class Deaf:
    def tell(self, told: JobTold) -> JobAnswer:
        raise BrokerDownError("nobody is there")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "TELL_EVERY_S", 0.02)


@pytest.fixture
def context() -> JobContext:
    return JobContext("test", Place(), "test-1")


def counts_to_ten(context: JobContext) -> Summary:
    context.progress.total = 10
    for _ in range(10):
        context.check()
        context.progress.add(1)
    return Summary("counted to 10", {"rows": 10})


def never_ends(context: JobContext) -> Summary:
    while True:
        context.wait(60)


@pytest.mark.rule("P12")
def test_p12_a_job_which_is_done_says_so_everywhere(
    context: JobContext, capsys: pytest.CaptureFixture[str]
) -> None:
    hearing = Hearing()
    assert run_job(context, counts_to_ten, LineView("test"), hearing) == 0
    assert capsys.readouterr().out == "test: counted to 10\n  rows: 10\n"
    last = hearing.told[-1]
    assert (last.id, last.state, last.done, last.total) == ("test-1", "done", 10, 10)


@pytest.mark.rule("P12")
def test_p12_json_has_one_object_on_each_line_and_the_outcome_in_the_last(
    context: JobContext, capsys: pytest.CaptureFixture[str]
) -> None:
    run_job(context, counts_to_ten, JsonView("test", context.id))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(line["job"] == "test-1" for line in lines)
    assert lines[-1]["state"] == "done"
    assert lines[-1]["detail"] == {"rows": 10}


@pytest.mark.rule("P12")
def test_p12_a_broker_which_says_cancel_stops_the_job(
    context: JobContext, capsys: pytest.CaptureFixture[str]
) -> None:
    hearing = Hearing()
    hearing.cancel = True
    assert run_job(context, never_ends, LineView("test"), hearing) == 130
    assert hearing.told[-1].state == "cancelled"
    assert "to continue: --job-id test-1" in capsys.readouterr().out


@pytest.mark.rule("P12")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_p12_a_signal_stops_the_job_cleanly_and_the_handlers_come_back(
    context: JobContext, number: signal.Signals
) -> None:
    before = signal.getsignal(number)

    def hit(context: JobContext) -> Summary:
        os.kill(os.getpid(), number)
        return never_ends(context)

    assert run_job(context, hit, LineView("test")) == 130
    assert signal.getsignal(number) is before


@pytest.mark.rule("P12")
def test_p12_a_second_ctrl_c_does_not_wait_for_the_step(context: JobContext) -> None:
    def deaf_to_the_first(context: JobContext) -> Summary:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(60)
        raise AssertionError("it waited")

    assert run_job(context, deaf_to_the_first, LineView("test")) == 130


@pytest.mark.rule("P12")
def test_p12_a_job_which_fails_tells_why_and_raises_it(
    context: JobContext, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(context: JobContext) -> Summary:
        raise RefusedError("queue '$queue/a' is full")

    hearing = Hearing()
    with pytest.raises(RefusedError):
        run_job(context, refused, JsonView("test", context.id), hearing)
    assert hearing.told[-1].state == "failed"
    assert hearing.told[-1].message == "queue '$queue/a' is full"
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["error"] == "queue '$queue/a' is full"


def test_a_broker_which_is_away_does_not_disturb_the_job(context: JobContext) -> None:
    assert run_job(context, counts_to_ten, LineView("test"), Deaf()) == 0


def test_what_fails_after_a_stop_is_part_of_the_stop(context: JobContext) -> None:
    """Spark's work was called off: its error is ours."""

    def interrupted(context: JobContext) -> Summary:
        context.stop()
        raise RefusedError("job 3 was cancelled")

    assert run_job(context, interrupted, LineView("test")) == 130


def test_a_job_which_stopped_in_time_calls_nothing_off_later(
    context: JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session may be somebody's who goes on to use it."""
    monkeypatch.setattr(frame, "GRACE_S", 3600.0)

    def stopped(context: JobContext) -> Summary:
        context.stop()
        return never_ends(context)

    assert run_job(context, stopped, LineView("test")) == 130
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(10)
            assert not thread.is_alive()


def test_the_rate_is_that_of_the_last_seconds() -> None:
    progress = Progress(total=1000, started_s=0.0)
    progress.rate(0.0)
    progress.add(100)
    assert progress.rate(1.0) == 100
    for second in range(2, 30):
        assert progress.rate(second) >= 0
    assert progress.rate(30.0) == 0
    progress.lag = 7
    assert numbers(progress, 31.0) == "100 of 1,000 rows, 0 rows/s, 7 behind"


def test_a_job_id_has_a_limit() -> None:
    with pytest.raises(RefusedError, match="201 characters of 200"):
        JobContext("test", Place(), "x" * 201)


class FakeSparkError(Exception):
    __module__ = "pyspark.errors.exceptions.captured"


def test_an_error_inside_a_task_becomes_its_last_line() -> None:
    text = """[PYTHON_DATA_SOURCE_ERROR] Failed when Python data source instance writes:
Traceback (most recent call last):
  File "worker.py", line 5, in main
queuelake.errors.RefusedError: queue '$queue/a' holds 5 of 5 messages; publish refused
 SQLSTATE: 38000
\tat org.apache.spark.Whatever(Whatever.scala:1)"""
    words = "queue '$queue/a' holds 5 of 5 messages; publish refused"
    assert one_line(FakeSparkError(text)) == words


def test_an_error_of_ours_counts_more_than_what_follows_from_it() -> None:
    text = """Streaming Query exception: Traceback (most recent call last):
queuelake.errors.RefusedError: option 'endingOffsets': a stream has no end; use it with read

During handling of the above exception, another exception occurred:

UnboundLocalError: cannot access local variable 'reader' where it is not associated with a value"""
    words = "option 'endingOffsets': a stream has no end; use it with read"
    assert one_line(FakeSparkError(text)) == words


def test_an_error_of_spark_loses_its_plan_and_its_state() -> None:
    text = "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `x` cannot be resolved. SQLSTATE: 42703; l"
    assert one_line(FakeSparkError(text + "\n'Filter x")) == "A column `x` cannot be resolved."
    assert one_line(ValueError("ours")) == ""
