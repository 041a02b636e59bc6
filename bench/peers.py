"""Brokers to measure: the product and the ones beside it, each in a data directory of its own.

Every peer is a context manager: it starts the broker on free ports of the loopback, waits until it
answers, yields where and which process it is, and ends it. A peer which is not installed is None in
`find_peers`; the caller leaves it out and says so.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

START_S_MAX = 20.0
RABBITMQ_START_S_MAX = 90.0
STOP_S_MAX = 15.0
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
SYSTEM_PATH = ":/usr/sbin:/usr/local/sbin"


@dataclass(frozen=True)
class Running:
    """A broker under load: all processes below `pid`, and below those beside it, are its own."""

    port: int
    pid: int
    http_port: int = 0  # of queuelake
    api_key: str = ""
    pids_beside: tuple[int, ...] = ()  # of the other nodes of a cluster, and what they need


Starter = Callable[[Path], contextlib.AbstractContextManager[Running]]


@contextlib.contextmanager
def in_own_folder(starter: Starter) -> Iterator[Running]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, starter(Path(folder)) as running:
        yield running


def find_peers() -> dict[str, Starter | None]:
    """Who could be started here."""
    mosquitto_program = shutil.which("mosquitto", path=os.environ["PATH"] + SYSTEM_PATH)
    nats_server = nats_program()
    return {
        "mosquitto": mosquitto(mosquitto_program) if mosquitto_program else None,
        "rabbitmq": rabbitmq if RABBITMQ.exists() else None,
        "nats": nats(nats_server) if nats_server else None,
    }


def nats_program() -> str | None:
    return shutil.which("nats-server", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def queuelake(config: str = "") -> Starter:
    """`queuelake serve` with this configuration."""

    @contextlib.contextmanager
    def start(folder: Path) -> Iterator[Running]:
        with open_queuelake(folder, config) as process:
            ports = read_ports(process, folder)
            key = (folder / "data" / "api-key").read_text().strip()
            yield Running(ports["mqtt"], process.pid, ports["http"], key)

    return start


@contextlib.contextmanager
def open_queuelake(folder: Path, config: str = "") -> Iterator[subprocess.Popen[str]]:
    """The process, as soon as it is started; `read_ready` waits for it."""
    program = Path(sys.executable).parent / "queuelake"
    (folder / "queuelake.toml").write_text(config)
    command = [str(program), "serve", "--data-dir", str(folder / "data")]
    command += ["--config", str(folder / "queuelake.toml")]
    # Port 0 everywhere; the `ready` line on stdout says which one was taken.
    for section in ("listeners.mqtt", "listeners.ws", "http", "grpc", "flight"):
        command += ["--set", f"{section}.port=0"]
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        with ended_after(process):
            yield process


def read_ready(process: subprocess.Popen[str], folder: Path) -> int:
    """Wait for the `ready` line and return the MQTT port it names."""
    return read_ports(process, folder)["mqtt"]


def read_ports(process: subprocess.Popen[str], folder: Path) -> dict[str, int]:
    """Wait for the `ready` line and return the ports it names, by scheme."""
    assert process.stdout is not None
    line = process.stdout.readline()
    ports: dict[str, int] = {}
    for scheme, port in re.findall(r"(\w+)://[^ /]*:(\d+)", line):
        ports[scheme] = int(port)
    if line.startswith("ready ") and "mqtt" in ports:
        return ports
    log = (folder / "log").read_text()
    raise SystemExit(f"error: queuelake did not get ready; it said {line!r}\n{log}")


def mosquitto(program: str) -> Starter:
    """mosquitto as it is, without persistence: the yardstick."""

    @contextlib.contextmanager
    def start(folder: Path) -> Iterator[Running]:
        port = free_port()
        config = folder / "mosquitto.conf"
        config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\n")
        with served([program, "-c", str(config)], folder, port) as running:
            yield running

    return start


def nats(program: str) -> Starter:
    """NATS with its MQTT listener; JetStream writes to files, and syncs before it confirms."""

    @contextlib.contextmanager
    def start(folder: Path) -> Iterator[Running]:
        port = free_port()
        config = folder / "nats.conf"
        config.write_text(
            f'server_name: bench\nlisten: "127.0.0.1:{free_port()}"\n'
            f'jetstream {{ store_dir: "{folder}/jetstream", sync_interval: always }}\n'
            f'mqtt {{ listen: "127.0.0.1:{port}" }}\n'
        )
        with served([program, "-c", str(config)], folder, port) as running:
            yield running

    return start


@contextlib.contextmanager
def rabbitmq(folder: Path) -> Iterator[Running]:
    """RabbitMQ with no plug-in, one node, everything it writes below `folder`."""
    with erlang_names(folder) as names, rabbitmq_node(folder, names) as running:
        yield running


@contextlib.contextmanager
def rabbitmq_node(folder: Path, names: dict[str, str], config: str = "") -> Iterator[Running]:
    """A node which finds others by these names."""
    port = free_port()
    (folder / "plugins").write_text("[].\n")
    (folder / "rabbitmq.conf").write_text(config)
    own = {
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_LOG_BASE": str(folder / "logs"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_NODENAME": rabbitmq_name(port),
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
    }
    environment = os.environ | names | own
    with served([str(RABBITMQ)], folder, port, RABBITMQ_START_S_MAX, environment) as running:
        yield running


def rabbitmq_name(port: int) -> str:
    return f"bench{port}@localhost"


@contextlib.contextmanager
def erlang_names(home: Path) -> Iterator[dict[str, str]]:
    """The environment of Erlang nodes which know each other: a name server, and a secret in `home`.

    Erlang starts the name server as a daemon, which would stay.
    """
    names = {
        "HOME": str(home),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(free_port()),
    }
    try:
        yield names
    finally:
        end = ["epmd", "-kill"]
        subprocess.run(end, env=os.environ | names, capture_output=True, check=False)


@contextlib.contextmanager
def served(
    command: list[str],
    folder: Path,
    port: int,
    start_s_max: float = START_S_MAX,
    environment: dict[str, str] | None = None,
) -> Iterator[Running]:
    """The broker of this command, once its port answers."""
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, text=True, env=environment, start_new_session=True
        )
    with ended_after(process, whole_group=True):
        deadline = time.monotonic() + start_s_max
        while not answers(port):
            if time.monotonic() > deadline or process.poll() is not None:
                words = (folder / "log").read_text()[-500:]
                raise SystemExit(
                    f"error: {command[0]} does not listen on port {port} "
                    f"after {start_s_max:g} s\n{words}"
                )
            time.sleep(0.05)
        yield Running(port, process.pid)


@contextlib.contextmanager
def ended_after(process: subprocess.Popen[str], *, whole_group: bool = False) -> Iterator[None]:
    """SIGTERM at the end, SIGKILL when that does not help; also to its group, when it leads one."""

    def end(number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            if whole_group:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)

    try:
        yield
    finally:
        end(signal.SIGTERM)
        try:
            process.wait(timeout=STOP_S_MAX)
        except subprocess.TimeoutExpired:
            end(signal.SIGKILL)
            process.wait()


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
