"""Replay: which rows, in which order, how often (acceptance 11)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from queuelake.errors import AnswerError, RefusedError
from queuelake.pipeline.jobs import plan, replay
from queuelake.pipeline.jobs.job import JobStoppedError
from queuelake.pipeline.jobs.plan import after_last
from queuelake.pipeline.jobs.replay import Options
from tests.pipeline.staging_in_memory import JobWorld

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FROM, TO = "$queue/orders", "$queue/again"


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[JobWorld]:
    found = JobWorld(spark, tmp_path)
    yield found
    found.close()


@pytest.mark.rule("acceptance 11")
def test_acceptance_11_a_dry_run_counts_and_sends_nothing(world: JobWorld) -> None:
    world.archived(FROM, 10)
    options = Options(FROM, TO, where="properties['colour'] = 'blue'", dry_run=True)
    summary = replay.run(world.context("replay"), options)
    assert summary.detail == {
        "rows": 4,
        "bytes": 8,
        "first": "2026-11-01T00:00:00.000Z",
        "last": "2026-11-01T00:00:09.000Z",
    }
    assert world.broker.queues == {}


@pytest.mark.rule("acceptance 11")
def test_acceptance_11_rows_are_sent_in_order_with_their_story(world: JobWorld) -> None:
    world.archived(FROM, 10)
    context = world.context("replay", "j1")
    replay.run(context, Options(FROM, TO, where="key = 'k1'", order_by="ts DESC"))
    rows = world.broker.queues[TO]
    assert [row["payload"] for row in rows] == [b"m9", b"m7", b"m5", b"m3", b"m1"]
    assert [row["message_id"] for row in rows] == [f"replay:j1:{n}" for n in range(5)]
    first = dict(rows[0]["properties"])
    assert first == {"colour": "blue", "original-ts": "2026-11-01T00:00:09.000000Z"}
    assert (rows[0]["key"], rows[0]["content_type"]) == ("k1", "text/plain")
    assert (context.progress.done, context.progress.total) == (5, 5)


@pytest.mark.rule("acceptance 11")
def test_acceptance_11_a_stopped_replay_continues_without_doubles(
    world: JobWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "BATCH_ROWS", 3)
    world.archived(FROM, 10)
    first = world.context("replay", "j2")
    world.broker.on_commit = lambda: len(world.broker.batches) == 2 and first.stop()
    with pytest.raises(JobStoppedError):
        replay.run(first, Options(FROM, TO))
    first.ended()  # or it would call off, in ten seconds, what the tests after it do with Spark
    assert len(world.sent(TO)) == 6
    world.archived(FROM, 10)  # more came meanwhile: the plan is what it was
    summary = replay.run(world.context("replay", "j2"), Options(FROM, TO))
    assert world.sent(TO) == [f"m{n}" for n in range(10)]
    assert summary.detail == {"rows": 10}
    ids = [row["message_id"] for row in world.broker.queues[TO]]
    assert ids == [f"replay:j2:{n}" for n in range(10)]


@pytest.mark.rule("acceptance 11")
def test_acceptance_11_the_rate_is_kept(world: JobWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.archived(FROM, 10)
    context = world.context("replay")
    waits: list[float] = []
    monkeypatch.setattr(context, "wait", waits.append)
    replay.run(context, Options(FROM, TO, rate=4))
    assert waits == [1.0, 1.0]  # 4 + 4 + 2 rows
    assert len(world.sent(TO)) == 10


def test_a_job_id_belongs_to_its_options(world: JobWorld) -> None:
    world.archived(FROM, 2)
    replay.run(world.context("replay", "j3"), Options(FROM, TO))
    with pytest.raises(RefusedError, match="was begun with other options"):
        replay.run(world.context("replay", "j3"), Options(FROM, "$queue/other"))
    assert len(world.sent(TO)) == 2


def test_a_replay_which_is_done_adds_nothing_when_it_is_run_again(world: JobWorld) -> None:
    world.archived(FROM, 2)
    for _ in range(2):
        summary = replay.run(world.context("replay", "j4"), Options(FROM, TO))
        assert summary.detail == {"rows": 2}
    assert world.sent(TO) == ["m0", "m1"]


def test_a_refused_batch_ends_it_with_the_words_of_the_queue(world: JobWorld) -> None:
    world.archived(FROM, 2)
    world.broker.refusal = "QUOTA_EXCEEDED: queue '$queue/again' holds 5 of 5 messages"
    with pytest.raises(AnswerError, match="holds 5 of 5 messages"):
        replay.run(world.context("replay", "j5"), Options(FROM, TO))
    world.broker.refusal = ""
    replay.run(world.context("replay", "j5"), Options(FROM, TO))
    assert world.sent(TO) == ["m0", "m1"]


@pytest.mark.parametrize("kept", [500, 1000])
@pytest.mark.parametrize("batches", [0, 1, 2, 499, 500, 501, 1200, 3000])
def test_the_last_batch_is_found_also_when_old_ones_are_forgotten(batches: int, kept: int) -> None:
    class Known:
        calls = 0
        last = -1

        def call(self, op: str, args: dict[str, Any]) -> object:
            self.calls += 1
            return {} if self.last - kept < args["batch"] <= self.last else None

    for last in {-1, 0, batches // 3, batches - 2, batches - 1}:
        if -1 <= last < batches:
            known = Known()
            known.last = last
            assert after_last(known, "j", batches) == last + 1  # type: ignore[arg-type]
            assert known.calls <= batches // plan.BATCHES_KEPT + 12
