"""Logs: one line for each event, on stderr, for people (`console`) or machines (`json`).

The library logs through the standard `logging` module; here, at the edge, records become text.
Rules: a line is one line, whatever a message or an exception holds; a value whose name says that it
is a payload or a secret is not written.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from queuelake.settings import Log

HIDDEN_NAMES = frozenset({"password", "passwd", "payload", "secret", "token", "authorization"})
FRAMES_MAX = 8
LEVEL_WIDTH = 9
EVENT_WIDTH = 32

Fields = dict[str, object]

_RESET, _BOLD, _DIM = "\033[0m", "\033[1m", "\033[2m"
_RED, _GREEN, _YELLOW, _BLUE = "\033[31m", "\033[32m", "\033[33m", "\033[34m"
_LEVEL_COLORS = {"critical": _RED, "error": _RED, "warning": _YELLOW}
# What every record has; the rest is what the caller gave as `extra`.
_OF_EVERY_RECORD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


def configure_logging(log: Log, stream: TextIO | None = None) -> None:
    """Send every record at or above `log.level` to `stream`; call again to change the format."""
    output = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(output)
    handler.setFormatter(
        JsonFormatter() if log.format == "json" else ConsoleFormatter(colors=output.isatty())
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(log.level.upper())
    logging.captureWarnings(True)


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(fields_of(record), default=str)


class ConsoleFormatter(logging.Formatter):
    def __init__(self, colors: bool) -> None:
        super().__init__()
        self._colors = colors

    def format(self, record: logging.LogRecord) -> str:
        fields = fields_of(record)
        event, level, logger, timestamp = (
            str(fields.pop(name)) for name in ("event", "level", "logger", "timestamp")
        )
        parts = [
            self._painted(_DIM, timestamp),
            f"[{self._painted(_LEVEL_COLORS.get(level, _GREEN), level.ljust(LEVEL_WIDTH))}]",
            self._painted(_BOLD, event.ljust(EVENT_WIDTH)),
            f"[{self._painted(_BLUE, logger)}]",
        ]
        parts += [f"{name}={_shown(fields[name])}" for name in sorted(fields)]
        return " ".join(parts)

    def _painted(self, color: str, text: str) -> str:
        return f"{color}{text}{_RESET}" if self._colors else text


def fields_of(record: logging.LogRecord) -> Fields:
    """What is written of a record, each value on one line."""
    now = datetime.fromtimestamp(record.created, UTC).replace(tzinfo=None)
    fields: Fields = {
        "event": record.getMessage(),
        "level": record.levelname.lower(),
        "logger": record.name,
        "timestamp": now.isoformat(timespec="microseconds") + "Z",
    }
    for name, value in record.__dict__.items():
        if name not in _OF_EVERY_RECORD:
            fields.setdefault(name, "(hidden)" if name.lower() in HIDDEN_NAMES else value)
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        # Not a traceback, but the error and the innermost frames.
        fields["error"] = f"{type(error).__name__}: {error}"
        frames = traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:]
        fields["at"] = " < ".join(f"{f.filename}:{f.lineno} {f.name}" for f in reversed(frames))
    # A client chooses its id and topics; a newline in one may not forge a line of the log.
    for name, value in fields.items():
        if isinstance(value, str) and not value.isprintable():
            fields[name] = value.encode("unicode_escape").decode("ascii")
    return fields


def _shown(value: object) -> str:
    plain = isinstance(value, str) and value and not set(value) & set(" \t='\"")
    return str(value) if plain else repr(value)
