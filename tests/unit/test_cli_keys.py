"""`queuelake keys`: made, listed and removed; a wrong one is refused in one line."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from queuelake.apikey import Caller, KeyFile, ensure_api_key
from queuelake.cli import main as cli


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    ensure_api_key(tmp_path)
    return tmp_path


def run(data_dir: Path, *arguments: str) -> int:
    return cli.run(["keys", *arguments, "--data-dir", str(data_dir)])


def test_a_key_is_added_listed_and_removed(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = KeyFile(data_dir)
    assert run(data_dir, "add", "grafana") == 0
    key = capsys.readouterr().out.strip()
    assert keys.identify(key.encode()) == Caller("grafana", "viewer")
    assert keys.identify(key.encode() + b"x") is None
    assert stat.S_IMODE((data_dir / "api-keys").stat().st_mode) == 0o600
    assert key.partition(":")[2] not in (data_dir / "api-keys").read_text()
    assert run(data_dir, "add", "ci", "--role", "operator") == 0
    capsys.readouterr()
    assert run(data_dir, "list") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1:] == [["grafana", "viewer"], ["ci", "operator"]]
    assert lines[0][1] == "admin"
    assert run(data_dir, "rm", "grafana") == 0
    assert keys.identify(key.encode()) is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", "a:b"], "API key name 'a:b'"),
        (["add", "twice"], "API key 'twice' exists already"),
        (["rm", "nobody"], "there is no API key 'nobody'"),
    ],
)
def test_what_cannot_be_is_one_line(
    data_dir: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    run(data_dir, "add", "twice")
    assert run(data_dir, *arguments) == 2
    assert words in capsys.readouterr().err


def test_a_file_with_a_wrong_line_opens_nothing(data_dir: Path) -> None:
    (data_dir / "api-keys").write_text("a:viewer:00\n")
    first = (data_dir / "api-key").read_bytes().strip()
    assert KeyFile(data_dir).identify(b"a:x") is None
    assert KeyFile(data_dir).identify(first) == Caller(first.partition(b":")[0].decode(), "admin")
