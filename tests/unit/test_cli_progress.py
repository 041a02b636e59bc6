"""Progress is for people at a terminal: it follows the work, and nobody else sees it."""

from __future__ import annotations

import io
import threading

import pytest

from queuelake.cli.progress import watched


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_how_far_it_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    asked = threading.Event()

    def done() -> int:
        asked.set()
        return 30

    with watched("purge", 40, done):
        assert asked.wait(10)
    assert "purge" in terminal.getvalue()


def test_a_failed_look_does_not_disturb_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    asked = threading.Event()

    def done() -> int:
        asked.set()
        raise OSError("gone")

    with watched("backup", 40, done):
        assert asked.wait(10)


def test_a_pipe_sees_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with watched("purge", 40, lambda: 1):
        pass
    assert capsys.readouterr() == ("", "")
