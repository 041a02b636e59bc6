"""Tunnels under dice: messages are late or lost, nodes start again, readers pause, ends close.

Whatever happens, an end has a beginning of what the other one wrote, never a hole; who saw a clean
end has all of it; when the network is well again both ends live, or neither.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random

import pytest

from queuelake.cluster import flow, tunnel_transport
from queuelake.cluster.frames import HEAD_BYTES_MAX
from tests.cluster.tunnel_world import End, World, tunnel_of

WINDOW = 4096
FLOW = 2 * WINDOW
PAYLOAD_BYTES_MAX = HEAD_BYTES_MAX + 1500
STEPS = 300


class Side:
    """One end of a tunnel, and what was written to it."""

    def __init__(self, node: str, end: End) -> None:
        self.node = node
        self.end = end
        self.written = bytearray()
        self.has_closed = False  # or broken it off
        self.is_dead = False  # with its process

    def saw_clean_end(self) -> bool:
        return self.end.is_over and self.end.error is None and not self.has_closed


class DiceWorld(World):
    def __init__(self, seed: int) -> None:
        super().__init__(PAYLOAD_BYTES_MAX)
        self.dice = random.Random(seed)
        self.members = ("a", "b", "c")[: 2 + seed % 2]
        self.names = itertools.count(1)
        self.near: dict[int, Side] = {}
        self.far: dict[int, Side] = {}
        self.loss = 0.0
        self.wires.loses = lambda subject, data: self.dice.random() < self.loss

    def sides(self) -> list[Side]:
        sides = [*self.near.values(), *self.far.values()]
        return [side for side in sides if not side.is_dead and not side.end.is_over]

    def see_accepted(self) -> None:
        for node, ends in self.ends.items():
            for end in ends:
                assert isinstance(end.name, int)
                if end.name not in self.far:
                    self.far[end.name] = Side(node, end)

    async def step(self) -> None:
        dice = self.dice
        sides = self.sides()
        match dice.randrange(10):
            case 0:
                source, target = dice.choice(self.members), dice.choice(self.members)
                name = next(self.names)
                self.near[name] = Side(source, self.open(source, target, name=name)[1])
            case 1 | 2 | 3 if sides:
                self.write(dice.choice(sides))
            case 4 if sides:
                tunnel = tunnel_of(dice.choice(sides).end)
                if dice.random() < 0.4:
                    tunnel.pause_reading()
                else:
                    tunnel.resume_reading()
            case 5 if sides and dice.random() < 0.3:
                side = dice.choice(sides)
                side.has_closed = True
                tunnel_of(side.end).close()
            case 6 if sides and dice.random() < 0.1:
                side = dice.choice(sides)
                side.has_closed = True
                tunnel_of(side.end).abort()
            case 7:
                await self.disturb()
            case 8 if dice.random() < 0.3:
                self.nodes[dice.choice(self.members)].beat()
            case _:
                self.wires.deliver(dice.randrange(20))
        for _ in range(dice.randrange(3)):
            await asyncio.sleep(0)
        self.see_accepted()

    def write(self, side: Side) -> None:
        if side.end.is_paused or side.has_closed:
            return
        data = self.dice.randbytes(self.dice.choice((1, 50, 1000, 10_000)))
        side.written += data
        tunnel_of(side.end).write(data)

    async def disturb(self) -> None:
        self.loss = self.dice.choice((0.0, 0.0, 0.0, 0.02, 0.5))
        if self.dice.random() < 0.1:
            name = self.dice.choice(self.members)
            for side in self.sides():
                if side.node == name:
                    side.is_dead = True
            await self.start(name)

    def check(self) -> None:
        for name, near in self.near.items():
            far = self.far.get(name)
            if far is None:
                assert near.end.data == b"", "nobody has written it"
                continue
            for one, other in ((near, far), (far, near)):
                if one.is_dead:
                    continue
                assert other.written.startswith(one.end.data), f"tunnel {name} has a hole"
                if one.saw_clean_end():
                    assert one.end.data == other.written, f"tunnel {name} ended too early"
        for side in self.sides():
            assert len(tunnel_of(side.end)._unread) <= WINDOW
            size = tunnel_of(side.end).get_write_buffer_size()
            assert size <= tunnel_transport.HIGH_BYTES + 10_000, "it writes only when it may"

    async def heal(self) -> None:
        """Nothing is lost any more, and everybody reads."""
        self.loss = 0.0
        for _ in range(10):
            await self.beat()
            self.see_accepted()
            for side in self.sides():
                tunnel_of(side.end).resume_reading()

    def check_healed(self) -> None:
        for name, near in self.near.items():
            far = self.far.get(name)
            alive = not near.is_dead and not near.end.is_over
            far_alive = far is not None and not far.is_dead and not far.end.is_over
            assert alive == far_alive, f"one end of tunnel {name} is alone"
            if alive:
                assert far is not None
                assert far.end.data == near.written
                assert near.end.data == far.written
        for node in self.nodes.values():
            assert all([one._flow.under_way_bytes == 0 for one in node._nodes.values()])


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel_transport, "WINDOW_BYTES", WINDOW)
    monkeypatch.setattr(tunnel_transport, "WINDOW_STEP_BYTES", WINDOW // 4)
    monkeypatch.setattr(tunnel_transport, "HIGH_BYTES", 2000)
    monkeypatch.setattr(flow, "FLOW_BYTES_MAX", FLOW)
    monkeypatch.setattr(flow, "CONFIRM_BYTES", FLOW // 8)


@pytest.mark.parametrize("seed", range(60))
async def test_no_tunnel_has_a_hole(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    world = DiceWorld(seed)
    for name in world.members:
        await world.start(name)
    for _ in range(STEPS):
        await world.step()
        world.check()
    await world.heal()
    world.check()
    world.check_healed()
    assert world.near
    mistakes = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert not mistakes, "a window was not kept to, or a protocol failed"
