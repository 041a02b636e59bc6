"""A broker which ends leaves nothing behind: no committer at work, no memory."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from queuelake.broker.audit import Audit
from queuelake.broker.core import Broker
from queuelake.broker.serving import Place, Serving
from queuelake.settings import Settings
from queuelake.storage.api import META, Batch
from queuelake.storage.lmdb_store import LmdbStore


class HangingCommitter:
    """One whose log does not answer."""

    def __init__(self) -> None:
        self.batches = 0
        self.is_closed = False

    def submit(self, batch: Batch, done: Callable[[str], None]) -> None:
        self.batches += 1

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def place(tmp_path: Path) -> Place:
    settings = msgspec.structs.replace(Settings(), shutdown_timeout_s=0.05)
    audit = Audit(tmp_path, lambda: 0)
    return Place(settings, {}, tmp_path, [], {}, audit, lambda: None)


async def serve(place: Place, committer: HangingCommitter) -> Serving:
    store = LmdbStore(place.data_dir, place.settings.storage)
    serving = Serving(place, store, committer)
    await serving.start()
    serving.broker.runner.put(META, b"test", b"")
    await asyncio.sleep(0)
    assert committer.batches == 1
    return serving


async def test_what_cannot_be_written_in_time_is_not_written_later(place: Place) -> None:
    committer = HangingCommitter()
    serving = await serve(place, committer)
    await serving.stop()
    assert committer.is_closed
    serving.store.close()


async def test_a_broker_which_is_lost_waits_for_nothing_and_is_forgotten(place: Place) -> None:
    committer = HangingCommitter()
    serving = await serve(place, committer)
    serving.fail("another node is the owner")
    serving.broker.runner.failure = ""  # a commit which was under way had ended well
    stopping = asyncio.ensure_future(serving.stop())
    for _ in range(10):
        await asyncio.sleep(0)
    assert stopping.done()
    store = serving.store
    store.close()
    del serving, stopping
    gc.collect()
    brokers = [one for one in gc.get_objects() if isinstance(one, Broker)]
    assert not [one for one in brokers if one.store is store]
