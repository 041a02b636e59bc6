"""Supervision with real processes: restarts, backoff, the port that stays, and orphans."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from queuelake.apikey import ensure_api_key, read_api_key
from queuelake.broker import children
from queuelake.broker.children import Child, Supervisor, admin_child, bind_http
from queuelake.broker.control import ControlServer
from queuelake.errors import ConfigError
from queuelake.settings import Http, Settings
from tests.api.fake_broker import FakeBroker
from tests.api.live import Answer, basic, fetch, wait_until
from tests.harness.processes import alive

SETTINGS = Settings(http=Http(port=0))
# Waits for the end of its input, as every child does.
PATIENT = "import sys; sys.stdin.buffer.read()"
# Reports its start line, then ignores SIGTERM and the end of its input.
STUBBORN = (
    "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "open(sys.argv[1], 'wb').write(sys.stdin.buffer.readline()); time.sleep(60)"
)


def gone(pid: int) -> bool:
    return not alive(pid)


async def eventually(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_until, condition)


async def test_a_child_that_dies_is_started_again_later_each_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(children, "RESTART_DELAY_S_MIN", 0.05)
    monkeypatch.setattr(children, "RESTART_DELAY_S_MAX", 0.2)
    deaths: list[str] = []

    def on_death(name: str) -> None:
        deaths.append(name)
        raise RuntimeError("a callback that fails ends no supervision")

    child = Child("brief", [sys.executable, "-S", "-c", "raise SystemExit(3)"])
    supervisor = Supervisor([child], on_death)
    supervisor.start()
    await eventually(lambda: supervisor.restarts["brief"] >= 4)
    await supervisor.close(5)
    assert deaths[:4] == ["brief"] * 4
    lines = [r.getMessage() for r in caplog.records if "child brief ended" in r.getMessage()]
    assert len(lines) == len(deaths)
    assert "ended with code 3" in lines[0]
    delays = [line.rpartition("again in ")[2] for line in lines[:4]]
    assert delays == ["0.1 s", "0.1 s", "0.2 s", "0.2 s"]  # 0.05 and 0.1, then the limit


async def test_the_delay_begins_again_after_a_long_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(children, "STABLE_AFTER_S", 0.0)
    supervisor = Supervisor([Child("brief", [sys.executable, "-S", "-c", ""])])
    supervisor.start()
    await eventually(lambda: supervisor.restarts["brief"] >= 3)
    await supervisor.close(5)
    lines = [r.getMessage() for r in caplog.records if r.name == children.log.name]
    assert len(lines) >= 3
    assert all("again in 0.1 s" in line for line in lines)


async def test_a_program_that_is_not_there_is_a_death_like_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    supervisor = Supervisor([Child("ghost", ["/no/such/program"])])
    supervisor.start()
    await eventually(lambda: supervisor.restarts["ghost"] >= 1)
    await supervisor.close(5)
    assert "child ghost could not be started (No such file or directory)" in caplog.text


async def test_close_ends_children_and_kills_the_stubborn(tmp_path: Path) -> None:
    report = tmp_path / "started"
    stubborn = [sys.executable, "-S", "-c", STUBBORN, str(report)]
    supervisor = Supervisor(
        [
            Child("patient", [sys.executable, "-S", "-c", PATIENT]),
            Child("stubborn", stubborn, start_line=b'{"a":1}'),
        ]
    )
    supervisor.start()
    await eventually(lambda: report.exists() and report.stat().st_size > 0)
    pids = [supervisor.pid("patient"), supervisor.pid("stubborn")]
    started = time.monotonic()
    await supervisor.close(0.5)
    assert 0.5 <= time.monotonic() - started < 5
    assert report.read_bytes() == b'{"a":1}\n'
    assert not any(alive(pid) for pid in pids if pid)
    assert supervisor.restarts == {"patient": 0, "stubborn": 0}


async def test_children_yield_to_the_broker() -> None:
    supervisor = Supervisor([Child("idle", ["sleep", "60"])])
    supervisor.start()
    own = os.getpriority(os.PRIO_PROCESS, 0)

    def is_nicer() -> bool:
        pid = supervisor.pid("idle")
        return pid is not None and os.getpriority(os.PRIO_PROCESS, pid) > own

    await eventually(is_nicer)
    await supervisor.close(5)


async def test_close_right_after_start_leaves_nothing() -> None:
    supervisor = Supervisor([Child("patient", [sys.executable, "-S", "-c", PATIENT])])
    supervisor.start()
    await asyncio.sleep(0)
    await supervisor.close(5)
    assert supervisor.pid("patient") is None


def test_an_address_in_use_is_refused_with_its_name() -> None:
    with bind_http(SETTINGS) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}: Address already in use"):
            bind_http(Settings(http=Http(port=port)))
    with pytest.raises(ConfigError, match=r"http\.port"):
        bind_http(Settings(http=Http(bind="no.such.host.invalid")))


def test_ipv6_is_bound_where_there_is_ipv6() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        listening = bind_http(Settings(http=Http(bind="::1", port=0)))
    except ConfigError:
        pytest.skip("no IPv6 loopback here")
    with listening:
        assert listening.family == socket.AF_INET6


class Parent:
    """What the broker does: control server, HTTP socket and supervised admin process."""

    def __init__(self, data_dir: Path) -> None:
        ensure_api_key(data_dir)
        self._key = basic(read_api_key(data_dir))
        self._listening = bind_http(SETTINGS)
        self._control = ControlServer(data_dir, FakeBroker().operations)
        self.port: int = self._listening.getsockname()[1]
        self.supervisor = Supervisor([admin_child(SETTINGS, data_dir, self._listening)])

    async def start(self) -> None:
        await self._control.start()
        self.supervisor.start()

    async def close(self) -> None:
        await self.supervisor.close(10)
        await self._control.close()
        self._listening.close()

    async def get(self, path: str) -> Answer:
        return await asyncio.to_thread(fetch, self.port, path, authorization=self._key)


@pytest.fixture
async def parent(tmp_path: Path) -> AsyncIterator[Parent]:
    made = Parent(tmp_path)
    await made.start()
    yield made
    await made.close()


async def test_a_request_made_while_the_admin_process_is_dead_waits_for_the_next_one(
    parent: Parent,
) -> None:
    assert (await parent.get("/api/v1/status")).json["version"] == "1.2.3"
    for restarts in (1, 2):
        pid = parent.supervisor.pid("admin")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await eventually(functools.partial(gone, pid))
        assert (await parent.get("/readyz")).json == {"ready": True}
        assert parent.supervisor.restarts == {"admin": restarts}


async def test_the_admin_process_ends_on_sigterm(parent: Parent) -> None:
    assert (await parent.get("/healthz")).status == 200
    pid = parent.supervisor.pid("admin")
    assert pid is not None
    started = time.monotonic()
    await parent.supervisor.close(10)
    assert time.monotonic() - started < 5
    assert not alive(pid)
    assert parent.supervisor.restarts == {"admin": 0}


PARENT_PROGRAM = """
import asyncio, sys
from pathlib import Path
from tests.api.test_children import Parent

async def main():
    parent = Parent(Path(sys.argv[2]))
    await parent.start()
    await parent.get("/healthz")
    print(parent.port, parent.supervisor.pid("admin"), flush=True)
    await asyncio.sleep(300)

if sys.argv[1] == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_parent_killed_with_9_takes_the_admin_process_with_it(tmp_path: Path, loop: str) -> None:
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT_PROGRAM, loop, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert parent.stdout is not None
        port, pid = map(int, parent.stdout.readline().split())
        assert alive(pid)
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: not alive(pid), timeout_s=10)
    with pytest.raises(ConnectionRefusedError):
        fetch(port, "/healthz")


def test_the_admin_process_started_by_hand_says_who_starts_it() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "queuelake.admin"],
        input=b"\n",
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert b"started by `queuelake serve`" in done.stderr
    assert b"Traceback" not in done.stderr
