"""Logs: one line for each event, and never a payload or a password."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from queuelake.logs import configure_logging
from queuelake.settings import Log

log = logging.getLogger("queuelake.test")


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def lines(form: str, level: str = "info") -> tuple[io.StringIO, Log]:
    stream = io.StringIO()
    settings = Log(format=form, level=level)  # type: ignore[arg-type]
    configure_logging(settings, stream)
    return stream, settings


def test_json_is_one_object_for_each_record() -> None:
    stream, _ = lines("json")
    log.info("client %s connected", "c1", extra={"ip": "127.0.0.1"})
    logging.getLogger("queuelake.other").warning("store grew", extra={"bytes": 5, "level": "none"})
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["event"] == "client c1 connected"
    assert (first["level"], first["logger"], first["ip"]) == ("info", "queuelake.test", "127.0.0.1")
    assert (second["level"], second["bytes"]) == ("warning", 5)
    assert first["timestamp"].endswith("Z")


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_newline_from_a_client_or_an_error_makes_no_second_line(form: str) -> None:
    stream, _ = lines(form)
    log.info("client %s connected", "a\nforged")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("failed")
    text = stream.getvalue()
    assert len(text.splitlines()) == 2
    assert "ValueError: two" in text
    assert "test_logs.py" in text


@pytest.mark.parametrize("form", ["console", "json"])
def test_payloads_and_passwords_are_hidden(form: str) -> None:
    stream, _ = lines(form)
    log.info("login", extra={"password": "hunter2", "payload": b"hunter2"})
    log.info("login", extra={"secret": "hunter2", "Token": "hunter2"})
    assert "hunter2" not in stream.getvalue()
    assert len(stream.getvalue().splitlines()) == 2


def test_records_below_the_level_are_not_written() -> None:
    stream, _ = lines("json", "warning")
    log.info("quiet")
    log.error("loud")
    assert len(stream.getvalue().splitlines()) == 1


def test_a_line_for_people_has_columns_and_quotes_what_has_spaces() -> None:
    stream, _ = lines("console")
    log.warning("disk is nearly full", extra={"free": 5, "path": "/data", "advice": "make room"})
    written, _, line = stream.getvalue().partition(" ")
    assert datetime.fromisoformat(written).tzinfo == UTC
    assert line == (
        "[warning  ] disk is nearly full              [queuelake.test]"
        " advice='make room' free=5 path=/data\n"
    )


def test_colors_are_for_terminals() -> None:
    stream = Terminal()
    configure_logging(Log(), stream)
    log.warning("disk is nearly full")
    assert "\033[33mwarning" in stream.getvalue()
    assert "\033" not in plain_line()


def plain_line() -> str:
    stream, _ = lines("console")
    log.warning("disk is nearly full")
    return stream.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True
