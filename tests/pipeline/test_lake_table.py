"""A table of the lake: one commit is one step, and only the holder of the lease makes it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from queuelake.errors import LeaseLostError, LeaseTakenError
from queuelake.flight import Lease, LeaseAsked
from queuelake.pipeline.lake import definitions, sweep
from queuelake.pipeline.lake import lake as lake_module
from queuelake.pipeline.lake import table as lake_table
from queuelake.pipeline.lake.files import DataFile, Writer, folder
from queuelake.pipeline.lake.lake import Lake
from queuelake.pipeline.lake.lease import HeldLease, acquire
from queuelake.pipeline.lake.table import Change, FilesMissingError, LakeTable, Move, MovedError

ARCHIVE = "archive:ab-1:0"


class LeasesInMemory:
    """Gives a lease to whoever asks, as after the end of the one before."""

    def __init__(self) -> None:
        self.epoch = 0
        self.taken = 0  # so many are refused first
        self.renewed = threading.Event()

    def lease(self, asked: LeaseAsked) -> Lease:
        if self.taken:
            self.taken -= 1
            raise LeaseTakenError("somebody has it")
        if asked.epoch:
            self.renewed.set()
            if asked.epoch != self.epoch:
                raise LeaseLostError("another one has it")
        else:
            self.epoch += 1
        return Lease(asked.lake, self.epoch, 0)

    def release(self, lease: Lease) -> None:
        pass


@pytest.fixture
def leases() -> LeasesInMemory:
    return LeasesInMemory()


@pytest.fixture
def lease(leases: LeasesInMemory, tmp_path: Path) -> Iterator[HeldLease]:
    lease = HeldLease(leases, str(tmp_path), "test")
    yield lease
    lease.release()


@pytest.fixture
def table(tmp_path: Path) -> LakeTable:
    return Lake(str(tmp_path)).table(definitions.MESSAGES)


def another(table: LakeTable) -> LakeTable:
    return LakeTable(table.uri, table.definition)


def written(
    table: LakeTable, lease: HeldLease, *sequences: int, queue: str = "$queue/a"
) -> list[DataFile]:
    rows = pa.table(
        {
            "queue": [queue] * len(sequences),
            "queue_id": ["ab-1"] * len(sequences),
            "partition": [0] * len(sequences),
            "seqno": list(sequences),
            "ts": pa.array([seqno * 1_000_000 for seqno in sequences], pa.timestamp("us", "UTC")),
            "date": pa.array([0] * len(sequences), pa.int32()).cast(pa.date32()),
        }
    )
    writer = Writer(table.uri, table.definition, table.definition.schema(), lease.epoch)
    writer.write(rows)
    return writer.finish()


@pytest.mark.rule("P9")
def test_p9_a_commit_adds_files_and_says_how_far_it_is(table: LakeTable, lease: HeldLease) -> None:
    files = written(table, lease, 1, 2, 3)
    table.commit(Change(files, moves={ARCHIVE: Move(0, 3)}), lease)
    assert table.applied(ARCHIVE) == 3
    assert another(table).applied(ARCHIVE) == 3
    assert another(table).files() == files


@pytest.mark.rule("P9")
def test_p9_the_same_rows_are_refused_the_second_time(table: LakeTable, lease: HeldLease) -> None:
    table.commit(Change(written(table, lease, 1), moves={ARCHIVE: Move(0, 1)}), lease)
    with pytest.raises(MovedError, match="is at 1, not at 0"):
        table.commit(Change(written(table, lease, 1), moves={ARCHIVE: Move(0, 1)}), lease)
    assert sum(file.rows for file in another(table).files()) == 1


@pytest.mark.rule("P9")
def test_p9_of_two_which_race_one_commits_and_the_other_is_told(
    table: LakeTable, lease: HeldLease
) -> None:
    tables = [another(table) for _ in range(8)]
    changes = [Change(written(table, lease, 1, 2), moves={ARCHIVE: Move(0, 2)}) for _ in tables]
    start = threading.Barrier(len(tables))
    outcomes: list[str] = []

    def run(one: LakeTable, change: Change) -> None:
        start.wait()
        try:
            one.commit(change, lease)
            outcomes.append("committed")
        except MovedError:
            outcomes.append("moved")

    threads = [
        threading.Thread(target=run, args=pair) for pair in zip(tables, changes, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["committed"] + ["moved"] * 7
    assert sum(file.rows for file in another(table).files()) == 2


@pytest.mark.rule("P9")
def test_p9_commits_of_different_sources_do_not_hinder_each_other(
    table: LakeTable, lease: HeldLease
) -> None:
    other = another(table)
    table.commit(Change(written(table, lease, 1), moves={ARCHIVE: Move(0, 1)}), lease)
    other.commit(Change(written(table, lease, 9), moves={"archive:ab-2:0": Move(0, 9)}), lease)
    assert (other.applied(ARCHIVE), other.applied("archive:ab-2:0")) == (1, 9)


@pytest.mark.rule("P9a")
def test_p9a_who_lost_the_lease_adds_no_column(
    table: LakeTable, lease: HeldLease, leases: LeasesInMemory
) -> None:
    new = HeldLease(leases, lease.lake, "other")
    another(table).fence(new)
    with pytest.raises(LeaseLostError, match="lease 2 came after ours, 1"):
        table.extend(pa.field("value", pa.struct([("a", pa.int64())])), lease)
    assert "value" not in another(table).schema().names
    another(table).fence(new)
    assert another(table).applied("lease") == 2, "epochs never go down"
    new.release()


@pytest.mark.rule("P9a")
def test_p9a_a_holder_whose_lease_is_over_commits_nothing(
    table: LakeTable, leases: LeasesInMemory, tmp_path: Path
) -> None:
    old = HeldLease(leases, str(tmp_path), "old")
    files = written(table, old, 1)
    new = HeldLease(leases, str(tmp_path), "new")
    another(table).fence(new)
    with pytest.raises(LeaseLostError, match="lease 2 came after ours, 1"):
        table.commit(Change(files, moves={ARCHIVE: Move(0, 1)}), old)
    assert another(table).files() == []


@pytest.mark.rule("P9a")
def test_p9a_a_lease_which_cannot_be_renewed_ends_before_its_time(
    table: LakeTable, leases: LeasesInMemory, tmp_path: Path
) -> None:
    lease = HeldLease(leases, str(tmp_path), "test", ttl_s=0.3)
    leases.epoch += 1  # somebody else has it now
    assert leases.renewed.wait(10)
    lease._thread.join()
    with pytest.raises(LeaseLostError, match="another one has it"):
        table.commit(Change(), lease)


@pytest.mark.rule("P9a")
def test_p9a_whoever_waits_for_a_lease_gets_it_or_is_told_who_has_it(
    leases: LeasesInMemory, tmp_path: Path
) -> None:
    leases.taken = 2
    acquire(leases, str(tmp_path), "job", wait_s=60).release()
    leases.taken = 1
    with pytest.raises(LeaseTakenError, match="somebody has it"):
        acquire(leases, str(tmp_path), "job", wait_s=0)


@pytest.mark.rule("P9a")
def test_p9a_a_commit_checks_that_its_files_are_there(
    table: LakeTable, lease: HeldLease, tmp_path: Path
) -> None:
    files = written(table, lease, 1)
    (tmp_path / "messages" / files[0].path).unlink()
    with pytest.raises(FilesMissingError, match="0 of"):
        table.commit(Change(files), lease)


@pytest.mark.rule("P9a")
def test_p9a_what_a_failed_batch_left_is_removed_and_nothing_else(
    table: LakeTable, leases: LeasesInMemory, tmp_path: Path
) -> None:
    dead = HeldLease(leases, str(tmp_path), "dead")
    kept, replaced, left = (written(table, dead, seqno) for seqno in (1, 2, 3))
    table.commit(Change(kept + replaced), dead)
    table.commit(Change(removes=replaced), dead)
    living = HeldLease(leases, str(tmp_path), "living")
    begun = written(table, living, 4)  # to be committed soon
    assert sweep.sweep(table, living) == 1
    there = {path.name for path in (tmp_path / "messages").rglob("*.parquet")}
    names = {file.path.rpartition("/")[2] for file in kept + replaced + begun}
    assert there == names
    assert left[0].path.rpartition("/")[2] not in there
    with pytest.raises(LeaseLostError):
        table.commit(Change(left), dead)
    assert sweep.vacuum(table, living, 168) == 0
    assert sweep.vacuum(table, living, 0) == 1
    table.commit(Change(begun), living)
    assert sorted(file.bounds.seqno_min for file in table.files()) == [1, 4]


def test_folders_are_safe_and_no_two_names_share_one() -> None:
    names = [
        "$queue/a",
        "$queue-a",
        "queue/a",
        "a",
        "A" * 400,
        "A" * 401,
        "é",
        "..",
        "",
        "a b",
        "a%20b",
    ]
    folders = [folder({"queue": name}) for name in names]
    assert len({one.lower() for one in folders}) == len(folders)
    assert all(len(one.encode()) < 200 for one in folders)
    assert all(".." not in one.split("/") for one in folders)
    assert folder({"queue": "a", "date": "2026-11-16"}) == "a/2026-11-16/"


def test_the_log_is_synced_by_whoever_sees_a_version_first(
    table: LakeTable, lease: HeldLease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Path(tmp_path, "messages", "_delta_log")
    synced: list[Path] = []
    slow = another(table)
    # Committed by processes which died before they had synced it.
    with monkeypatch.context() as dying:
        dying.setattr(LakeTable, "_sync_log", lambda *_: None)
        table.commit(Change(), lease)
        table.commit(Change(), lease)
    monkeypatch.setattr(lake_table, "sync", lambda path, _: synced.append(Path(path)))
    another(table)
    assert synced == [log / f"{2:020}.json"]
    synced.clear()
    slow.refresh()
    assert synced == [log / f"{version:020}.json" for version in (1, 2)]
    slow.refresh()
    assert len(synced) == 2
    synced.clear()
    slow.commit(Change(), lease)
    slow.extend(pa.field("more", pa.int32()), lease)
    assert synced == [log / f"{version:020}.json" for version in (3, 4)]


def test_folders_of_a_lake_are_synced_when_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, int]] = []
    monkeypatch.setattr(lake_module, "sync", lambda path, folders: synced.append((path, folders)))
    place = tmp_path / "new" / "lake"
    Lake(str(place)).table(definitions.MESSAGES)
    Lake(str(place)).table(definitions.EVENTS)
    assert synced == [(str(place / "messages"), 3), (str(place / "events"), 1)]
