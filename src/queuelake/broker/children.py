"""Supervision of the broker's child processes: exec'd, watched, started again when they die.

A child gets one line on its standard input, and nothing after it: the end of that pipe tells it
that the broker is gone, also when the broker was killed and could not say so. It runs in its own
session, so that a Ctrl-C in the broker's terminal reaches it only as the broker's SIGTERM.

A child that dies is started again after 0.1 s, then twice as late each time up to 10 s; one that
ran for 30 s begins at 0.1 s again. The broker serves MQTT meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from queuelake.control import AdminStart, ExportStart, GrpcStart
from queuelake.errors import ConfigError
from queuelake.settings import Settings

RESTART_DELAY_S_MIN = 0.1
RESTART_DELAY_S_MAX = 10.0
STABLE_AFTER_S = 30.0
HTTP_BACKLOG_MAX = 1024
EXPORT = "export"  # the name of a child
NICER = 5  # than the broker

log = logging.getLogger(__name__)


class Child:
    """How to start one child process. `start_line` must hold no newline; one is added."""

    def __init__(
        self,
        name: str,
        argv: list[str],
        *,
        start_line: bytes = b"",
        pass_fds: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        assert b"\n" not in start_line
        self.name = name
        self.argv = argv
        self.start_line = start_line
        self.pass_fds = tuple(pass_fds)
        self.env = env


class Supervisor:
    """Keeps the children running until `close`. `restarts` counts by child name, for metrics."""

    def __init__(
        self, children: Sequence[Child], on_death: Callable[[str], None] | None = None
    ) -> None:
        self.restarts: dict[str, int] = {child.name: 0 for child in children}
        self.started = {child.name: asyncio.Event() for child in children}
        self._children = children
        self._on_death = on_death
        self._closing = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._keep_running(child)) for child in self._children]

    async def close(self, timeout_s: float) -> None:
        """End all children: SIGTERM, and SIGKILL for those which still run after `timeout_s`."""
        self._closing.set()
        if not self._tasks:
            return
        self._signal_all(signal.SIGTERM)
        _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
        if late:
            log.warning("killing %s: not ended after %g s", ", ".join(self._processes), timeout_s)
            self._signal_all(signal.SIGKILL)
            await asyncio.wait(late)

    def child_started(self, args: dict[str, object]) -> bool:
        """An operation: a child says that its addresses answer."""
        started = self.started.get(str(args.get("name")))
        if started is not None:
            started.set()
        return True

    def restart(self, name: str) -> None:
        """End a child, if it runs; it is started again as after a crash."""
        process = self._processes.get(name)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()

    def pid(self, name: str) -> int | None:
        """The process id of a child, or None while it does not run."""
        process = self._processes.get(name)
        return None if process is None else process.pid

    async def _keep_running(self, child: Child) -> None:
        delay_s = RESTART_DELAY_S_MIN
        while not self._closing.is_set():
            started = time.monotonic()
            outcome = await self._run(child)
            if self._closing.is_set():
                return
            ran_s = time.monotonic() - started
            if ran_s >= STABLE_AFTER_S:
                delay_s = RESTART_DELAY_S_MIN
            log.error(
                "child %s %s after %.1f s; starting again in %.1f s",
                child.name, outcome, ran_s, delay_s,
            )  # fmt: skip
            self._tell_death(child.name)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._closing.wait()
            delay_s = min(delay_s * 2, RESTART_DELAY_S_MAX)
            self.restarts[child.name] += 1

    async def _run(self, child: Child) -> str:
        """Start the child once, wait for its end, and say how it ended."""
        try:
            process = await asyncio.create_subprocess_exec(
                *child.argv,
                stdin=asyncio.subprocess.PIPE,
                pass_fds=child.pass_fds,
                env=None if child.env is None else {**os.environ, **child.env},
                start_new_session=True,
            )
        except OSError as exc:
            return f"could not be started ({exc.strerror})"
        assert process.stdin is not None
        self._processes[child.name] = process
        _yield_to_broker(process.pid)
        try:
            if self._closing.is_set():  # close() came while the process was being started
                process.terminate()
            with contextlib.suppress(ConnectionError):
                process.stdin.write(child.start_line + b"\n")
                await process.stdin.drain()
            code = await process.wait()
        finally:
            del self._processes[child.name]
            process.stdin.close()
        return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"

    def _tell_death(self, name: str) -> None:
        if self._on_death is None:
            return
        try:
            self._on_death(name)
        except Exception:
            log.exception("after the death of child %s", name)

    def _signal_all(self, number: signal.Signals) -> None:
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)


def _yield_to_broker(pid: int) -> None:
    """Who looks on, or reads in bulk, must not make those wait who send and receive."""
    niceness = os.getpriority(os.PRIO_PROCESS, 0) + NICER
    with contextlib.suppress(OSError):  # it has ended already
        os.setpriority(os.PRIO_PROCESS, pid, niceness)


def bind_http(settings: Settings) -> socket.socket:
    """Bind and listen for HTTP; raise ConfigError when the address cannot be had.

    The broker holds this socket and the admin child inherits it: port 0 is chosen once, the port
    stays ours while the child restarts, and requests made meanwhile wait in the backlog.
    """
    listening = _bind("http", settings.http.bind, settings.http.port)
    listening.listen(HTTP_BACKLOG_MAX)
    listening.setblocking(False)
    return listening


def reserve(section: str, bind: str, port: int) -> socket.socket:
    """Bind the address of a gRPC service of a child; raise ConfigError when it cannot be had.

    gRPC inherits no sockets: the child binds the same address itself. Linux allows that beside a
    socket which does not listen, so ours keeps the port while the child restarts. Other systems
    do not: there it has to be closed before the child starts.
    """
    return _bind(section, bind, port)


def _bind(section: str, bind: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except BaseException:
            bound.close()
            raise
    except OSError as exc:
        reason = exc.strerror or str(exc)
        raise ConfigError(
            [f"{section}.bind/{section}.port: cannot listen on {bind}:{port}: {reason}"]
        ) from exc
    return bound


def url(scheme: str, address: tuple[str, int]) -> str:
    host, port = address
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def admin_child(
    settings: Settings,
    data_dir: Path,
    listening: socket.socket,
    grpc_address: tuple[str, int] | None = None,
) -> Child:
    """The admin process: HTTP on the socket of `bind_http`, gRPC on an address of `reserve`."""
    fd = listening.fileno()
    grpc = None
    if grpc_address is not None:
        grpc = GrpcStart(*grpc_address, settings.grpc.certificate, settings.grpc.key)
    start = AdminStart(
        data_dir=str(data_dir.resolve()),
        fd=fd,
        log=settings.log,
        lake=settings.lake.path,
        console=settings.console,
        grpc=grpc,
    )
    return Child(
        "admin",
        [sys.executable, "-m", "queuelake.admin"],
        start_line=msgspec.json.encode(start),
        pass_fds=[fd],
    )


def export_child(settings: Settings, data_dir: Path, address: tuple[str, int]) -> Child:
    """The export process, serving Arrow Flight on the address of `reserve`."""
    flight = settings.flight
    start = ExportStart(
        data_dir=str(data_dir.resolve()),
        bind=address[0],
        port=address[1],
        certificate=flight.certificate,
        key=flight.key,
        log=settings.log,
        stores=settings.cluster.shards if settings.cluster.enabled else 1,
        heartbeats=settings.sdv.heartbeat_topics,
    )
    return Child(
        EXPORT,
        [sys.executable, "-m", "queuelake.export"],
        start_line=msgspec.json.encode(start),
    )
