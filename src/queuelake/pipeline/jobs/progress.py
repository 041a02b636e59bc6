"""How far a job has come, and three ways to show it: a bar, lines, JSON.

The job changes a `Progress`; everybody else only looks at it, from another thread. Views write to
stderr, and to stdout what was asked for with `--json`: one object on each line, the last of which
has the outcome.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import IO, Protocol

RATE_WINDOW_S = 10.0
LINE_EVERY_S = 5.0


@dataclass(slots=True)
class Progress:
    """Numbers of a job: `done` of `total` (0: unknown), and how far it is behind (`lag`)."""

    unit: str = "rows"
    done: int = 0
    total: int = 0
    lag: int | None = None
    message: str = ""
    started_s: float = field(default_factory=time.monotonic)
    _seen: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, rows: int) -> None:
        self.done += rows

    def rate(self, now_s: float) -> float:
        """Units a second over the last seconds; to be asked by one thread only."""
        self._seen.append((now_s, self.done))
        while len(self._seen) > 2 and self._seen[0][0] < now_s - RATE_WINDOW_S:
            self._seen.popleft()
        since_s, before = self._seen[0]
        if len(self._seen) == 1 or now_s <= since_s:
            since_s, before = self.started_s, 0
        return max(0.0, (self.done - before) / max(now_s - since_s, 0.001))


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended: `state` is one of done, failed, cancelled; `tables` are for programs."""

    job: str
    kind: str
    state: str
    words: str
    detail: dict[str, object]
    tables: dict[str, object]


class View(Protocol):
    """Shows progress about once a second, then the outcome, once."""

    def show(self, progress: Progress) -> None: ...

    def end(self, progress: Progress, outcome: Outcome) -> None: ...


def view_for(kind: str, job: str, as_json: bool) -> View:
    """JSON when asked for, a bar on a terminal, lines in a file."""
    if as_json:
        return JsonView(kind, job)
    return BarView(kind) if sys.stderr.isatty() else LineView(kind)


class JsonView:
    """A line when something has changed, and now and then to show that it goes on."""

    def __init__(self, kind: str, job: str, out: IO[str] | None = None) -> None:
        self._head = {"job": job, "kind": kind}
        self._out = out or sys.stdout
        self._shown: tuple[object, ...] = ()
        self._shown_s = 0.0

    def show(self, progress: Progress) -> None:
        now_s = time.monotonic()
        figures = (progress.done, progress.total, progress.lag, progress.message)
        if figures != self._shown or now_s - self._shown_s >= LINE_EVERY_S:
            self._shown, self._shown_s = figures, now_s
            self._print({"state": "running", **self._numbers(progress)})

    def end(self, progress: Progress, outcome: Outcome) -> None:
        ended: dict[str, object] = {"state": outcome.state, **self._numbers(progress)}
        if outcome.state == "failed":
            ended["error"] = outcome.words
        self._print({**ended, "detail": outcome.detail | outcome.tables})

    def _numbers(self, progress: Progress) -> dict[str, object]:
        return {
            "done": progress.done,
            "total": progress.total,
            "unit": progress.unit,
            "rate": round(progress.rate(time.monotonic()), 1),
            "lag": progress.lag,
            "message": progress.message,
        }

    def _print(self, line: dict[str, object]) -> None:
        text = json.dumps({**self._head, **line}, ensure_ascii=False, default=str)
        print(text, file=self._out, flush=True)


class LineView:
    """A line now and then, for logs; the outcome goes to stdout."""

    def __init__(self, kind: str, out: IO[str] | None = None) -> None:
        self._kind = kind
        self._out = out or sys.stderr
        self._shown_s = time.monotonic()
        self._shown = ""

    def show(self, progress: Progress) -> None:
        now_s = time.monotonic()
        line = numbers(progress, now_s)
        if now_s - self._shown_s >= LINE_EVERY_S and line != self._shown:
            self._shown_s, self._shown = now_s, line
            print(f"{self._kind}: {line}", file=self._out, flush=True)

    def end(self, progress: Progress, outcome: Outcome) -> None:
        print_outcome(outcome)


class BarView:
    """A bar while the total is known, a pulse otherwise."""

    def __init__(self, kind: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=28),
            TextColumn("{task.fields[words]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(kind, total=None, words="starting")
        self._bar.start()

    def show(self, progress: Progress) -> None:
        self._bar.update(
            self._task,
            completed=progress.done,
            total=progress.total or None,
            words=numbers(progress, time.monotonic()),
        )

    def end(self, progress: Progress, outcome: Outcome) -> None:
        self._bar.stop()
        print_outcome(outcome)


def numbers(progress: Progress, now_s: float) -> str:
    """`1,200 of 5,000 rows, 830 rows/s, 12 behind, what it does`."""
    of = f" of {progress.total:,}" if progress.total else ""
    words = [f"{progress.done:,}{of} {progress.unit}"]
    words.append(f"{progress.rate(now_s):,.0f} {progress.unit}/s")
    if progress.lag is not None:
        words.append(f"{progress.lag:,} behind")
    if progress.message:
        words.append(progress.message)
    return ", ".join(words)


def print_outcome(outcome: Outcome) -> None:
    """What a job found, one line each; the error of a failed one is printed by who catches it."""
    if outcome.state != "failed":
        print(f"{outcome.kind}: {outcome.words}", flush=True)
        for name, value in outcome.detail.items():
            shown = f"{value:,}" if isinstance(value, int) else value
            print(f"  {name}: {shown}", flush=True)
