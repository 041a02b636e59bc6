"""Messages between nodes over the subjects of NATS, below `queuelake.{cluster}.`.

What is sent goes out at once, in order. It is dropped while there is no connection, and when a
connection takes nothing for long: who numbers messages sees the gap.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

from nats.aio.msg import Msg

from queuelake.cluster.engine import Receiver
from queuelake.cluster.nats_link import Link, NoAnswerError, NobodyListensError

UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024
PAYLOAD_BYTES_MAX: Final = 1024 * 1024
PING_TIMEOUT_S: Final = 1.0
ASK_AGAIN_S: Final = 0.15
CLAIM_BYTES: Final = 16


class NatsMessenger:
    """`Messenger` of the engine."""

    def __init__(self, link: Link, cluster: str, node: str) -> None:
        self.node = node
        self.payload_bytes_max = min(PAYLOAD_BYTES_MAX, link.payload_bytes_max)
        self.dropped = 0
        self._link = link
        self._prefix = f"queuelake.{cluster}."
        self._claim = secrets.token_bytes(CLAIM_BYTES)  # empty: the name is ours

    async def start(self) -> None:
        """Be there for `is_there` of the other nodes."""
        await self._link.subscribe(self._ping_subject(self.node), self._on_ping)

    async def claim_name(self) -> bool:
        """After `start`: whether no other node has this name.

        Of several which come at once the lowest claim stays. It is made twice, because servers
        need a moment to hear from each other who listens where.
        """
        for _ in range(2):
            try:
                question = self._link.ask(self._ping_subject(self.node), self._claim)
                await self._link.answer(question, ASK_AGAIN_S)
            except NoAnswerError:
                continue
            return False
        self._claim = b""
        return True

    def send(self, subject: str, data: bytes) -> None:
        assert len(data) <= self.payload_bytes_max, "a message is longer than it may be"
        if not self._link.connected or self._link.unsent_bytes + len(data) > UNSENT_BYTES_MAX:
            self.dropped += 1
        else:
            self._link.send(self._prefix + subject, data)

    async def receive(self, subject: str, receiver: Receiver) -> None:
        await self._link.subscribe(self._prefix + subject, lambda message: receiver(message.data))

    async def is_there(self, node: str) -> bool:
        """A node which goes from one server to another is nowhere for some milliseconds, so who is
        not there is asked for twice."""
        return await self._is_heard(node) or await self._is_heard_later(node)

    async def _is_heard_later(self, node: str) -> bool:
        await asyncio.sleep(ASK_AGAIN_S)
        return await self._is_heard(node)

    async def _is_heard(self, node: str) -> bool:
        try:
            await self.ping(node)
        except NobodyListensError:
            return False
        except NoAnswerError:
            return True
        return True

    async def ping(self, node: str) -> None:
        """Wait for an answer of this node.

        Raises:
            NobodyListensError: it is not there.
            NoAnswerError: it may be there, and does not answer.
        """
        question = self._link.ask(self._ping_subject(node), b"")
        await self._link.answer(question, PING_TIMEOUT_S)

    def _ping_subject(self, node: str) -> str:
        return f"{self._prefix}node.{node}.ping"

    def _on_ping(self, message: Msg) -> None:
        """Asked whether this node is there, or whether its name is taken."""
        if message.data and message.data <= self._claim:
            return  # our own claim, or one which goes before it
        try:
            self._link.send(message.reply, b"")
        except NoAnswerError:
            pass  # the one who asked is told that nobody listens
