"""A real cluster on loopback: three NATS servers, three nodes, each node with a server of its own.

with Cluster(tmp_path) as cluster:
    cluster.nodes[1].mqtt_port               # connect anywhere
    cluster.kill_node(cluster.owner())
    cluster.wait_for_owner()
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from queuelake import control_cluster as ops
from queuelake.control import Readiness
from queuelake.control_client import call
from queuelake.control_cluster import Checked, ClusterInfo, Transferred
from queuelake.errors import QueuelakeError
from tests.harness.broker import BrokerError, BrokerProcess
from tests.harness.machines import Machines
from tests.harness.nats import NatsServers

CALL_TIMEOUT_S = 30.0
SETTLE_TIMEOUT_S = 60.0

T = TypeVar("T")


class Cluster:
    """`settings` are those of every node; machine i is node i and NATS server i."""

    def __init__(
        self,
        directory: Path,
        settings: dict[str, Any] | None = None,
        count: int = 3,
        config: str = "",
        machines: Machines | None = None,
    ) -> None:
        self._directory = directory
        self._settings = settings or {}
        self._config = config
        self._machines = machines
        self.servers = NatsServers(directory / "nats", count, machines=machines)
        self._paused: set[int] = set()
        self.nodes = [self._node(index) for index in range(count)]

    def _node(self, index: int) -> BrokerProcess:
        machine = None if self._machines is None else self._machines[index]
        return BrokerProcess(
            self._directory / f"q{index}",
            {
                "http.enabled": False,
                "cluster.enabled": True,
                "cluster.node": f"q{index}",
                "cluster.urls": self.servers.urls(index),
                "listeners.mqtt.bind": "127.0.0.1" if machine is None else machine.host,
                **self._settings,
            },
            config=self._config,
            machine=machine,
        )

    def add_node(self) -> int:
        """One more, with an empty data directory; it runs when this returns."""
        self.nodes.append(self._node(len(self.nodes)))
        self.nodes[-1].start()
        return len(self.nodes) - 1

    def __enter__(self) -> Cluster:
        try:
            self.servers.__enter__()
            self.start_nodes(range(len(self.nodes)))
            for index in self.alive():
                self.wait_until_met(index)
            self.wait_for_owner()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        for node in self.nodes:
            node.close()
        self.servers.close()

    def alive(self) -> list[int]:
        """Which nodes run, and are not paused."""
        running = [index for index, node in enumerate(self.nodes) if node.alive()]
        return [index for index in running if index not in self._paused]

    # Asking

    def ask(self, index: int, op: str, kind: type[T], **args: object) -> T:
        answer = call(self.nodes[index].data_dir, op, args, CALL_TIMEOUT_S)
        return msgspec.convert(answer, kind)

    def info(self, index: int) -> ClusterInfo:
        return self.ask(index, ops.CLUSTER, ClusterInfo)

    def readiness(self, index: int) -> Readiness:
        return self.ask(index, "readiness", Readiness)

    @property
    def shards(self) -> int:
        return int(self._settings.get("cluster.shards", 1))

    def owner(self, asked: Iterable[int] | None = None, shard: int = 0) -> int:
        """Which node serves, as all these say, or all that run; -1 while they do not agree."""
        said = set()
        for index in self.alive() if asked is None else asked:
            try:
                said.add(self.info(index).shards[shard].owner)
            except QueuelakeError:
                return -1
        name = said.pop() if len(said) == 1 else ""
        return int(name.removeprefix("q")) if name else -1

    def owners(self, index: int) -> list[int]:
        """Which nodes serve the shards, as this one says; -1 for nobody."""
        owners = [one.owner for one in self.info(index).shards]
        return [int(owner.removeprefix("q")) if owner else -1 for owner in owners]

    def wait_for_owners(
        self, is_so: Callable[[list[int]], bool] = lambda owners: True
    ) -> list[int]:
        """The owners of all shards, when all nodes which run agree and it is as wanted."""

        def agree() -> bool:
            said = [self.owners(index) for index in self.alive()]
            return all(one == said[0] for one in said) and -1 not in said[0] and is_so(said[0])

        self.eventually(agree, "not the owners which are wanted")
        return self.owners(self.alive()[0])

    def wait_for_owner(self, other_than: int = -1, shard: int = 0) -> int:
        """The owner, when all nodes which run know it."""
        self.eventually(lambda: self.owner(shard=shard) not in (-1, other_than), "no owner")
        return self.owner(shard=shard)

    def wait_until_equal(self) -> Checked:
        """All nodes which run have applied the same log; raises when their stores differ."""
        checked: Checked | None = None

        def is_complete() -> bool:
            nonlocal checked
            owner = self.wait_for_owner()
            if not self._all_follow(owner):
                return False
            try:
                checked = self.ask(owner, ops.CLUSTER_CHECK, Checked)
            except QueuelakeError:
                return False
            wanted = {f"q{index}" for index in self.alive()}
            return not checked.missing and wanted <= checked.hashes.keys()

        self.eventually(is_complete, "not every node told the hash of its store")
        assert checked is not None
        assert checked.equal, checked
        return checked

    def wait_until_met(self, index: int) -> None:
        """A node which was just started knows all others which run."""

        def is_so() -> bool:
            known = {one.node for one in self.info(index).members if one.alive}
            return known >= {f"q{other}" for other in self.alive()}

        self.eventually(is_so, f"q{index} does not know the others")

    def _all_follow(self, owner: int) -> bool:
        """Who copies a store then has the check behind it, and would never answer."""
        members = {one.node: one for one in self.info(owner).members}
        found = [members.get(f"q{index}") for index in self.alive()]
        return all(
            one is not None and one.role in ("owner", "replica") and one.position for one in found
        )

    def eventually(self, is_so: Callable[[], bool], problem: str) -> None:
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while not is_so():
            if time.monotonic() > deadline:
                logs = "\n".join(f"-- q{i}\n{n.stderr_tail(15)}" for i, n in enumerate(self.nodes))
                raise BrokerError(f"{problem} after {SETTLE_TIMEOUT_S} s\n{logs}")
            time.sleep(0.05)

    # Breaking

    def hand_on(self, owner: int, shard: int = 0) -> None:
        """To whom the owner likes."""
        self.ask(owner, ops.CLUSTER_TRANSFER, Transferred, shard=shard)

    def start_nodes(self, indexes: Iterable[int]) -> None:
        """All at once, until all are ready."""
        with ThreadPoolExecutor(len(self.nodes)) as threads:
            list(threads.map(lambda index: self.nodes[index].start(), indexes))

    def kill_node(self, index: int) -> None:
        self.nodes[index].kill()
        self._paused.discard(index)

    def pause_node(self, index: int) -> None:
        """It stands still, and its connections stay open."""
        self._paused.add(index)
        self.nodes[index].process.send_signal(signal.SIGSTOP)

    def resume_node(self, index: int) -> None:
        self.nodes[index].process.send_signal(signal.SIGCONT)
        self._paused.discard(index)

    def kill_machine(self, index: int) -> None:
        """The node and its NATS server, at once."""
        self.servers.kill(index)
        self.kill_node(index)

    def mend(self) -> None:
        """Whatever stands still goes on, whatever was killed is started."""
        for index in list(self._paused):
            self.resume_node(index)
        if self._machines is not None:
            self._machines.mend()
        self.servers.mend()
        self.start_nodes([index for index, node in enumerate(self.nodes) if not node.alive()])
