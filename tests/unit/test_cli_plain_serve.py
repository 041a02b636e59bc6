"""A plain `serve` is read without the library of the other commands, and means the same."""

from __future__ import annotations

import pytest

from queuelake.cli.foreground import ServeOptions, plain_serve
from queuelake.cli.reading import CONFIG_VARIABLE
from tests.conftest import BrokerFactory

# They take longer to import than the broker itself, and stay in memory as long as it runs. What
# needs one of them says so in its settings, or is another command or a child process.
NOT_OF_THE_BROKER = {
    *("attr", "fastapi", "nats", "pyarrow", "pydantic", "rich", "typer", "uvicorn", "websockets"),
    "importlib.metadata",  # which comes with much of `email`
}


def test_options_are_pairs() -> None:
    words = ["serve", "-c", "q.toml", "--set", "a.b=1", "--data-dir", "d", "--set", "c=-2"]
    assert plain_serve(words) == ServeOptions("q.toml", "d", ["a.b=1", "c=-2"])
    assert plain_serve(["serve"]) == ServeOptions(None, None, [])


@pytest.mark.parametrize(
    "line",
    [
        "",
        "queue list",
        "serve --help",
        "serve --set",
        "serve --set=a=1",
        "serve x y",
        "serve --c q",
    ],
)
def test_anything_else_is_read_like_every_command(line: str) -> None:
    assert plain_serve(line.split()) is None


def test_the_environment_names_the_file_when_the_line_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(CONFIG_VARIABLE, "environment.toml")
    assert plain_serve(["serve"]) == ServeOptions("environment.toml", None, [])
    assert plain_serve(["serve", "--config", "q.toml"]) == ServeOptions("q.toml", None, [])
    monkeypatch.setenv(CONFIG_VARIABLE, "")
    assert plain_serve(["serve"]) == ServeOptions(None, None, [])


def test_a_broker_imports_what_it_needs(fresh_broker: BrokerFactory) -> None:
    """By name: how long it takes depends on the machine."""
    broker = fresh_broker(environment={"PYTHONPROFILEIMPORTTIME": "1"})
    lines = broker.stderr_path.read_text().splitlines()
    loaded = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    assert "queuelake.broker.server" in loaded
    assert loaded & NOT_OF_THE_BROKER == set()
