"""A commit which the store refuses: nothing of the batch is there, and it can be asked for again.

The broker runs here, on a store whose commits fail when they are told to.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from queuelake.broker.core import Broker
from queuelake.broker.queues import extending
from queuelake.control_pipeline import CommitStage
from queuelake.errors import RefusedError, StorageError
from queuelake.export.preparing import prepare
from queuelake.flight import UNNAMED_JOB, Committed
from queuelake.settings import Queues, Settings
from queuelake.storage import api
from queuelake.storage import queue_tables as t
from queuelake.storage import stage_records as r
from queuelake.storage.api import Batch
from queuelake.storage.chunk import Record
from queuelake.storage.memory import MemoryStore
from queuelake.storage.stage_tables import OPEN, Pointer, stage_key, staged_key
from tests.export.staging import messages, numbered

TARGET = "$queue/a"


class Store(MemoryStore):
    """Fails the first commit which writes to one of these tables; holds up the one which shows a
    batch until the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: set[int] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()

    def commit(self, batch: Batch) -> None:
        if any(batch.tables[table] for table in self.failing):
            self.failing = set()
            raise StorageError("injected: commit failed")
        if batch.tables[api.BATCHES]:
            self.reached.set()
            self.gate.wait()
        super().commit(batch)


class Node:
    def __init__(self, folder: Path, store: Store) -> None:
        self.folder = folder
        self.store = store
        queues = Queues(named={"b": {"ordering": "none"}})
        settings = Settings(data_dir=str(folder), queues=queues)
        self.broker = Broker(settings, store, asyncio.get_running_loop())
        self.broker.start()

    def prepare(self, batch: int, table: pa.Table, target_name: str = TARGET) -> CommitStage:
        job = hashlib.blake2b(b"job", digest_size=16).hexdigest()
        folder = self.folder / "staging" / job / str(batch)
        folder.mkdir(parents=True, exist_ok=True)
        with pa.ipc.new_file(str(folder / "rows.arrow"), table.schema) as writer:
            writer.write_table(table)
        target = self.broker.staging.target({"target": target_name})
        (folder / "p").unlink(missing_ok=True)
        prepare(folder / "p", [folder / "rows.arrow"], target, "job", "", lambda _: [])
        return CommitStage("job", batch, target_name, "p")

    async def commit(self, asked: CommitStage) -> Committed:
        return await self.broker.staging.commit(msgspec.structs.asdict(asked))

    def payloads(self) -> list[bytes]:
        host = self.broker.queues.get("a")
        found: list[bytes] = []
        for partition in host.machine.partitions:
            seq = 0
            while records := t.read_chunk_at(self.store.view(), host.id, partition.number, seq):
                found += [record.payload for record in records]
                seq = records[-1].seq + 1
        return sorted(found)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():  # noqa: ASYNC110 the store has no event to wait for
                await asyncio.sleep(0.01)

    def staged(self) -> int:
        return len(self.store.tables[api.STAGED])


def run(
    folder: Path, test: Callable[[Node], Coroutine[Any, Any, None]], store: Store | None = None
) -> Store:
    used = store or Store()

    async def main() -> None:
        node = Node(folder, used)
        try:
            await test(node)
        finally:
            await node.broker.stop()

    asyncio.run(main())
    return used


@pytest.mark.parametrize("table", [api.STAGED, api.BATCHES, api.CHUNKS])
def test_a_commit_which_fails_leaves_nothing_and_can_be_repeated(
    tmp_path: Path, table: int
) -> None:
    async def test(node: Node) -> None:
        asked = node.prepare(0, numbered(5_000, size=1_000))
        node.store.failing = {table}
        with pytest.raises(StorageError, match="not stored so far"):
            await node.commit(asked)
        assert node.broker.staging.batch({"job": "job", "batch": 0}) is None
        assert node.payloads() == []
        assert node.broker.queues.get("a").machine.depth() == 0
        await node.until(lambda: node.staged() == 0)
        assert (await node.commit(asked)).rows == 5_000
        assert (await node.commit(asked)).repeated
        assert [one[:8] for one in node.payloads()] == [b"%08d" % n for n in range(5_000)]
        assert node.broker.queues.get("a").machine.depth() == 5_000

    run(tmp_path, test)


