"""Logs: one line for each event, on stderr, for people (`console`) or machines (`json`).

The library logs through the standard `logging` module; here, at the edge, structlog renders those
records and its own alike. Rules: a line is one line, whatever a message or an exception holds; a
value whose name says that it is a payload or a secret is not written.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, TextIO

import structlog

if TYPE_CHECKING:
    from queuelake.settings import Log

HIDDEN_NAMES = frozenset({"password", "passwd", "payload", "secret", "token", "authorization"})
FRAMES_MAX = 8

Event = MutableMapping[str, Any]


def configure_logging(log: Log, stream: TextIO | None = None) -> None:
    """Send every record at or above `log.level` to `stream`; call again to change the format."""
    output = sys.stderr if stream is None else stream
    renderer: structlog.typing.Processor
    if log.format == "json":
        renderer = structlog.processors.JSONRenderer(default=str)
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=output.isatty(), pad_event_to=32)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _hide,
        _exception_on_one_line,
        _one_line,
    ]
    handler = logging.StreamHandler(output)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(log.level.upper())
    logging.captureWarnings(True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _hide(_logger: Any, _method: str, event: Event) -> Event:
    for name in event:
        if name.lower() in HIDDEN_NAMES:
            event[name] = "(hidden)"
    return event


def _exception_on_one_line(_logger: Any, _method: str, event: Event) -> Event:
    """Replace a traceback by the error and the innermost frames: a line stays a line."""
    exc_info = event.pop("exc_info", None)
    event.pop("stack_info", None)
    if isinstance(exc_info, BaseException):
        error: BaseException | None = exc_info
    elif isinstance(exc_info, tuple):
        error = exc_info[1]
    else:
        error = sys.exc_info()[1] if exc_info else None
    if error is not None:
        event["error"] = f"{type(error).__name__}: {error}"
        frames = traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:]
        event["at"] = " < ".join(f"{f.filename}:{f.lineno} {f.name}" for f in reversed(frames))
    return event


def _one_line(_logger: Any, _method: str, event: Event) -> Event:
    # A client chooses its id and topics; a newline in one may not forge a line of the log.
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[name] = value.encode("unicode_escape").decode("ascii")
    return event
