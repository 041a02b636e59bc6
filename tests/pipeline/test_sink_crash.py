"""P7 through Spark: kill -9 of the broker when all rows are staged and none is committed.

The kill hits that very point. One task waits in the middle of its rows; then the broker is
stopped, so that the task can end, which needs the export process only, and nothing be committed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark import TaskContext

from tests.conftest import BrokerFactory
from tests.crash.ports import free_port
from tests.harness.broker import BrokerProcess
from tests.pipeline.conftest import options_of
from tests.pipeline.queue_frames import Queue, names, numbers
from tests.queues.client import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS = 2
ROWS = 120_000
HELD_AT = 40_000  # rows of a task: buffers on the way keep the last of them, but not the first
JOB = "nightly"
STEP_S = 240.0


@pytest.fixture
def broker(fresh_broker: BrokerFactory) -> BrokerProcess:
    ports = {"listeners.mqtt.port": free_port(), "flight.port": free_port()}
    depth = {"queues.defaults.limits.max_queue_depth": 10 * ROWS}
    return fresh_broker({"flight.enabled": True} | ports | depth)


@pytest.fixture
def queue(spark: SparkSession, broker: BrokerProcess) -> Queue:
    return Queue(spark, options_of(broker), "staged")


def held_back(frame: DataFrame, flag: Path) -> DataFrame:
    """The same rows; the last task stays in the middle of its own until there is the flag."""

    def waits(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        given = 0
        for batch in batches:
            while context.partitionId() == TASKS - 1 and given > HELD_AT and not flag.exists():
                time.sleep(0.02)
            yield batch
            given += batch.num_rows

    return frame.mapInArrow(waits, frame.schema)


def kill_between_stage_and_commit(broker: BrokerProcess, flag: Path) -> None:
    def staged(pattern: str, count: int) -> Callable[[], bool]:
        return lambda: len(list(broker.data_dir.glob(f"staging/*/0/{pattern}"))) == count

    try:
        wait_until(staged("*.arrow", TASKS - 1), STEP_S)
        wait_until(staged("*.part", 1), STEP_S)
        os.kill(broker.pid, signal.SIGSTOP)
    finally:
        flag.touch()  # the task ends, whatever comes
    wait_until(staged("*.arrow", TASKS), STEP_S)
    broker.kill()


@pytest.mark.rule("P7")
def test_p7_a_broker_killed_between_stage_and_commit_is_asked_again_by_the_write(
    queue: Queue, broker: BrokerProcess, tmp_path: Path
) -> None:
    def kill_and_restart() -> None:
        kill_between_stage_and_commit(broker, flag)
        broker.start()

    frame, flag = numbers(queue.spark, 0, ROWS, TASKS), tmp_path / "flag"
    with ThreadPoolExecutor(1) as thread:
        killing = thread.submit(kill_and_restart)
        queue.append(held_back(frame, flag), jobId=JOB, retry_s="120")
        killing.result()
    assert queue.payloads() == names(0, ROWS)
    queue.append(frame, jobId=JOB)
    assert queue.payloads() == names(0, ROWS)


@pytest.mark.rule("P7")
@pytest.mark.slow
def test_p7_a_write_which_failed_between_stage_and_commit_is_run_again_under_its_job_id(
    queue: Queue, broker: BrokerProcess, tmp_path: Path
) -> None:
    frame, flag = numbers(queue.spark, 0, ROWS, TASKS), tmp_path / "flag"
    with ThreadPoolExecutor(1) as thread:
        killing = thread.submit(kill_between_stage_and_commit, broker, flag)
        assert "no answer from" in queue.refused(held_back(frame, flag), jobId=JOB, retry_s="0")
        killing.result()
    broker.start()
    queue.append(numbers(queue.spark, ROWS, ROWS + 1), jobId="another")  # so there is a queue
    assert queue.payloads() == names(ROWS, ROWS + 1)
    queue.append(frame, jobId=JOB)
    assert queue.payloads() == names(0, ROWS + 1)
