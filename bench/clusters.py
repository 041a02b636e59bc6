"""Clusters to measure: three nodes each, on loopback, every node in a folder of its own.

As in `peers`, each is a context manager and None where it cannot be started.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import Popen

import msgspec
from peers import (
    RABBITMQ,
    START_S_MAX,
    Running,
    erlang_names,
    free_port,
    nats_program,
    open_queuelake,
    rabbitmq_name,
    rabbitmq_node,
    read_ports,
    served,
)

from queuelake import control_cluster
from queuelake.control_client import call
from queuelake.control_cluster import ClusterInfo
from queuelake.errors import QueuelakeError

NODES = 3
ASK_S_MAX = 5.0


@dataclass(frozen=True)
class Cluster:
    """Where clients may connect: `first` owns what they use, or leads what they declare there."""

    first: Running
    other: Running
    parts: dict[str, list[int]] = field(default_factory=dict)  # processes by what they are for


ClusterStarter = Callable[[Path], contextlib.AbstractContextManager[Cluster]]


def find_clusters(config: str) -> dict[str, ClusterStarter | None]:
    """Who could be started here, by name; queuelake with this configuration."""
    return {
        "queuelake": queuelake_cluster(config) if nats_program() else None,
        "rabbitmq": rabbitmq_cluster if RABBITMQ.exists() else None,
    }


def queuelake_cluster(config: str) -> ClusterStarter:
    """Three nodes, each with a NATS server which syncs before it confirms."""

    @contextlib.contextmanager
    def start(folder: Path) -> Iterator[Cluster]:
        with contextlib.ExitStack() as stack:
            servers = nats_servers(stack, folder)
            folders = [made(folder / f"q{index}") for index in range(NODES)]
            nodes: list[Popen[str]] = []
            for index, own in enumerate(folders):
                # The nearest server is the first one, as on three machines.
                urls = [f"nats://127.0.0.1:{server.port}" for server in rotated(servers, index)]
                section = f'[cluster]\nenabled = true\nnode = "q{index}"\nurls = {urls}\n'
                nodes.append(stack.enter_context(open_queuelake(own, section + config)))
            with ThreadPoolExecutor(NODES) as threads:
                ports = list(threads.map(read_ports, nodes, folders))
            owner = wait_for_owner([own / "data" for own in folders])
            running = [
                Running(port["mqtt"], node.pid) for port, node in zip(ports, nodes, strict=True)
            ]
            parts = {
                "owner": [running[owner].pid],
                "entry node": [rotated(running, owner)[1].pid],
                "third node": [rotated(running, owner)[2].pid],
                "NATS": [server.pid for server in servers],
            }
            yield as_cluster(rotated(running, owner), parts)

    return start


def nats_servers(stack: contextlib.ExitStack, folder: Path) -> list[Running]:
    program = nats_program()
    assert program is not None
    routes = [free_port() for _ in range(NODES)]
    route_urls = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
    servers = []
    for index in range(NODES):
        own, port = made(folder / f"n{index}"), free_port()
        (own / "nats.conf").write_text(
            f'server_name: n{index}\nlisten: "127.0.0.1:{port}"\n'
            f'jetstream {{ store_dir: "{own}/jetstream", sync_interval: always }}\n'
            f'cluster {{ name: bench, listen: "127.0.0.1:{routes[index]}", '
            f"routes: [{route_urls}] }}\n"
        )
        command = [program, "-c", str(own / "nats.conf")]
        servers.append(stack.enter_context(served(command, own, port)))
    return servers


def wait_for_owner(data_dirs: list[Path]) -> int:
    """The index of the owner, when every node knows it."""
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline:
        with contextlib.suppress(QueuelakeError):
            said = {owner_by(data_dir) for data_dir in data_dirs}
            if len(said) == 1 and "" not in said:
                return int(said.pop().removeprefix("q"))
        time.sleep(0.1)
    raise SystemExit(f"error: the cluster has no owner after {START_S_MAX:g} s")


def owner_by(data_dir: Path) -> str:
    answer = call(data_dir, control_cluster.CLUSTER, {}, ASK_S_MAX)
    return msgspec.convert(answer, ClusterInfo).shards[0].owner


@contextlib.contextmanager
def rabbitmq_cluster(folder: Path) -> Iterator[Cluster]:
    """Three nodes; the second and the third join the first when they start."""
    with contextlib.ExitStack() as stack:
        names = stack.enter_context(erlang_names(folder))
        nodes: list[Running] = []
        for index in range(NODES):
            config = joining(nodes[0]) if nodes else ""
            own = made(folder / f"r{index}")
            nodes.append(stack.enter_context(rabbitmq_node(own, names, config)))
        yield as_cluster(nodes, {"RabbitMQ": [node.pid for node in nodes]})


def joining(first: Running) -> str:
    prefix = "cluster_formation"
    return (
        f"{prefix}.peer_discovery_backend = classic_config\n"
        f"{prefix}.classic_config.nodes.1 = {rabbitmq_name(first.port)}\n"
    )


def as_cluster(nodes: list[Running], parts: dict[str, list[int]]) -> Cluster:
    pids = {pid for part in parts.values() for pid in part}

    def among_all(node: Running) -> Running:
        return replace(node, pids_beside=tuple(sorted(pids - {node.pid})))

    return Cluster(among_all(nodes[0]), among_all(nodes[1]), parts)


def rotated(nodes: list[Running], first: int) -> list[Running]:
    return nodes[first:] + nodes[:first]


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder
