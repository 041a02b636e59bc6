"""`run FILE` on a real broker: from a queue, through SQL, to a queue and to files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queuelake.apikey import read_api_key
from queuelake.errors import RefusedError
from queuelake.pipeline.jobs import run
from queuelake.pipeline.jobs.job import JobContext, Place
from tests.harness.broker import BrokerProcess
from tests.queues.client import QueueClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = """
[[pipeline]]
name = "alerts"

[pipeline.sources.readings]
queue = "$queue/NAME"
schema = "vin STRING, celsius DOUBLE"

[[pipeline.steps]]
name = "hot"
sql = "SELECT vin, celsius FROM readings WHERE celsius > 90"

[[pipeline.steps]]
sql = "SELECT vin AS key, vin, celsius, map('kind', 'alert') AS properties FROM hot"

[pipeline.sink]
queue = "$queue/NAME/alerts"
"""
BATCH = """
--! name = "counted"
--! mode = "batch"
--! sources.readings = {queue = "$queue/NAME", schema = "vin STRING, celsius DOUBLE"}
--! sources.fleet.path = "FOLDER/fleet.csv"
--! sink.path = "FOLDER/out"
CREATE TEMPORARY VIEW counts AS SELECT vin, count(*) AS n FROM readings GROUP BY vin;
SELECT owner, n FROM counts JOIN fleet USING (vin);

--! name = "copied"
--! mode = "batch"
--! sources.all_of_it.queue = "$queue/NAME"
--! sink.queue = "$queue/NAME/copy"
SELECT payload, key FROM all_of_it
"""


@pytest.fixture
def context(lake_broker: BrokerProcess, spark: SparkSession, tmp_path: Path) -> JobContext:
    url = f"grpc://127.0.0.1:{lake_broker.flight_port}"
    place = Place(url, read_api_key(lake_broker.data_dir), str(tmp_path / "lake"))
    return JobContext("run", place, "run-1", spark)


def written(tmp_path: Path, name: str, text: str, queue: str) -> run.Options:
    path = tmp_path / name
    path.write_text(text.replace("NAME", queue).replace("FOLDER", str(tmp_path)))
    return run.Options(path)


def publish(producer: QueueClient, queue: str, *readings: tuple[str, float]) -> None:
    for vin, celsius in readings:
        payload = json.dumps({"vin": vin, "celsius": celsius})
        assert producer.publish(queue, payload, user={"partition-key": vin}) == 0


def rows_of(context: JobContext, queue: str) -> list[tuple[str | None, str, dict[str, str]]]:
    rows = (
        context.spark.read.format("queuelake")
        .options(**context.place.options())
        .option("queue", queue)
        .load()
        .collect()
    )
    return sorted((row.key, bytes(row.payload).decode(), row.properties) for row in rows)


def test_a_stream_goes_on_where_the_last_run_ended(
    context: JobContext, tmp_path: Path, producer: QueueClient, queue_name: str
) -> None:
    options = written(tmp_path, "p.toml", STREAM, queue_name)
    publish(producer, queue_name, ("V1", 80.0), ("V2", 95.5))
    assert run.run(context, options).detail == {"alerts": 2}
    alerts = f"$queue/{queue_name}/alerts"
    (key, payload, properties), *rest = rows_of(context, alerts)
    assert not rest
    assert (key, json.loads(payload)) == ("V2", {"vin": "V2", "celsius": 95.5})
    assert properties["kind"] == "alert"
    publish(producer, queue_name, ("V3", 99.0))
    assert run.run(context, options).detail == {"alerts": 1}
    assert [row[0] for row in rows_of(context, alerts)] == ["V2", "V3"]


def test_batches_go_to_files_and_to_a_queue_once_for_each_job(
    context: JobContext, tmp_path: Path, producer: QueueClient, queue_name: str
) -> None:
    (tmp_path / "fleet.csv").write_text("vin,owner\nV1,anna\nV2,bert\n")
    options = written(tmp_path, "p.sql", BATCH, queue_name)
    publish(producer, queue_name, ("V1", 1.0), ("V1", 2.0), ("V2", 3.0))
    assert run.run(context, options).detail == {"counted": 2, "copied": 3}
    out = context.spark.read.parquet(str(tmp_path / "out")).orderBy("owner").collect()
    assert [(row.owner, row.n) for row in out] == [("anna", 2), ("bert", 1)]
    run.run(context, options)  # the same job id: the queue has that batch
    assert [row[0] for row in rows_of(context, f"$queue/{queue_name}/copy")] == ["V1", "V1", "V2"]


def test_only_the_named_pipelines_run(tmp_path: Path) -> None:
    options = written(tmp_path, "p.sql", BATCH, "q")
    only = run.Options(options.file, ("copied",))
    assert [one.name for one in only.pipelines()] == ["copied"]
    with pytest.raises(RefusedError, match="has no pipeline 'other'; has: counted, copied"):
        run.Options(options.file, ("other",)).pipelines()


def test_a_query_which_writes_is_refused_with_its_place(
    context: JobContext, tmp_path: Path, queue_name: str, producer: QueueClient
) -> None:
    publish(producer, queue_name, ("V1", 1.0))
    text = BATCH.replace("SELECT payload, key FROM all_of_it", "DROP TABLE all_of_it")
    options = written(tmp_path, "p.sql", text, queue_name)
    with pytest.raises(RefusedError, match=r"pipeline 'copied': steps\[1\].sql: 'DROP"):
        run.run(context, run.Options(options.file, ("copied",)))


def test_columns_which_a_queue_does_not_know_become_the_payload(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 'a' AS key, 1 AS n, 'x' AS word")
    found = run.for_queue(rows).collect()[0]
    assert json.loads(bytes(found.payload)) == {"n": 1, "word": "x"}
    assert (found.key, found.content_type) == ("a", "application/json")
    as_it_is = spark.sql("SELECT binary('p') AS payload")
    assert run.for_queue(as_it_is).columns == ["payload"]
    with pytest.raises(RefusedError, match="no column for the payload"):
        run.for_queue(spark.sql("SELECT 'a' AS key"))
