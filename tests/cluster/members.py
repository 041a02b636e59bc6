"""Nodes which do nothing but own a shard or not, on the simulated engine."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from queuelake.cluster.ownership import Ownership
from tests.simulation.cluster_engine import Center, Fate, NodeEngine
from tests.simulation.cluster_loop import Time

LEASE_S = 5.0


class Members:
    """A center and its nodes; time passes with `run`."""

    def __init__(self, *names: str, seed: int = 0) -> None:
        dice = random.Random(seed)
        self.time = Time(dice)
        self.fate = Fate(dice)
        self.center = Center(self.time, self.fate)
        self.all = [Member(self, name) for name in names]

    def __enter__(self) -> Members:
        return self

    def __exit__(self, *exc: object) -> None:
        self.time.close()

    def __getitem__(self, name: str) -> Member:
        return next(member for member in self.all if member.name == name)

    def run(self, seconds: float) -> None:
        self.time.run(seconds)
        assert [member.loop.errors for member in self.all] == [[] for _ in self.all]

    def owner(self) -> Member:
        (owner,) = [member for member in self.all if member.ownership.is_owner]
        return owner

    def others(self) -> list[Member]:
        owner = self.owner()
        return [member for member in self.all if member is not owner]

    def run_until(self, what: Callable[[], bool], seconds_max: float) -> float:
        """Returns how long it took."""
        passed_s = 0.0
        while not what():
            assert passed_s < seconds_max, f"not within {seconds_max} s"
            self.run(0.05)
            passed_s += 0.05
        return passed_s

    def run_until_owned(self, by: str, seconds_max: float) -> float:
        return self.run_until(lambda: self[by].ownership.is_owner, seconds_max)


class Member:
    """One process. `crash` ends it, `start` begins the next one of the same name."""

    def __init__(self, members: Members, name: str) -> None:
        self._members = members
        self.name = name
        self.fit = True
        self.gives_way_s = 0.0
        self.take_over: Callable[[int], Awaitable[bool]] = self._say_yes
        self.told: list[str] = []  # what `lost` was called with
        self.epochs: list[int] = []
        self.start()

    def start(self) -> None:
        members = self._members
        self.loop = members.time.new_loop()
        self.engine = NodeEngine(members.center, self.name, self.loop)
        self.ownership = Ownership(
            self.engine.leases,
            self.engine,
            self.name,
            LEASE_S,
            self.loop.time,
            members.time.dice,
            fit=lambda: self.fit,
            take_over=self._take_over,
            lost=self.told.append,
            give_way_s=lambda former: self.gives_way_s,
        )
        self.task = self.loop.create_task(self.ownership.run())

    def crash(self) -> None:
        self.engine.vanish()
        self._members.time.end(self.loop)

    def release(self, heir: str = "") -> None:
        self.fit = False
        releasing = self.loop.create_task(self.ownership.release(heir))
        self._members.run_until(releasing.done, LEASE_S * 2)

    async def _take_over(self, epoch: int) -> bool:
        return await self.take_over(epoch)

    async def _say_yes(self, epoch: int) -> bool:
        self.epochs.append(epoch)
        return True