def test_a_queue_made_anew_meanwhile_is_another_queue(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        asked = node.prepare(0, numbered(10))
        node.broker.queues.delete("a")
        with pytest.raises(Exception, match="not the queue it was"):
            await node.commit(asked)
        assert (await node.commit(node.prepare(0, numbered(10)))).rows == 10

    run(tmp_path, test)


def test_delayed_rows_are_moved_after_a_restart(tmp_path: Path) -> None:
    async def commit(node: Node) -> None:
        table = messages(*[f"{n}" for n in range(9_000)], delay_ms=3_600_000)
        await node.commit(node.prepare(0, table))
        assert node.broker.queues.get("a").machine.delayed == 9_000
        assert node.staged() > 0, "they are not moved all at once"

    async def look(node: Node) -> None:
        assert node.broker.queues.get("a").machine.delayed == 9_000
        await node.until(lambda: node.staged() == 0)
        assert len(node.store.tables[api.DELAYED]) == 9_000
        assert list(node.store.tables[api.BATCHES]) != []
        assert node.broker.queues.get("a").machine.delayed == 9_000

    store = run(tmp_path, commit)
    run(tmp_path, look, store)


def test_a_purge_takes_delayed_rows_along_which_were_not_moved_yet(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        table = messages(*[f"{n}" for n in range(9_000)], delay_ms=3_600_000)
        await node.commit(node.prepare(0, table))
        host = node.broker.queues.get("a")
        host.purge(node.broker.clock.now_ms())
        await node.until(lambda: node.staged() == 0)
        await node.until(lambda: not node.store.tables[api.DELAYED])
        assert host.machine.delayed == 0

    run(tmp_path, test)


def test_a_purge_takes_delayed_rows_along_whose_commit_is_under_way(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        node.store.gate.clear()
        table = messages(*[f"{n}" for n in range(3_000)], delay_ms=3_600_000)
        commit = asyncio.ensure_future(node.commit(node.prepare(0, table)))
        await node.until(node.store.reached.is_set)
        host = node.broker.queues.get("a")
        assert host.purge(node.broker.clock.now_ms()) == 3_000
        node.store.gate.set()
        assert (await commit).rows == 3_000
        await node.until(lambda: node.staged() == 0)
        assert not node.store.tables[api.DELAYED]
        assert r.all_delays(node.store.view()) == {}
        assert host.machine.delayed == 0

    run(tmp_path, test)


def test_stages_nobody_points_to_are_deleted_at_the_start(tmp_path: Path) -> None:
    async def nothing(node: Node) -> None:
        await node.until(lambda: node.staged() == 0)

    store = Store()
    for number in range(500):
        store.tables[api.STAGED][staged_key(7, number)] = b"x"
    store.tables[api.STAGED][stage_key(7) + OPEN] = b""
    run(tmp_path, nothing, store)


def test_old_batches_of_a_job_are_forgotten(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        for batch in range(1_500):
            record = r.BatchRecord("job", batch, 1, 1)
            node.store.tables[api.BATCHES][r.batch_key("job", batch)] = r.encode(record)
        node.broker.staging._commits = 99
        await node.commit(node.prepare(2_000, messages("a")))
        await node.until(lambda: len(node.store.tables[api.BATCHES]) == 1_000)
        assert node.broker.staging.batch({"job": "job", "batch": 2_000}) is not None
        assert node.broker.staging.batch({"job": "job", "batch": 1_000}) is not None
        assert node.broker.staging.batch({"job": "job", "batch": 0}) is None

    run(tmp_path, test)


def test_batches_of_writes_without_a_job_id_are_forgotten_after_a_day(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        now_ms = node.broker.clock.now_ms()
        day_ms = 24 * 3_600_000
        jobs = [f"{UNNAMED_JOB}{number}" for number in range(500)]
        ages = dict.fromkeys(jobs, 2 * day_ms) | {f"{UNNAMED_JOB}young": 0, "named": 900 * day_ms}
        for job, age_ms in ages.items():
            record = r.BatchRecord(job, 0, 1, now_ms - age_ms)
            node.store.tables[api.BATCHES][r.batch_key(job, 0)] = r.encode(record)
        node.broker.staging._commits = 99
        await node.commit(node.prepare(0, messages("a")))
        await node.until(lambda: len(node.store.tables[api.BATCHES]) <= 3)
        for job in (f"{UNNAMED_JOB}young", "named", "job"):
            assert node.broker.staging.batch({"job": job, "batch": 0}) is not None

    run(tmp_path, test)


def test_delayed_rows_of_a_deleted_queue_go_with_it(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        table = messages("now", *[f"{n}" for n in range(9_000)], delay_ms=[0] + [3_600_000] * 9_000)
        await node.commit(node.prepare(0, table))
        node.broker.queues.delete("a")
        await node.until(lambda: node.staged() == 0)
        await node.until(lambda: not node.store.tables[api.DELAYED])
        assert len(node.store.tables[api.BATCHES]) == 1, "the batch stays known"

    run(tmp_path, test)


def test_who_stops_waiting_for_a_commit_takes_nothing_back(tmp_path: Path) -> None:
    """The commit is on its way when its caller goes: what it shows must not be deleted."""

    async def test(node: Node) -> None:
        node.store.gate.clear()
        task = asyncio.ensure_future(node.commit(node.prepare(0, numbered(3_000, size=1_000))))
        await node.until(node.store.reached.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(1)  # as long as upkeep needs to begin with whatever it was told
        node.store.gate.set()
        await node.until(lambda: len(node.payloads()) == 3_000)
        await asyncio.sleep(1)
        assert [one[:8] for one in node.payloads()] == [b"%08d" % n for n in range(3_000)]

    run(tmp_path, test)


def test_a_batch_of_one_queue_is_refused_for_another(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        await node.commit(node.prepare(0, messages("a")))
        other = node.prepare(0, messages("a"), "$queue/b")
        with pytest.raises(RefusedError, match=r"committed to '.queue/a', not to '.queue/b'"):
            await node.commit(other)
        with pytest.raises(RefusedError, match="needs a job id of its own"):
            node.broker.staging.batch({"job": "job", "batch": 0, "target": "$queue/b"})
        assert node.broker.queues.get("b").machine.depth() == 0
        assert (await node.commit(node.prepare(0, messages("a")))).repeated

    run(tmp_path, test)


def test_a_batch_of_a_store_which_knew_no_targets_is_still_known(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        old = msgspec.msgpack.encode(["job", 0, 1, 1])
        node.store.tables[api.BATCHES][r.batch_key("job", 0)] = old
        assert (await node.commit(node.prepare(0, messages("a")))).repeated

    run(tmp_path, test)


def test_priorities_are_not_looked_for_when_nobody_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Pointer] = []

    def look(_: object, pointer: Pointer) -> list[Record]:
        looked.append(pointer)
        return []

    async def test(node: Node) -> None:
        monkeypatch.setattr(extending, "pointed_records", look)
        table = messages("a", properties=[[("priority", "9")]])
        await node.commit(node.prepare(0, table, "$queue/b"))
        assert node.broker.queues.get("b").machine.depth() == 1
        assert looked == []

    run(tmp_path, test)
