"""What those who watch a broker cost the others: scrapes, listings and an open console.

Each second /metrics is scraped and 1,000 queues are listed, and a browser shows the console's
overview. The load is a durable queue, one client to another; rounds with and without watchers take
turns. CPU is that of the broker's own process: the admin process works on its own time.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from bystanders import KINDS, p99_ms
from figures import Figure, LoadError, show
from last_values import load
from peers import Running, queuelake
from playwright.sync_api import Page, sync_playwright
from rest import ask, authorized
from usage import own_cpu_s

ROUNDS = 5
EVERY_S = 1.0
SETTLE_MS = 3_000
P99_TARGET, CPU_TARGET = 1.5, 1.05
MESSAGES = 100_000
WORK = "a durable queue"
UNPACED = ("-P", "1", "-S", "1", "--qos", "1", "--size", "256")


def measure(folder: Path, queues: int) -> Iterator[Figure]:
    with queuelake()(folder) as running:
        for number in range(queues):
            ask(running, "PUT", f"/queues/watched%2F{number}", {"partitions": 1})
        flags = KINDS[WORK]
        busy = (*UNPACED, *flags[flags.index("--topic") :], "--count", str(MESSAGES))
        load(running, *busy)  # warm
        alone, watched = Found(), Found()
        with browser(running) as page:
            page.goto("about:blank")
            for _ in range(ROUNDS):
                alone.measure(running, flags, busy)
                with watchers(page, running, queues):
                    watched.measure(running, flags, busy)
    yield Figure("p99, nobody watches", statistics.median(alone.p99), "ms")
    yield Figure("p99, watched", statistics.median(watched.p99), "ms")
    yield Figure("the same, by that alone", ratio(watched.p99, alone.p99), "x", P99_TARGET)
    yield Figure("CPU of the broker, nobody watches", statistics.median(alone.us), "us/msg")
    yield Figure("CPU of the broker, watched", statistics.median(watched.us), "us/msg")
    yield Figure("the same, by that alone", ratio(watched.us, alone.us), "x", CPU_TARGET)


def ratio(ones: list[float], others: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(ones, others, strict=True))


class Found:
    def __init__(self) -> None:
        self.p99: list[float] = []
        self.us: list[float] = []

    def measure(self, running: Running, paced: tuple[str, ...], busy: tuple[str, ...]) -> None:
        self.p99.append(p99_ms(running, paced))
        before_s = own_cpu_s(running.pid)
        load(running, *busy)
        self.us.append((own_cpu_s(running.pid) - before_s) * 1e6 / MESSAGES)


@contextlib.contextmanager
def watchers(page: Page, running: Running, queues: int) -> Iterator[None]:
    def scrape() -> None:
        with urllib.request.urlopen(authorized(running, "/metrics")) as answer:
            answer.read()

    def list_queues() -> None:
        page = ask(running, "GET", f"/queues?limit={queues}")
        if len(page["queues"]) < queues:
            raise LoadError(f"{len(page['queues'])} queues were listed, of {queues}")

    with console_tab(page, running), each_second(scrape), each_second(list_queues):
        yield


@contextlib.contextmanager
def each_second(act: Callable[[], None]) -> Iterator[None]:
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(EVERY_S):
            act()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def browser(running: Running) -> Iterator[Page]:
    """One which is logged in; it yields to the broker, as one elsewhere would."""
    program = shutil.which("chromium")
    if program is None:
        raise LoadError("no chromium to open the console with")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        polite = Path(folder, "chromium")
        polite.write_text(f'#!/bin/sh\nexec chrt --idle 0 {program} "$@"\n')
        polite.chmod(0o700)
        chromium = playwright.chromium.launch(executable_path=polite, args=["--no-sandbox"])
        page = chromium.new_page()
        page.goto(console(running))
        page.get_by_label("API key or user").fill(running.api_key)
        page.get_by_role("button", name="Log in").click()
        page.get_by_text("Overview").first.wait_for()
        try:
            yield page
        finally:
            chromium.close()


@contextlib.contextmanager
def console_tab(page: Page, running: Running) -> Iterator[None]:
    """It shows the overview; what it takes to open that is over."""
    page.goto(console(running))
    page.get_by_text("Overview").first.wait_for()
    page.wait_for_timeout(SETTLE_MS)
    yield
    page.goto("about:blank")


def console(running: Running) -> str:
    return f"http://127.0.0.1:{running.http_port}/console"


if __name__ == "__main__":
    sys.exit(show("admin", __doc__, "queues", measure, 1000))
