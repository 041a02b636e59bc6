"""Every command of the command line is run by some test, and a shell can be taught all of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from queuelake.cli.commands import app
from tests.harness.broker import package_root

TESTS = Path(__file__).resolve().parents[1]


def commands(command: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield above
        return
    for name, one in below.items():
        yield from commands(one, (*above, name))


COMMANDS = list(commands(typer.main.get_command(app)))


@cache
def sources() -> tuple[str, ...]:
    here = Path(__file__)
    return tuple(path.read_text() for path in TESTS.rglob("*.py") if path != here)


def is_run(words: tuple[str, ...], source: str) -> bool:
    """Whether a test starts a command line with these words, or a helper of its puts the first
    one in front of what the tests say."""
    line = r",\s*".join(re.escape(f'"{word}"') for word in words)
    if re.search(rf"[(\[]\s*{line}", source):
        return True
    group, *rest = words
    helped = re.search(rf'\[\s*"{group}", \*', source)
    said = rf'[(\[](?:\w+, )?\s*"{re.escape(rest[-1])}"' if rest else ""
    return bool(rest and helped and re.search(said, source))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_a_test(words: tuple[str, ...]) -> None:
    assert any(is_run(words, source) for source in sources()), f"no test runs {' '.join(words)}"


def test_a_command_which_no_test_runs_is_found() -> None:
    assert not any(is_run(("queue", "paint"), source) for source in sources())
    assert ("queue", "list") in COMMANDS
    assert len(COMMANDS) > 50


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_be_taught(shell: str) -> None:
    shown = run({"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}, "--show-completion", shell)
    assert "_QUEUELAKE_COMPLETE" in shown.upper()


def test_commands_are_completed() -> None:
    completed = run(
        {
            "_QUEUELAKE_COMPLETE": "complete_bash",
            "COMP_WORDS": "queuelake queue p",
            "COMP_CWORD": "2",
        }
    )
    assert completed.split() == ["purge", "peek"]


def run(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "queuelake.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=os.environ | {"PYTHONPATH": package_root()} | environment,
    )
    return done.stdout
