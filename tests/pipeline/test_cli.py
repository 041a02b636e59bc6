"""`queuelake pipeline`: what it says before Spark is started (P12, P13)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from queuelake.cli import main as cli
from queuelake.cli.pipeline_options import find_place
from queuelake.pipeline import session
from queuelake.pipeline.jobs.job import Place
from tests.harness.broker import BrokerProcess
from tests.pipeline.broker_in_memory import TOKEN
from tests.pipeline.staging_in_memory import StagingBroker

JOBS = [
    *("archive", "compact", "fanout", "redrive", "replay", "report", "reprocess", "retain", "run")
]


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    code = cli.run(["pipeline", *arguments])
    return code, capsys.readouterr().err.splitlines()


def place(**options: object) -> Place:
    given: dict[str, object] = dict.fromkeys(
        ("url", "token", "lake", "config", "data_dir", "assignments", "conf")
    )
    given |= {"tls_ca": "", "master": "local[*]", "remote": ""}
    return find_place(**(given | options))  # type: ignore[arg-type]


@pytest.mark.parametrize("job", JOBS)
def test_every_job_explains_itself(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["pipeline", job, "--help"]) == 0
    shown = capsys.readouterr().out
    for option in ("--url", "--token", "--lake", "--master", "--remote", "--conf", "--job-id"):
        assert option in shown
    assert "Examples:" in shown


@pytest.mark.rule("P13")
def test_p13_a_missing_extra_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    code, lines = told(capsys, "archive", "--once")
    assert code == 1
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert "pip install 'queuelake[spark]'" in lines[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["replay", "--queue", "a", "--to", "b", "--where", "(SELECT 1)"],
            "--where: 'SELECT' is part of a query",
        ),
        (["replay", "--queue", "a", "--to", "b", "--rate", "-1"], "--rate -1"),
        (["redrive", "--queue", "a", "--set-payload", "x; y"], "--set-payload: ';'"),
        (["fanout", "--request", "r", "--data-id", "d"], "whom to? give --from PATH"),
        (["fanout", "--request", "r", "--from", "x"], "give --data FILE"),
    ],
)
def test_wrong_options_are_told_in_one_line(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    code, lines = told(capsys, *arguments, "--data-dir", str(tmp_path))
    assert code == 1
    assert len(lines) == 1
    assert words in lines[0]


@pytest.mark.parametrize(
    "arguments",
    [
        ["archive", "--conf", "no-equals-sign"],
        ["report", "--since", "yesterday"],
        ["fanout", "--request", "r", "--sql", "SELECT 1", "--data-id", "d", "--table", "x"],
        ["run", "there-is-no-such-file.toml"],
        ["replay", "--queue", "a"],
        ["retain"],
        ["retain", "--older-than", "long ago"],
        ["compact", "--keep", "forever"],
        ["reprocess", "--wait", "-1"],
    ],
)
def test_wrong_usage_is_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert told(capsys, *arguments, "--data-dir", str(tmp_path))[0] == 2


def test_mistakes_of_a_file_are_told_one_line_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.toml"
    path.write_text('[[pipeline]]\nname = "a b"\nsink = {}\n[pipeline.sources.s]\nqueue = "q"\n')
    code, lines = told(capsys, "run", str(path), "--data-dir", str(tmp_path))
    assert code == 2
    assert lines == [
        f"error: {path}: pipeline 'a b': name: 'a b'; allowed: letters, digits and _",
        f"error: {path}: pipeline 'a b': sink: give one of queue, path",
    ]


@pytest.mark.rule("P12")
def test_p12_no_broker_is_told_soon_as_a_line_and_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuelake.pipeline.jobs.job.FIRST_ANSWER_S", "0")
    arguments = ["archive", "--once", "--url", "grpc://127.0.0.1:1", "--token", "a:b", "--json"]
    code = cli.run(["pipeline", *arguments, "--lake", str(tmp_path / "lake")])
    captured = capsys.readouterr()
    assert code == 1
    assert "error: no answer from grpc://127.0.0.1:1" in captured.err
    last = json.loads(captured.out.splitlines()[-1])
    assert (last["kind"], last["state"]) == ("archive", "failed")
    assert last["error"].startswith("no answer from")
    assert "Traceback" not in captured.err


def test_a_check_of_a_file_is_a_job_with_a_row_in_the_lake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from deltalake import DeltaTable

    path = tmp_path / "p.toml"
    text = '[[pipeline]]\nname = "a"\nsink.queue = "x"\n[pipeline.sources.s]\nqueue = "q"\n'
    path.write_text(text)
    broker = StagingBroker()
    arguments = ["run", str(path), "--check", "--job-id", "run-1"]
    where = ["--url", broker.uri, "--token", TOKEN, "--lake", str(tmp_path / "lake")]
    assert cli.run(["pipeline", *arguments, *where]) == 0
    assert capsys.readouterr().out == f"run: {path} is right: a\n"
    broker.shutdown()
    rows = DeltaTable(tmp_path / "lake" / "jobs").to_pyarrow_table().to_pylist()
    assert [(row["id"], row["kind"], row["state"]) for row in rows] == [("run-1", "run", "done")]


def test_the_lake_is_that_of_the_data_directory_unless_the_broker_is_elsewhere(
    tmp_path: Path,
) -> None:
    assert place(data_dir=str(tmp_path)).lake == str(tmp_path / "lake")
    assert place(url="grpc://far:1").lake == ""
    assert place(url="grpc://far:1", lake="s3://b/lake").lake == "s3://b/lake"
    assignments = ["lake.path=/mnt/lake"]
    assert place(data_dir=str(tmp_path), assignments=assignments).lake == "/mnt/lake"
    remote = place(remote="sc://host", conf=["a.b = c"])
    assert (remote.remote, remote.conf) == ("sc://host", {"a.b": "c"})


def test_a_running_broker_is_found_by_its_data_directory(lake_broker: BrokerProcess) -> None:
    found = place(data_dir=str(lake_broker.data_dir))
    assert found.url == f"flight://127.0.0.1:{lake_broker.flight_port}"
    assert found.token


def test_the_key_is_that_of_the_data_directory(tmp_path: Path) -> None:
    (tmp_path / "api-key").write_text("k:s\n")
    assert place(data_dir=str(tmp_path)).token == "k:s"
    assert place(data_dir=str(tmp_path), token="x:y").token == "x:y"
    assert place(data_dir=str(tmp_path)).url == "flight://127.0.0.1:18085"
