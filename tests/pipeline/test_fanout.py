"""Fan-out of a table: every id once, in one commit; how far it is, and calling it off (13)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queuelake.errors import NotFoundError, RefusedError
from queuelake.pipeline.jobs import fanout
from queuelake.pipeline.jobs.fanout import Options
from tests.pipeline.staging_in_memory import JobWorld

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[JobWorld]:
    found = JobWorld(spark, tmp_path)
    yield found
    found.close()


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.csv"
    lines = [f"V{n % 300},{'T4' if n % 2 else 'T5'}" for n in range(600)]  # each vehicle twice
    path.write_text("\n".join(["vin,model", *lines, ",T4"]) + "\n")
    return path


@pytest.mark.rule("acceptance 13")
def test_acceptance_13_every_id_of_a_file_once_and_the_payload(
    world: JobWorld, fleet: Path, tmp_path: Path
) -> None:
    data = tmp_path / "map.bin"
    data.write_bytes(b"roads \x00 of spring")
    options = Options("map_7", source=str(fleet), id_column="vin", data=data)
    summary = fanout.run(world.context("fanout", "f1"), options)
    assert set(world.broker.pending["map_7"]) == {f"V{n}" for n in range(300)}
    name = hashlib.sha1(b"roads \x00 of spring").hexdigest()
    assert world.broker.data == {name: b"roads \x00 of spring"}
    assert summary.detail["vehicles"] == summary.detail["pending"] == 300
    again = fanout.run(world.context("fanout", "f1"), options)
    assert "as they were before" in again.words
    assert len(world.broker.batches) == 1


@pytest.mark.rule("acceptance 13")
def test_acceptance_13_cancel_for_half_of_them(
    world: JobWorld, fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fanout, "CANCEL_AT_ONCE", 40)
    sql = "SELECT DISTINCT vin AS id FROM fleet WHERE model = 'T4' AND vin IS NOT NULL"
    tables = {"fleet": str(fleet)}
    everybody = Options("ota_1", source=str(fleet), id_column="vin", data_id="fw-1")
    fanout.run(world.context("fanout"), everybody)
    half = Options("ota_1", sql=sql, tables=tables, cancel=True)
    summary = fanout.run(world.context("fanout"), half)
    assert summary.detail["cancelled"] == 150
    states = list(world.broker.pending["ota_1"].values())
    assert (states.count("pending"), states.count("cancelled")) == (150, 150)
    rest = fanout.run(world.context("fanout"), Options("ota_1", cancel=True))
    assert rest.detail["cancelled"] == 150


@pytest.mark.parametrize("kind", ["parquet", "delta", "json"])
def test_ids_come_from_every_kind_of_table(world: JobWorld, tmp_path: Path, kind: str) -> None:
    from deltalake import write_deltalake

    rows = world.spark.createDataFrame([("V1", 1), ("V2", 2)], "vin string, n int")
    path = tmp_path / f"fleet.{kind}"
    if kind == "delta":
        write_deltalake(path, rows.toArrow(), partition_by=["n"])
    else:
        rows.write.format(kind).save(str(path))
    options = Options("r", source=str(path), id_column="vin", data_id="d")
    fanout.run(world.context("fanout"), options)
    assert sorted(world.broker.pending["r"]) == ["V1", "V2"]


def test_it_is_watched_until_nobody_waits(
    world: JobWorld, fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = world.context("fanout")

    def answer(_: float) -> None:
        vehicles = world.broker.pending["w"]
        vehicles |= dict.fromkeys(list(vehicles)[: context.progress.done + 100], "acked")

    monkeypatch.setattr(context, "wait", answer)
    options = Options("w", source=str(fleet), id_column="vin", data_id="d", watch=True)
    summary = fanout.run(context, options)
    assert (summary.detail["acked"], summary.detail["pending"]) == (300, 0)
    assert context.progress.done == 300


def test_what_is_missing_is_told(world: JobWorld, fleet: Path, tmp_path: Path) -> None:
    context = world.context("fanout")
    with pytest.raises(RefusedError, match="'id' is not there; columns: vin, model"):
        fanout.run(context, Options("r", source=str(fleet), data_id="d"))
    with pytest.raises(NotFoundError, match="no such file"):
        fanout.run(context, Options("r", source=str(tmp_path / "none.csv"), data_id="d"))
    with pytest.raises(RefusedError, match="whom to"):
        Options("r", data_id="d")
    with pytest.raises(RefusedError, match="what"):
        Options("r", source="x")
    empty = tmp_path / "empty.csv"
    empty.write_text("id\n")
    with pytest.raises(NotFoundError, match="no id in it"):
        fanout.run(context, Options("r", source=str(empty), data_id="d"))
