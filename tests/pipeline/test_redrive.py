"""Redrive: dead letters go back where they came from, once, and it is written down (12)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from queuelake.errors import NotFoundError
from queuelake.pipeline.jobs import redrive
from queuelake.pipeline.jobs.job import JobStoppedError
from queuelake.pipeline.jobs.redrive import Options
from tests.pipeline.staging_in_memory import JobWorld

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DLQ = "$queue/dlq/orders"


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[JobWorld]:
    found = JobWorld(spark, tmp_path)
    yield found
    found.close()


def bury(world: JobWorld, payload: bytes, reason: str, queue: str = "$queue/orders") -> None:
    number = world.broker.put(
        DLQ,
        payload,
        key="k1",
        message_id=f"{DLQ}:0:1",
        content_type="text/plain",
        properties=[
            ("colour", "red"),
            ("dlq-original-queue", queue),
            ("dlq-original-topic", f"{queue}/sub"),
            ("dlq-original-id", payload.decode()),
            ("dlq-reason", reason),
            ("dlq-delivery-count", "3"),
            ("dlq-first-attempt", "2026-11-16T04:20:41.102Z"),
        ],
    )
    assert number


def audit(world: JobWorld) -> list[dict[str, Any]]:
    rows = world.lake.read(world.spark, "redrives").orderBy("from_seqno").collect()
    return [row.asDict() for row in rows]


@pytest.mark.rule("acceptance 12")
def test_acceptance_12_chosen_letters_go_back_mended(world: JobWorld) -> None:
    bury(world, b"price EURO", "max_retries")
    bury(world, b"fine", "rejected")
    bury(world, b"cost EURO", "max_retries")
    options = Options(
        DLQ,
        where="reason = 'max_retries' AND delivery_count = 3 AND first_attempt < now()",
        set_payload="replace(string(payload), 'EURO', 'EUR')",
    )
    summary = redrive.run(world.context("redrive", "r1"), options)
    assert summary.detail == {"rows": 2}
    assert world.sent("$queue/orders") == ["price EUR", "cost EUR"]
    row = world.broker.queues["$queue/orders"][0]
    assert dict(row["properties"]) == {"colour": "red"}
    assert (row["key"], row["message_id"], row["topic"]) == (
        "k1",
        "price EURO",
        "$queue/orders/sub",
    )
    assert (row["from_queue_id"], row["from_partition"], row["from_seqno"]) == (f"ab12-{DLQ}", 0, 1)
    kept = audit(world)
    assert [(one["from_seqno"], one["reason"], one["changed"], one["moved"]) for one in kept] == [
        (1, "max_retries", True, True),
        (3, "max_retries", True, True),
    ]
    assert {one["to_queue"] for one in kept} == {"$queue/orders"}


def test_each_letter_goes_to_its_own_queue(world: JobWorld) -> None:
    for number in range(6):
        bury(world, f"m{number}".encode(), "timeout", f"$queue/q{number % 2}")
    redrive.run(world.context("redrive"), Options(DLQ))
    assert world.sent("$queue/q0") == ["m0", "m2", "m4"]
    assert world.sent("$queue/q1") == ["m1", "m3", "m5"]
    assert [one["changed"] for one in audit(world)] == [False] * 6


def test_a_crash_before_the_audit_is_mended_by_the_next_run(
    world: JobWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrive, "BATCH_ROWS", 2)
    for number in range(6):
        bury(world, f"m{number}".encode(), "timeout")
    first = world.context("redrive", "r2")

    def crash(self: redrive.Audit, number: int, *others: object) -> None:
        if number == 1:
            raise JobStoppedError("killed")
        write(self, number, *others)  # type: ignore[arg-type]

    write = redrive.Audit._write
    monkeypatch.setattr(redrive.Audit, "_write", crash)
    with pytest.raises(JobStoppedError):
        redrive.run(first, Options(DLQ))
    assert len(world.sent("$queue/orders")) == 4
    assert len(audit(world)) == 2
    monkeypatch.setattr(redrive.Audit, "_write", write)
    summary = redrive.run(world.context("redrive", "r2"), Options(DLQ))
    assert summary.detail == {"rows": 6}
    assert world.sent("$queue/orders") == [f"m{number}" for number in range(6)]
    assert [one["from_seqno"] for one in audit(world)] == [1, 2, 3, 4, 5, 6]


def test_what_somebody_else_took_meanwhile_is_told(world: JobWorld) -> None:
    bury(world, b"m0", "timeout")
    bury(world, b"m1", "timeout")
    world.broker.gone.add((f"ab12-{DLQ}", 0, 1))
    summary = redrive.run(world.context("redrive"), Options(DLQ))
    assert summary.detail == {"rows": 1, "no longer there": 1}
    assert [one["moved"] for one in audit(world)] == [None, None]


def test_a_dry_run_counts_by_queue_and_reason(world: JobWorld) -> None:
    bury(world, b"m0", "timeout")
    bury(world, b"m1", "timeout")
    bury(world, b"m2", "rejected")
    summary = redrive.run(world.context("redrive"), Options(DLQ, dry_run=True))
    assert summary.detail == {"$queue/orders, rejected": 1, "$queue/orders, timeout": 2}
    assert world.broker.queues == {}


def test_no_queue_of_dead_letters_is_told(world: JobWorld) -> None:
    with pytest.raises(NotFoundError, match="there is no queue"):
        redrive.run(world.context("redrive"), Options("$queue/dlq/none"))
