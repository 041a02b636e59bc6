"""A broker which ends leaves nothing behind: no committer at work, no memory."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from queuelake import control_access as ops
from queuelake.broker.audit import Audit
from queuelake.broker.core import Broker
from queuelake.broker.operation import perform
from queuelake.broker.serving import Place, Serving
from queuelake.control_access import UserInfo
from queuelake.errors import NotFoundError
from queuelake.settings import Settings, load_settings
from queuelake.storage.api import META, Batch
from queuelake.storage.lmdb_store import LmdbStore
from queuelake.storage.shards import directory_of


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


async def test_brokers_of_one_machine_learn_what_one_of_them_changed(tmp_path: Path) -> None:
    assignments = [
        *("cluster.enabled=true", "cluster.shards=2", f"data_dir={tmp_path}"),
        f"auth.password_file={tmp_path / 'users'}",
    ]
    (tmp_path / "users").touch()
    settings = load_settings(None, {}, assignments)
    place = Place(settings, {}, tmp_path, [], {}, Audit(tmp_path, lambda: 0), lambda: None)
    stores = [LmdbStore(directory_of(tmp_path, k), settings.storage) for k in range(2)]
    first, second = (Serving(place, store, shard=k) for k, store in enumerate(stores))
    await first.start()
    await second.start()
    await perform(first.operations[ops.USER_ADD], {"name": "olga", "password": "secret"})
    rules = b'{"rules": [{"permission": "deny", "topics": ["a"]}]}'
    await perform(first.operations[ops.ACL_REPLACE], {"rules": rules, "version": "*"})
    with pytest.raises(NotFoundError):
        await perform(second.operations[ops.USER], {"name": "olga"})
    await perform(second.operations[ops.ACCESS_RELOAD], {})
    assert await perform(second.operations[ops.USER], {"name": "olga"}) == UserInfo("olga")
    shown = [await perform(one.operations[ops.ACL_RULES], {}) for one in (first, second)]
    assert shown[0] == shown[1]
    (tmp_path / "users").write_text("not a line of a password file")
    await perform(second.operations[ops.ACCESS_RELOAD], {})  # what was right before stays in force
    assert await perform(second.operations[ops.USER], {"name": "olga"}) == UserInfo("olga")
    for serving in (first, second):
        await serving.stop()
        serving.store.close()
