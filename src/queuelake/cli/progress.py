"""Progress of long work, for people at a terminal; programs and pipes see nothing of it."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

INTERVAL_S = 0.2


@contextlib.contextmanager
def watched(what: str, total: int, done: Callable[[], int]) -> Iterator[None]:
    """A bar on standard error while the body runs; `done` is asked now and then, in a thread."""
    if not sys.stderr.isatty() or total <= 0:
        yield
        return
    from rich.console import Console
    from rich.progress import Progress

    over = threading.Event()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)

        def follow() -> None:
            while not over.wait(INTERVAL_S):
                with contextlib.suppress(Exception):  # the work itself says what is wrong
                    progress.update(task, completed=min(done(), total))

        thread = threading.Thread(target=follow, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def growing(what: str, file: Path, total_bytes: int) -> contextlib.AbstractContextManager[None]:
    """The progress of work which writes a file."""
    return watched(what, total_bytes, lambda: file.stat().st_size)
