"""The command line as a whole: help, exit codes, configuration, and no traceback ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from queuelake.cli import main as cli
from queuelake.errors import RefusedError, StorageError
from tests.harness.broker import package_root


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "queuelake.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": package_root(), "COLUMNS": "120"},
    )


@pytest.mark.parametrize(
    "command",
    ["", "serve", "pub", "sub", "users", "users add", "ecq", "sdv", "backup", "doctor", "config"],
)
def test_help_teaches_by_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*command.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert "Usage:" in text
    if command != "users add":
        assert "Examples:" in text


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from queuelake.cli import main; main.run(['--help']);"
        "heavy = ('msgspec', 'paho', 'lmdb', 're2', 'argon2', 'asyncio', 'ssl');"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": package_root()},
    )
    assert done.stderr.strip() == "[]"


def test_wrong_usage_ends_with_2() -> None:
    for arguments in (["nosuch"], ["pub"], ["users", "add"], ["serve", "--nosuch"]):
        done = run(*arguments)
        assert done.returncode == 2, done
        assert "Traceback" not in done.stderr


def test_every_mistake_of_the_configuration_is_a_line_and_the_code_2(tmp_path: Path) -> None:
    path = tmp_path / "q.toml"
    path.write_text("[http]\nport = -1\nprot = 2")
    for command in ("serve", "config check", "config show"):
        done = run(*command.split(), "--config", str(path), "--set", "log.level=loud")
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.splitlines() == [
            f"error: file {path}: http.port = -1: allowed: an integer from 0 to 65535",
            f"error: file {path}: http.prot = 2: unknown key; did you mean http.port?",
            'error: --set: log.level = "loud": allowed: "debug", "error", "info", "warning"',
        ]


def test_config_show_is_toml_that_loads_and_hides_the_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = ["--set", "auth.jwt.secret=hunter2", "--set", "auth.platform_users=['a\"b\\n']"]
    acl = 'acl=[{permission="deny",topics=["a/#"],platform=true}]'
    assert cli.run(["config", "show", "--data-dir", "/d", *sets, "--set", acl]) == 0
    text = capsys.readouterr().out
    assert "hunter2" not in text
    table = tomllib.loads(text)
    assert table["data_dir"] == "/d"
    assert table["listeners"]["ws"]["port"] == 8083
    assert table["auth"]["platform_users"] == ['a"b\\n']
    path = tmp_path / "q.toml"
    path.write_text(text)
    assert cli.run(["config", "check", "--config", str(path)]) == 0
    assert cli.run(["config", "show", "--config", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert shown["acl"][0]["topics"] == ["a/#"]


def test_the_config_file_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "q.toml"
    path.write_text("[http]\nport = 7")
    monkeypatch.setenv("QUEUELAKE_CONFIG", str(path))
    monkeypatch.setenv("QUEUELAKE__LOG__LEVEL", "debug")
    assert cli.run(["config", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["http"]["port"], shown["log"]["level"]) == (7, "debug")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["version"]) == 0
    assert capsys.readouterr().out.startswith("queuelake ")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (StorageError("store x\ncannot be opened"), 1, "error: store x cannot be opened"),
        (RefusedError("no"), 1, "error: no"),
        (PermissionError(13, "Permission denied", "/x"), 1, "error: /x: Permission denied"),
        (TypeError("oops"), 1, "error: internal error, please report it: TypeError: oops"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_error_is_one_line(
    error: BaseException,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_arguments: object) -> None:
        raise error

    monkeypatch.setattr("queuelake.cli.configuration.read_settings", fail)
    monkeypatch.delenv(cli.DEBUG_VARIABLE, raising=False)
    assert cli.run(["config", "check"]) == code
    captured = capsys.readouterr().err
    assert captured.startswith(line)
    assert len(captured.splitlines()) == (1 if line else 0)
