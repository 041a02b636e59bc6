"""A cluster under load and faults: `python -m tests.soak.cluster --minutes 10`.

Every few seconds something happens to a node or a NATS server, chosen by dice, and is mended a
while later; consumers are as unreliable. At the end everything confirmed is accounted for, and the
stores of all nodes are equal. Prints one line for each fault, then how long nothing was confirmed,
by kind of fault. `--each N` measures instead: every kind of fault N times, one at a time, with time
to recover between them. `--kills` is for quorum queues: the owner is killed again and again, a
second after there is one. The directory is kept when a promise was broken, and its path printed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from tests.cluster.faults import CONFIG, QUORUM, Load, queue_of
from tests.harness.cluster import Cluster

STREAM = "QL_queuelake_{}"
SHOWN_MAX = 40
BETWEEN_S = (0.5, 6.0)
QUIET_S = 3.0
BETWEEN_KILLS_S = 1.0


class Faults:
    """What can happen; each leaves it to `Cluster.mend` to undo it."""

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        self._cluster = cluster
        self._dice = dice

    def all(self) -> dict[str, Callable[[], None]]:
        return {
            "owner killed": lambda: self._cluster.kill_node(self._owner()),
            "follower killed": lambda: self._cluster.kill_node(self._follower()),
            "owner stands still": lambda: self._cluster.pause_node(self._owner()),
            "follower stands still": lambda: self._cluster.pause_node(self._follower()),
            "machine of the owner lost": lambda: self._cluster.kill_machine(self._owner()),
            "leading server killed": lambda: self._cluster.servers.kill(self._leader()),
            "leading server stands still": lambda: self._cluster.servers.stop(self._leader()),
            "owner handed on": self._hand_on,
            "majority of servers killed": self._lose_majority,
            "everything killed": self._lose_everything,
        }

    def _shard(self) -> int:
        return self._dice.randrange(self._cluster.shards)

    def _owner(self) -> int:
        return self._cluster.wait_for_owner(shard=self._shard())

    def _follower(self) -> int:
        return (self._owner() + self._dice.randint(1, 2)) % 3

    def _leader(self) -> int:
        leader = self._cluster.servers.leader(STREAM.format(self._shard()))
        return leader if leader >= 0 else self._dice.choice(self._cluster.servers.running())

    def _hand_on(self) -> None:
        shard = self._shard()
        self._cluster.hand_on(self._cluster.wait_for_owner(shard=shard), shard)

    def _lose_majority(self) -> None:
        for index in self._dice.sample(range(3), 2):
            self._cluster.servers.kill(index)
        time.sleep(QUIET_S)
        self._cluster.mend()

    def _lose_everything(self) -> None:
        for index in range(3):
            self._cluster.kill_machine(index)
        self._cluster.mend()


class Soak:
    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._dice = random.Random(seed)
        self._faults = Faults(cluster, self._dice).all()
        self.outages_s: dict[str, list[float]] = defaultdict(list)

    def run(self, minutes: float) -> list[str]:
        """Faults by dice, for so long."""
        load = self._load("soak", calm=False)
        until = time.monotonic() + minutes * 60
        while time.monotonic() < until:
            name = self._dice.choice(list(self._faults))
            self._break(name, load)
            # Some are mended at once, some when the cluster has lived with them for a while.
            time.sleep(self._dice.uniform(*BETWEEN_S))
            self._cluster.mend()
            time.sleep(self._dice.uniform(*BETWEEN_S))
        return self._end(load)

    def run_each(self, times: int) -> list[str]:
        """Each fault so many times, each time out of a healthy cluster."""
        load = self._load("each")
        for name in list(self._faults) * times:
            self._break(name, load)
            self._cluster.mend()
            self._cluster.wait_until_equal()
            time.sleep(QUIET_S)
        return self._end(load)

    def run_kills(self, minutes: float) -> list[str]:
        """No owner of a quorum queue lives longer than a second, and the time a start takes."""
        load = Loads([Load(self._cluster, QUORUM)]).start()
        until = time.monotonic() + minutes * 60
        while time.monotonic() < until:
            self._break("owner killed", load)
            self._cluster.mend()
            time.sleep(BETWEEN_KILLS_S)
        return self._end(load)

    def _load(self, name: str, calm: bool = True) -> Loads:
        """A queue in each shard."""
        shards = self._cluster.shards
        queues = [queue_of(shard, shards, name) for shard in range(shards)]
        return Loads([Load(self._cluster, queue, calm=calm) for queue in queues]).start()

    def _break(self, name: str, load: Loads) -> None:
        outage_s = load.broken(self._faults[name])
        self.outages_s[name].append(outage_s)
        count = sum(len(one.history.accepted) for one in load.all)
        print(f"{name}: {outage_s:.1f} s without service; {count} accepted", flush=True)

    def _end(self, load: Loads) -> list[str]:
        self._cluster.mend()
        found = [violation for one in load.all for violation in one.finish()]
        self._cluster.wait_until_equal()
        for one in load.all:
            history = one.history
            print(
                f"{len(history.accepted)} messages accepted, {len(history.deliveries)} deliveries, "
                f"{len(history.dead)} dead"
            )
        print(f"{len(found)} violations")
        return found


class Loads:
    """One for each shard; a fault is over when it is for all of them."""

    def __init__(self, loads: list[Load]) -> None:
        self.all = loads

    def start(self) -> Loads:
        for load in self.all:
            load.start()
        return self

    def broken(self, fault: Callable[[], None]) -> float:
        since = time.monotonic()
        fault()
        over = time.monotonic()
        for load in self.all:
            load.wait_until_confirmed(over)
        return max(load.outage_s(since) for load in self.all)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.cluster", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long (default 10)")
    parser.add_argument("--each", type=int, default=0, help="measure each fault so many times")
    parser.add_argument("--kills", action="store_true", help="kill every owner of a quorum queue")
    parser.add_argument("--seed", type=int, default=1, help="dice for faults and moments")
    parser.add_argument("--lease", default="5s", help="of the owner (default 5s)")
    parser.add_argument("--shards", type=int, default=1, help="with a load on each (default 1)")
    chosen = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="queuelake-cluster-"))
    settings = {"cluster.lease": chosen.lease, "cluster.shards": chosen.shards}
    with Cluster(directory, settings, config=CONFIG) as cluster:
        soak = Soak(cluster, chosen.seed)
        try:
            if chosen.kills:
                found = soak.run_kills(chosen.minutes)
            else:
                found = soak.run_each(chosen.each) if chosen.each else soak.run(chosen.minutes)
        except AssertionError as error:
            found = [str(error)]
    for violation in found[:SHOWN_MAX]:
        print(f"violation: {violation}")
    for name, outages_s in sorted(soak.outages_s.items()):
        print(f"{name}: " + ", ".join(f"{outage_s:.1f}" for outage_s in sorted(outages_s)) + " s")
    if found:
        print(f"kept: {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
