"""Copies of a store through a tunnel: whole and checked, or none."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from queuelake.cluster.copying import DIRECTORY, StoreCopies, fetch_copy, install_copy
from queuelake.cluster.tunnels import Tunnels
from queuelake.errors import StorageError
from queuelake.storage.api import META, RETAINED, Batch
from queuelake.storage.backup import PARTIAL_NAME, STORE_NAME
from queuelake.storage.lmdb_store import STORE_ID, LmdbStore
from tests.cluster.wires import Wires

ROWS = 500


class Pair:
    """Node `a` with a store, node `b` which wants it."""

    def __init__(self, directory: Path) -> None:
        self.wires = Wires()
        self.wires.run()
        self.source, self.target = directory / "a", directory / "b"
        for path in (self.source, self.target):
            path.mkdir()
        self.ended = 0
        self.copies = StoreCopies(self.source, self.count_end)
        self.a = Tunnels(self.wires.messenger("a"), {"store": self.copies.accept})
        self.b = Tunnels(self.wires.messenger("b"), {})

    def count_end(self) -> None:
        self.ended += 1

    async def start(self) -> None:
        await self.a.start()
        await self.b.start()

    async def idle(self) -> None:
        """Until `a` has put its things away."""
        while self.copies._sending:
            await asyncio.wait(self.copies._sending)

    async def close(self) -> None:
        await self.copies.close()
        self.a.close()
        self.b.close()

    def left(self) -> list[str]:
        """What is in the two directories, without the stores and their locks."""
        found = [*self.source.iterdir(), *self.target.iterdir()]
        return sorted([path.name for path in found if path.name not in (STORE_NAME, "broker.lock")])


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    pair = Pair(tmp_path)
    await pair.start()
    yield pair
    await pair.close()


@pytest.fixture
def store(pair: Pair) -> Iterator[LmdbStore]:
    """Three megabytes, open in this process as that of a broker is."""
    store = LmdbStore(pair.source)
    dice = random.Random(1)
    batch = Batch()
    for number in range(ROWS):
        batch.put(RETAINED, b"topic/%d" % number, dice.randbytes(6000))
    batch.put(META, b"cluster", b"position")
    store.commit(batch)
    yield store
    store.close()


def content(store: LmdbStore) -> list[tuple[bytes, bytes]]:
    with store.view() as view:
        return [
            *view.scan(META, b"", b"\xff"),
            *view.scan(RETAINED, b"", b"\xff"),
        ]


async def test_a_copy_is_the_same_store_with_its_position(pair: Pair, store: LmdbStore) -> None:
    seen: list[tuple[int, int]] = []
    path = await fetch_copy(
        pair.b, "a", pair.target, lambda done, total: seen.append((done, total))
    )
    assert path == pair.target / PARTIAL_NAME
    size = (path / "data.mdb").stat().st_size
    assert seen[-1] == (size, size)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    expected = content(store)
    later = Batch()
    later.put(META, b"later", b"not in the copy")
    store.commit(later)
    install_copy(pair.target)
    copied = LmdbStore(pair.target)
    assert content(copied) == expected
    with store.view() as ours, copied.view() as theirs:
        assert ours.get(META, STORE_ID) == theirs.get(META, STORE_ID) is not None
        assert theirs.get(META, b"cluster") == b"position"
    copied.close()
    await pair.idle()
    assert pair.left() == []
    assert pair.ended == 1


async def test_a_copy_takes_the_place_of_an_old_store(pair: Pair, store: LmdbStore) -> None:
    old = LmdbStore(pair.target)
    old.close()
    (pair.target / PARTIAL_NAME).mkdir()
    (pair.target / PARTIAL_NAME / "data.mdb").write_bytes(b"of an attempt which was interrupted")
    await fetch_copy(pair.b, "a", pair.target)
    install_copy(pair.target)
    copied = LmdbStore(pair.target)
    assert content(copied) == content(store)
    copied.close()
    await pair.idle()
    assert pair.left() == []


async def test_one_at_a_time(pair: Pair, store: LmdbStore, tmp_path: Path) -> None:
    third = Tunnels(pair.wires.messenger("c"), {})
    await third.start()
    (tmp_path / "c").mkdir()
    fetching = asyncio.create_task(fetch_copy(pair.b, "a", pair.target))
    while not pair.copies._sending:  # noqa: ASYNC110 a few turns
        await asyncio.sleep(0)
    with pytest.raises(StorageError, match="a copy for node b is being made; one at a time"):
        await fetch_copy(third, "a", tmp_path / "c")
    await fetching
    await pair.idle()
    await fetch_copy(third, "a", tmp_path / "c")
    third.close()


async def test_what_the_copying_says_is_told(pair: Pair) -> None:
    with pytest.raises(StorageError, match=r"copy of the store of node a: .*a/store"):
        await fetch_copy(pair.b, "a", pair.target)
    await pair.idle()
    assert pair.left() == []


async def test_a_node_which_serves_none_says_so(pair: Pair) -> None:
    with pytest.raises(StorageError, match="node b takes no tunnels of kind 'store'"):
        await fetch_copy(pair.a, "b", pair.target)


async def test_bytes_which_changed_on_the_way_are_noticed(pair: Pair, store: LmdbStore) -> None:
    receiver = pair.wires.receivers["node.b.frames"]

    def spoil(message: bytes) -> None:
        if len(message) > 50_000:
            message = message[:30_000] + bytes([message[30_000] ^ 1]) + message[30_001:]
        receiver(message)

    pair.wires.receivers["node.b.frames"] = spoil
    with pytest.raises(StorageError, match="bytes are not those which were sent"):
        await fetch_copy(pair.b, "a", pair.target)
    await pair.idle()
    assert pair.left() == []


async def test_a_lost_message_ends_the_copy_on_both_sides(pair: Pair, store: LmdbStore) -> None:
    large: list[int] = []

    def loses(subject: str, data: bytes) -> bool:
        if len(data) < 50_000:
            return False
        large.append(len(data))
        return len(large) == 3

    pair.wires.loses = loses
    with pytest.raises(StorageError, match="messages of node a were lost"):
        await fetch_copy(pair.b, "a", pair.target)
    await pair.idle()
    assert pair.left() == []


async def test_a_disk_without_room_is_told_before_it_is_filled(
    pair: Pair, store: LmdbStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage)
    with pytest.raises(StorageError, match=r"and .*b 1000 which are free"):
        await fetch_copy(pair.b, "a", pair.target)


async def test_who_gives_up_leaves_nothing(pair: Pair, store: LmdbStore) -> None:
    fetching = asyncio.create_task(fetch_copy(pair.b, "a", pair.target))
    while not (pair.source / DIRECTORY).exists():  # noqa: ASYNC110 made by a task of the other side
        await asyncio.sleep(0)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    await pair.idle()
    assert pair.left() == []
    await fetch_copy(pair.b, "a", pair.target)


async def test_closing_gives_up_what_is_being_sent(pair: Pair, store: LmdbStore) -> None:
    fetching = asyncio.create_task(fetch_copy(pair.b, "a", pair.target))
    while not (pair.source / DIRECTORY).exists():  # noqa: ASYNC110 made by a task of the other side
        await asyncio.sleep(0)
    await pair.copies.close()
    with pytest.raises(StorageError, match="it ended too early"):
        await fetching
    assert pair.left() == []
