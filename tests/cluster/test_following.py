"""A node which follows the log never stops trying, and says what is wrong until it is over."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from queuelake.broker.node import following
from queuelake.broker.node.following import Following
from queuelake.cluster.engine import UnavailableError
from queuelake.cluster.follower import Stuck
from queuelake.cluster.founding import Behind


class ScriptedFollower:
    """Each call of `run` and `catch_up` ends as the script says, then `run` follows for ever."""

    def __init__(self, *ends: Exception | None) -> None:
        self._ends = list(ends)
        self.calls: list[str] = []
        self.follows = asyncio.Event()

    async def run(self) -> None:
        self.calls.append("run")
        if self._ends and (end := self._ends.pop(0)) is not None:
            raise end
        self.follows.set()
        await asyncio.Event().wait()

    async def catch_up(self) -> None:
        self.calls.append("catch_up")
        if (end := self._ends.pop(0)) is not None:
            raise end


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "AGAIN_S", 0)


async def followed(follower: ScriptedFollower) -> Following:
    """Until nothing of the script is left."""
    member: Any = SimpleNamespace(follower=follower, owner=lambda: "", name="q0")
    node = Following(member)
    node.start()
    async with asyncio.timeout(10):
        await follower.follows.wait()
    await node.stop()
    return node


async def test_a_problem_is_over_when_the_node_has_caught_up() -> None:
    follower = ScriptedFollower(Stuck("disk full"), UnavailableError("no leader"), None)
    node = await followed(follower)
    assert follower.calls == ["run", "catch_up", "catch_up", "run"]
    assert node.problem == ""


async def test_a_mistake_of_ours_ends_nothing_and_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await followed(ScriptedFollower(KeyError("oops"), None))
    assert "internal error while following the log: KeyError('oops')" in caplog.text


async def test_who_needs_a_copy_and_finds_no_owner_says_so_and_asks_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    follower = ScriptedFollower(Behind("position 1 is not in the log"), Behind("still"), None)
    await followed(follower)
    assert "a copy of the store is needed, and there is no owner to ask" in caplog.text
    assert follower.calls == ["run", "catch_up", "catch_up", "run"]
