"""The jobs a broker knows of: what they told, who is lost, who is to stop."""

from __future__ import annotations

import pytest

from queuelake.broker.pipeline.jobs import ENDED_MAX, JobEndedError, JobRunsError, Jobs
from queuelake.errors import NotFoundError, RefusedError
from queuelake.flight import JobTold
from queuelake.storage import api
from tests.simulation.node import Node


class JobsNode(Node):
    def _start(self) -> None:
        super()._start()
        self.jobs = Jobs(self.store, self.broker.runner, self.broker.clock)

    def tell(self, job_id: str = "j", **fields: object) -> bool:
        answer = self.jobs.tell(JobTold(job_id, "archive", **fields))  # type: ignore[arg-type]
        self.work()
        return answer.cancel


def test_what_a_job_told_last_survives_a_restart() -> None:
    node = JobsNode()
    node.tell(done=1, total=10, started_ms=5)
    node.tell(done=7, total=10, started_ms=5, detail={"queue": "q"})
    node.crash()
    assert node.jobs.get("j") == JobTold(
        "j", "archive", done=7, total=10, started_ms=5, detail={"queue": "q"}
    )
    node.tell(state="done", done=10, total=10)
    assert node.jobs.get("j").state == "done"
    assert node.jobs.get("j").started_ms == 5


def test_a_silent_job_is_lost_until_it_tells_again() -> None:
    node = JobsNode()
    node.tell()
    node.pass_time(59_000)
    assert node.jobs.get("j").state == "running"
    node.crash()
    node.pass_time(59_000)
    assert node.jobs.get("j").state == "running"
    node.pass_time(1_000)
    assert node.jobs.get("j").state == "lost"
    assert node.jobs.page(10, "").items[0].state == "lost"
    node.tell()
    assert node.jobs.get("j").state == "running"


def test_a_job_hears_that_it_is_to_stop_and_its_next_run_does_not() -> None:
    node = JobsNode()
    assert not node.tell(started_ms=1)
    node.jobs.cancel("j")
    node.work()
    node.crash()
    assert node.tell(started_ms=1)
    assert node.tell(started_ms=1)
    node.tell(state="cancelled", started_ms=1)
    with pytest.raises(JobEndedError, match="is cancelled"):
        node.jobs.cancel("j")
    assert not node.tell(started_ms=2)


def test_a_job_which_runs_is_not_started_twice() -> None:
    node = JobsNode()
    node.jobs.start(JobTold("j", "archive"))
    with pytest.raises(JobRunsError):
        node.jobs.start(JobTold("j", "archive"))
    node.pass_time(60_000)
    node.jobs.start(JobTold("j", "archive"))


def test_a_job_which_is_starting_can_be_stopped() -> None:
    node = JobsNode()
    node.jobs.start(JobTold("j", "archive"))
    node.jobs.cancel("j")
    node.work()
    assert node.tell(started_ms=node.broker.clock.now_ms() + 5_000)


def test_pages_hold_the_newest_first() -> None:
    node = JobsNode()
    for number in range(7):
        node.tell(f"j{number}", started_ms=1 + number // 2)
    seen: list[str] = []
    cursor = ""
    while True:
        page = node.jobs.page(3, cursor)
        seen += [job.id for job in page.items]
        if page.next is None:
            break
        cursor = page.next
    assert seen == ["j6", "j5", "j4", "j3", "j2", "j1", "j0"]
    with pytest.raises(RefusedError, match="cursor is 'x'"):
        node.jobs.page(3, "x")


def test_only_the_last_which_ended_are_kept() -> None:
    node = JobsNode()
    node.tell("runs", started_ms=1)
    for number in range(ENDED_MAX + 10):
        node.jobs.tell(JobTold(f"j{number}", "report", state="done", started_ms=number + 2))
    node.work()
    node.tell("last")
    assert len(node.store.tables[api.JOBS]) == ENDED_MAX + 2
    assert node.jobs.get("runs").state == "running"
    with pytest.raises(NotFoundError, match="there is no job 'j9'"):
        node.jobs.get("j9")
    assert node.jobs.get("j10").state == "done"


def test_a_failed_commit_loses_nothing_that_was_told() -> None:
    node = JobsNode()
    node.store.fail_commits = 1
    node.tell(state="done")
    node.pass_time(2_000)
    node.crash()
    assert node.jobs.get("j").state == "done"


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        (JobTold("", "archive"), "job id has 0 characters"),
        (JobTold("x" * 201, "archive"), "job id has 201 characters"),
        (JobTold("j", "archive", state="lost"), "is lost"),
        (JobTold("j", "archive", message="x" * 70_000), "tells 7.* bytes, may be 65536"),
    ],
)
def test_what_a_job_may_tell_is_limited(told: JobTold, problem: str) -> None:
    with pytest.raises(RefusedError, match=problem):
        JobsNode().jobs.tell(told)
