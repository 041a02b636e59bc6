"""How far the owner cuts the log."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from queuelake.broker.node import heart
from queuelake.broker.node.heart import LOG_BYTES_KEPT, Heart, needless
from queuelake.broker.node.roster import ALIVE_S, Report, Roster
from queuelake.cluster.engine import Receiver
from queuelake.cluster.replica import Position, Replica
from tests.cluster.scripted_log import ScriptedLog, inline

LIMIT = 4 * LOG_BYTES_KEPT
ALIVE = [90, 70]
KNOWN = [90, 70, 20]  # one of them is dead


@pytest.mark.parametrize(
    ("size", "upto"),
    [
        (LOG_BYTES_KEPT - 1, 0),
        (LOG_BYTES_KEPT, 20),
        (LIMIT - 1, 20),
        (LIMIT, 70),
    ],
)
def test_the_log_is_cut_behind_the_slowest_and_the_dead_are_waited_for_until_it_is_full(
    size: int, upto: int
) -> None:
    assert needless(size, LIMIT, KNOWN, ALIVE) == upto


def test_a_log_which_may_be_short_is_cut_when_it_has_that_size() -> None:
    limit = LOG_BYTES_KEPT // 2
    assert needless(limit - 1, limit, KNOWN, ALIVE) == 0
    assert needless(limit, limit, KNOWN, ALIVE) == 70


class Silent:
    """A messenger with nobody at the other end."""

    node = "a"
    payload_bytes_max = 1 << 20

    def send(self, subject: str, data: bytes) -> None:
        pass

    async def receive(self, subject: str, receiver: Receiver) -> None:
        pass

    async def is_there(self, node: str) -> bool:
        return False


class Owner:
    """What a heart needs of a node which owns a log of so many positions."""

    def __init__(self, positions: int, log_bytes_max: int) -> None:
        self.log = ScriptedLog()
        self.log.values = [bytes(10)] * positions
        self.now_s = 0.0
        self.name = "a"
        self.roster = Roster(Silent(), lambda: self.now_s, lambda former, owner: None)
        self.replica = Replica(Position(positions, 1, positions, 0))
        self.store = SimpleNamespace(sync=lambda: None)
        self.serving = object()
        self.draining = False
        self.following = SimpleNamespace(problem="", is_copying=False)
        self.place = SimpleNamespace(addresses=[])
        self.config = SimpleNamespace(log_bytes_max=log_bytes_max)
        self.in_thread = inline
        self.tidied = asyncio.Event()

    def hear(self, node: str, synced: int) -> None:
        self.roster.say(Report(node, "replica", synced, 1, 0, synced, "", []))

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        asyncio.create_task(work).add_done_callback(lambda _: self.tidied.set())

    async def beat(self) -> None:
        """Until the log was looked after once."""
        member: Any = self
        one = Heart(member)
        one.synced = self.log.last  # since its last beat
        beating = asyncio.create_task(one.beat())
        async with asyncio.timeout(10):
            await self.tidied.wait()
        beating.cancel()


@pytest.mark.rule("Q33")
@pytest.mark.parametrize(
    ("log_bytes_max", "first"),
    [(10_000, 4), (200, 8)],  # it waits for the dead one, or has its full size
)
async def test_the_owner_cuts_the_log_behind_the_slowest_replica(
    monkeypatch: pytest.MonkeyPatch, log_bytes_max: int, first: int
) -> None:
    monkeypatch.setattr(heart, "LOG_BYTES_KEPT", 1)
    owner = Owner(20, log_bytes_max)
    owner.hear("dead", 3)
    owner.now_s += ALIVE_S
    owner.hear("slow", 7)
    owner.hear("fast", 20)
    await owner.beat()
    assert owner.log.first == first
    assert owner.log.last == 20  # positions go on where they were


@pytest.mark.rule("Q33")
async def test_only_the_owner_cuts_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heart, "LOG_BYTES_KEPT", 1)
    replica = Owner(20, 200)
    replica.serving = None
    await replica.beat()
    assert replica.log.first == 1
