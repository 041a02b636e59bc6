"""How far the log reaches is told now and then, not after each append."""

from __future__ import annotations

import asyncio

from queuelake.broker.node import news
from queuelake.broker.node.news import News
from queuelake.cluster.engine import Receiver


class Echo:
    """A messenger whose messages come back at once, to all who listen."""

    node = "a"
    payload_bytes_max = 1000

    def __init__(self) -> None:
        self.receivers: dict[str, Receiver] = {}

    def send(self, subject: str, data: bytes) -> None:
        self.receivers[subject](data)

    async def receive(self, subject: str, receiver: Receiver) -> None:
        self.receivers[subject] = receiver

    async def is_there(self, node: str) -> bool:
        return True


async def test_of_many_appends_only_the_last_is_told() -> None:
    told: asyncio.Queue[int] = asyncio.Queue()
    ours = News(Echo())
    await ours.hear(told.put_nowait)
    for position in range(1, 100):
        ours.tell(position)
    assert told.empty()
    assert await told.get() == 99
    ours.tell(100)
    assert await told.get() == 100
    assert told.empty()


async def test_one_which_leaves_tells_nothing_more() -> None:
    told: list[int] = []
    ours = News(Echo())
    await ours.hear(told.append)
    ours.tell(1)
    ours.close()
    await asyncio.sleep(2 * news.INTERVAL_S)
    assert told == []
