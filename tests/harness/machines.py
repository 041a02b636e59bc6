"""Machines with a network between them which can be cut: network namespaces on one bridge.

with Machines(3) as machines:
    machines[0].host, machines[0].prefix     # its address; what runs a command there
    machines.cut(0)                          # the others do not reach it; the test still does
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple


class Machine(NamedTuple):
    host: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()


def why_not() -> str:
    """Why there can be no machines here; empty when there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need root, on Linux"
    if shutil.which("ip") is None:
        return "network namespaces need ip: apt-get install iproute2"
    return "" if _is_possible("link", "add", "qltest0", "type", "veth") else "no veth devices here"


class Machines(Sequence[Machine]):
    def __init__(self, count: int) -> None:
        self._name = f"ql{os.getpid()}"
        self._net = f"10.{os.getpid() % 200 + 20}.{os.getpid() // 200 % 250}"
        self._cut: set[int] = set()
        self._all = [
            Machine(self._host(index), ("ip", "netns", "exec", self._space(index)))
            for index in range(count)
        ]

    def __getitem__(self, index: int) -> Machine:  # type: ignore[override]
        return self._all[index]

    def __len__(self) -> int:
        return len(self._all)

    def __enter__(self) -> Machines:
        try:
            bridge = self._name
            _ip("link", "add", bridge, "type", "bridge")
            _ip("addr", "add", f"{self._net}.254/24", "dev", bridge)
            _ip("link", "set", bridge, "up")
            for index in range(len(self)):
                self._make(index, bridge)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        for index in range(len(self)):
            _is_possible("netns", "del", self._space(index))
        _is_possible("link", "del", self._name)

    def cut(self, index: int) -> None:
        """Nothing passes between this one and the others, in either direction."""
        self._cut.add(index)
        for other in self._others(index):
            self._blackhole("add", index, other)
            self._blackhole("add", other, index)

    def mend(self) -> None:
        for index in self._cut:
            for other in self._others(index):
                self._blackhole("del", index, other)
                self._blackhole("del", other, index)
        self._cut.clear()

    def _make(self, index: int, bridge: str) -> None:
        space, outside = self._space(index), f"{self._name}v{index}"
        _ip("netns", "add", space)
        _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", outside, "master", bridge, "up")
        _ip("-n", space, "addr", "add", f"{self._host(index)}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        _ip("-n", space, "link", "set", "lo", "up")

    def _blackhole(self, verb: str, here: int, there: int) -> None:
        _ip("-n", self._space(here), "route", verb, "blackhole", f"{self._host(there)}/32")

    def _others(self, index: int) -> list[int]:
        return [other for other in range(len(self)) if other != index]

    def _space(self, index: int) -> str:
        return f"{self._name}n{index}"

    def _host(self, index: int) -> str:
        return f"{self._net}.{index + 1}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def _is_possible(*arguments: str) -> bool:
    done = subprocess.run(["ip", *arguments], check=False, capture_output=True)
    if arguments[:2] == ("link", "add"):
        subprocess.run(["ip", "link", "del", arguments[2]], check=False, capture_output=True)
    return done.returncode == 0
