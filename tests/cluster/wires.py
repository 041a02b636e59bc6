"""Messages between nodes of one process: in order, lost when a test says so."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from queuelake.cluster.engine import Receiver


class Wires:
    """The network. What is sent waits until `deliver` is called; `loses` decides what is lost."""

    def __init__(self, payload_bytes_max: int = 1024 * 1024) -> None:
        self.payload_bytes_max = payload_bytes_max
        self.receivers: dict[str, Receiver] = {}
        self.waiting: deque[tuple[str, bytes]] = deque()
        self.loses: Callable[[str, bytes], bool] = lambda subject, data: False
        self.sent = 0
        self.on_send: Callable[[], object] = lambda: None

    def messenger(self, node: str) -> WireMessenger:
        return WireMessenger(self, node)

    def run(self) -> None:
        """Hand over by itself from now on, in the turn after."""
        loop = asyncio.get_running_loop()
        self.on_send = lambda: loop.call_soon(self.deliver, 1)

    def deliver(self, count: int = 1_000_000) -> int:
        """Hand over up to this many of the messages which wait now; returns how many."""
        count = min(count, len(self.waiting))
        for _ in range(count):
            subject, data = self.waiting.popleft()
            receiver = self.receivers.get(subject)
            if receiver is not None and not self.loses(subject, data):
                receiver(data)
        return count


class WireMessenger:
    def __init__(self, wires: Wires, node: str) -> None:
        self.node = node
        self.payload_bytes_max = wires.payload_bytes_max
        self.is_dead = False
        self._wires = wires

    def send(self, subject: str, data: bytes) -> None:
        if self.is_dead:
            return
        assert len(data) <= self.payload_bytes_max
        self._wires.sent += 1
        self._wires.waiting.append((subject, data))
        self._wires.on_send()

    async def receive(self, subject: str, receiver: Receiver) -> None:
        self._wires.receivers[subject] = receiver

    async def is_there(self, node: str) -> bool:
        return f"node.{node}.frames" in self._wires.receivers
