"""Files of pipelines: what they may say, and what is told about mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from queuelake.errors import ConfigError
from queuelake.pipeline.jobs.run_file import read_pipelines, statements

GOOD = """
[[pipeline]]
name = "alerts"
trigger = "10 seconds"

[pipeline.sources.readings]
queue = "$queue/telemetry"
schema = "vin STRING, celsius DOUBLE"

[[pipeline.steps]]
name = "hot"
sql = "SELECT * FROM readings WHERE celsius > 90"

[[pipeline.steps]]
sql = "SELECT vin AS key, celsius FROM hot"

[pipeline.sink]
queue = "$queue/alerts"

[[pipeline]]
name = "copy"
mode = "batch"
sources.fleet.path = "fleet.csv"
sink.path = "fleet.parquet"
"""


def written(tmp_path: Path, text: str, name: str = "p.toml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def mistakes(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_pipelines(path)
    return [mistake.removeprefix(f"{path}: ") for mistake in caught.value.mistakes]


def test_a_file_has_several_pipelines(tmp_path: Path) -> None:
    alerts, copy = read_pipelines(written(tmp_path, GOOD))
    assert (alerts.name, alerts.mode, alerts.trigger) == ("alerts", "stream", "10 seconds")
    assert alerts.sources["readings"].queue == "$queue/telemetry"
    assert [step.name for step in alerts.steps] == ["hot", ""]
    assert (copy.mode, copy.sink.path) == ("batch", str(tmp_path / "fleet.parquet"))


@pytest.mark.parametrize("name", ["p.toml", "p.sql"])
def test_a_relative_path_is_relative_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lines = [
        'name = "places"',
        'mode = "batch"',
        'sources.near.path = "fleet.csv"',
        'sources.above.path = "../fleet.csv"',
        'sources.there.path = "/srv/fleet.csv"',
        'sources.away.path = "s3a://bucket/fleet"',
        'sources.queue.queue = "$queue/fleet"',
        'sink.path = "out"',
        'checkpoint = "progress"',
    ]
    if name.endswith(".sql"):
        text = "\n".join(f"--! {line}" for line in lines) + "\nSELECT 1"
    else:
        text = "\n".join(["[[pipeline]]", *lines, 'steps = [{ sql = "SELECT 1" }]'])
    written(tmp_path, text, name)
    monkeypatch.chdir(tmp_path.parent)
    [one] = read_pipelines(Path(tmp_path.name, name))
    assert {source: it.path for source, it in one.sources.items()} == {
        "near": str(tmp_path / "fleet.csv"),
        "above": str(tmp_path / "../fleet.csv"),
        "there": "/srv/fleet.csv",
        "away": "s3a://bucket/fleet",
        "queue": "",
    }
    assert (one.sink.path, one.checkpoint) == (str(tmp_path / "out"), str(tmp_path / "progress"))


def test_sql_files_say_the_same_in_comments(tmp_path: Path) -> None:
    text = """-- What is too hot.
--! name = "alerts"
--! sources.readings = {queue = "$queue/telemetry", schema = "vin STRING, celsius DOUBLE"}
--! sink.queue = "$queue/alerts"

CREATE TEMPORARY VIEW hot AS
SELECT * FROM readings WHERE celsius > 90; -- a comment; with a semicolon
SELECT vin AS key, 'a;b' AS mark FROM hot;

--! name = "second"
--! mode = "batch"
--! sources.a.table = "messages"
--! sink.path = "out"
SELECT 1
"""
    alerts, second = read_pipelines(written(tmp_path, text, "p.sql"))
    assert [step.name for step in alerts.steps] == ["hot", ""]
    assert alerts.steps[0].sql == "SELECT * FROM readings WHERE celsius > 90"
    assert alerts.steps[1].sql == "SELECT vin AS key, 'a;b' AS mark FROM hot"
    assert (second.name, second.sources["a"].table) == ("second", "messages")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('queue = "$queue/alerts"', 'qeue = "x"', "pipeline 'alerts': sink.qeue: unknown key"),
        ('name = "alerts"', "", "pipeline 1: name: is missing"),
        ('name = "alerts"', 'name = "copy"', "two pipelines have the name 'copy'"),
        ('name = "hot"', "", "pipeline 'alerts': steps[1].name: is missing"),
        ("10 seconds", "soon", "pipeline 'alerts': trigger: 'soon'; allowed: 'available_now'"),
        ('mode = "batch"', "", "pipeline 'copy': mode: 'stream' needs a queue"),
        ('sink.path = "fleet.parquet"', "sink = {}", "pipeline 'copy': sink: give one of"),
        (
            'queue = "$queue/telemetry"',
            "",
            "pipeline 'alerts': sources.readings: give one of queue, table, path",
        ),
        ('queue = "$queue/telemetry"', "queue = 7", "pipeline 'alerts': sources.queue: Expected"),
        ("[[pipeline]]", "[[pipeline", "is no TOML"),
    ],
)
def test_a_mistake_is_told_with_pipeline_and_key(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    assert old in GOOD
    found = mistakes(written(tmp_path, GOOD.replace(old, new)))
    assert any(told in one for one in found), found


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("10 seconds", "soon").replace('sink.path = "fleet.parquet"', "sink = {}")
    assert len(mistakes(written(tmp_path, text))) == 2


def test_an_empty_file_and_another_kind_of_file(tmp_path: Path) -> None:
    assert "has no pipeline" in mistakes(written(tmp_path, ""))[0]
    assert "allowed: .toml, .sql" in mistakes(written(tmp_path, "", "p.yaml"))[0]
    assert "SQL before" in mistakes(written(tmp_path, "SELECT 1", "p.sql"))[0]


def test_statements_know_quotes_and_comments() -> None:
    assert statements("a 'x;--' /* ; */ ; -- c\n b \"y;\" ;;") == ["a 'x;--'", 'b "y;"']
