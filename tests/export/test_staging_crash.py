"""kill -9 of the broker and of the export process at each step of a batch: it is there once (P7).

The steps are seen from outside: what lies in the staging folder, what lies in the store.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyarrow import flight as arrow_flight

from queuelake.flight import Committed, Staged
from queuelake.storage import api
from queuelake.storage.reader import StoreReader
from queuelake.storage.stage_tables import open_stages
from tests.export.reading import FLIGHT
from tests.export.staging import Stager, numbered
from tests.harness.broker import BrokerProcess
from tests.queues.client import QueueClient

ROWS = 20_000
SIZE = 1_500  # of a row: so a commit has many slices
TARGET = "$queue/crash"
SETTINGS = FLIGHT | {"queues.defaults.limits.max_queue_depth": 10_000_000}
PATIENCE_S = 90.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, SETTINGS).start()
    yield process
    process.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come so far"
        time.sleep(0.002)


@contextlib.contextmanager
def commit_under_way(node: BrokerProcess, staged: list[Staged]) -> Iterator[None]:
    """A commit whose answer may never come."""

    def commit() -> None:
        with contextlib.suppress(arrow_flight.FlightError, OSError), Stager(node) as own:
            own.commit("job", 0, TARGET, staged)

    thread = threading.Thread(target=commit)
    thread.start()
    yield
    thread.join()


def is_prepared(node: BrokerProcess) -> Callable[[], bool]:
    return lambda: any((node.data_dir / "staging").glob("*/*/*.prepared"))


def is_copying(node: BrokerProcess) -> Callable[[], bool]:
    reader = StoreReader(node.data_dir)

    def look() -> bool:
        with reader.view() as view:
            return bool(open_stages(view))

    return look


def is_shown(node: BrokerProcess) -> Callable[[], bool]:
    reader = StoreReader(node.data_dir)

    def look() -> bool:
        with reader.view() as view:
            return view.count(api.BATCHES) > 0

    return look


STEPS = {"prepared": is_prepared, "copying": is_copying, "shown": is_shown}


def export_pid(node: BrokerProcess) -> int:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            line = (stat.parent / "cmdline").read_bytes()
            if parent == node.pid and b"queuelake.export" in line:
                return int(stat.parent.name)
    return 0


def stage_rows(node: BrokerProcess) -> list[Staged]:
    with Stager(node) as stager:
        half = ROWS // 2
        return [
            stager.put("job", 0, TARGET, numbered(half, size=SIZE), task="0"),
            stager.put("job", 0, TARGET, numbered(half, half, SIZE), task="1"),
        ]


def commit_again(node: BrokerProcess, staged: list[Staged]) -> Committed:
    """What a driver does: repeat until there is an answer."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with Stager(node) as stager:
                return stager.commit("job", 0, TARGET, staged)
        except (arrow_flight.FlightUnavailableError, arrow_flight.FlightTimedOutError):
            assert time.monotonic() < deadline, "the export process did not come back"
            time.sleep(0.1)


def assert_each_once(node: BrokerProcess) -> None:
    with Stager(node) as stager:
        found = sorted([row["payload"][:8] for row in stager.rows(TARGET, columns=["payload"])])
    assert len(found) == ROWS
    assert found == [b"%08d" % n for n in range(ROWS)]


def assert_nothing_is_left(node: BrokerProcess) -> None:
    """Of stages which came to nothing."""
    reader = StoreReader(node.data_dir)

    def is_clean() -> bool:
        with reader.view() as view:
            pointers = sum(1 for _ in view.scan_keys(api.CHUNKS, b"", b"\xff" * 32))
            return view.count(api.STAGED) == pointers

    until(is_clean)
    assert not list((node.data_dir / "staging").glob("*/*"))


@pytest.mark.rule("P7")
@pytest.mark.parametrize("step", STEPS)
def test_the_broker_is_killed(node: BrokerProcess, step: str) -> None:
    staged = stage_rows(node)
    with commit_under_way(node, staged):
        until(STEPS[step](node))
        node.kill()
    node.restart()
    answer = commit_again(node, staged)
    assert answer.rows == ROWS
    assert answer.repeated or step != "shown"
    assert_each_once(node)
    assert_nothing_is_left(node)


@pytest.mark.rule("P7")
@pytest.mark.parametrize("step", STEPS)
def test_the_export_process_is_killed(node: BrokerProcess, step: str) -> None:
    staged = stage_rows(node)
    first = export_pid(node)
    with commit_under_way(node, staged):
        until(STEPS[step](node))
        os.kill(first, signal.SIGKILL)
    assert commit_again(node, staged).rows == ROWS
    assert export_pid(node) not in (0, first)
    assert_each_once(node)
    assert_nothing_is_left(node)


def test_what_was_committed_is_delivered_once_after_a_crash(node: BrokerProcess) -> None:
    """Read through pointers, settled, and deleted with what they point to."""
    rows = 3_000
    with Stager(node) as stager:
        stager.write("job", 0, TARGET, numbered(rows))
    consumer = QueueClient(node.client(5), "worker")
    consumer.wire.connect("worker")
    consumer.subscribe("crash", group="g", prefetch="100")
    seen = [one.payload for one in consumer.receive_and_ack(500)]
    consumer.wire.close()
    node.kill()
    node.restart()
    consumer = QueueClient(node.client(5), "worker")
    consumer.wire.connect("worker")
    consumer.subscribe("crash", group="g", prefetch="100")
    while len(set(seen)) < rows:
        seen += [one.payload for one in consumer.receive_and_ack(1)]
    assert set(seen) == {f"{n:08d}" for n in range(rows)}
    assert len(seen) < rows + 200, "what was settled does not come again"
    reader = StoreReader(node.data_dir)

    def is_freed() -> bool:
        with reader.view() as view:
            return view.count(api.STAGED) == 0

    until(is_freed)
