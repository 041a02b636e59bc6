"""Prepared batches which go to the node that owns their shard."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuelake import control_pipeline as ops
from queuelake.broker.pipeline import passing
from queuelake.control_pipeline import CommitStage, StagePart
from queuelake.errors import BrokerDownError, RefusedError
from queuelake.flight import Committed

PART_BYTES = 100


class Nodes:
    """This node, and `there`, which has the shard unless told otherwise."""

    name = "here"

    def __init__(self, directory: Path, owner: str = "there") -> None:
        self.here, self.there = directory / "here", directory / "there" / "staging"
        self.has_shard = owner
        self.orders: list[CommitStage] = []
        self.silent = 0  # how often nothing is answered to an order

    def stage(self, data: bytes) -> dict[str, object]:
        order = CommitStage("job", 7, "$queue/q", "abc.prepared")
        path = passing.path_of(self.here / "staging", order.job, order.batch, order.file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return {**msgspec.structs.asdict(order), "shard": 3}

    def owner(self, shard: int) -> str:
        assert shard == 3
        return self.has_shard

    async def ask(self, shard: int, name: str, args: dict[str, object], kind: Any) -> Any:
        assert shard == 3
        if name == ops.STAGE_PART:
            passing.keep(self.there, msgspec.convert(args, StagePart))
            return None
        self.orders.append(msgspec.convert(args, CommitStage))
        if self.silent:
            self.silent -= 1
            raise BrokerDownError("no answer in time")
        return Committed(1)

    def commit(self, args: dict[str, object]) -> Committed:
        return asyncio.run(passing.commit_stage(self, self.here, args))

    def passed(self) -> Path:
        order = self.orders[-1]
        return passing.path_of(self.there, order.job, order.batch, order.file)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "PART_BYTES", PART_BYTES)
    monkeypatch.setattr(passing, "AGAIN_S", 0.0)


@pytest.mark.parametrize("size", [1, PART_BYTES, PART_BYTES + 1, 5 * PART_BYTES])
def test_the_owner_gets_the_file_before_the_order(tmp_path: Path, size: int) -> None:
    nodes = Nodes(tmp_path)
    data = bytes(number % 251 for number in range(size))
    assert nodes.commit(nodes.stage(data)) == Committed(1)
    assert nodes.passed().read_bytes() == data
    passing.forget(nodes.passed())
    assert list(nodes.there.iterdir()) == []


def test_a_file_which_is_passed_again_is_the_new_one(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    nodes.commit(nodes.stage(b"x" * 1_000))
    nodes.commit(nodes.stage(b"new"))
    assert nodes.passed().read_bytes() == b"new"


def test_nothing_is_passed_to_oneself(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, owner="here")
    nodes.commit(nodes.stage(b"data"))
    assert [order.file for order in nodes.orders] == ["abc.prepared"]
    assert not nodes.there.exists()


def test_an_order_which_takes_long_is_asked_about_again(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    nodes.silent = 2
    assert nodes.commit(nodes.stage(b"data")) == Committed(1)
    assert len(nodes.orders) == 3


def test_without_an_owner_it_is_for_the_caller_to_come_again(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, owner="")
    nodes.silent = 1
    with pytest.raises(BrokerDownError):
        nodes.commit(nodes.stage(b"data"))
    assert len(nodes.orders) == 1


def test_parts_out_of_order_are_refused(tmp_path: Path) -> None:
    part = StagePart("job", 0, "a.passed", 0, b"0123")
    passing.keep(tmp_path, part)
    for at in (3, 5):
        with pytest.raises(passing.ChangedError, match="4 bytes are there"):
            passing.keep(tmp_path, msgspec.structs.replace(part, at=at))
    with pytest.raises(passing.ChangedError, match="are not here"):
        passing.keep(tmp_path, msgspec.structs.replace(part, file="b.passed", at=4))


@given(st.text(max_size=20), st.text(max_size=20), st.integers(0, 9))
def test_no_name_leads_out_of_the_folder(job: str, file: str, batch: int) -> None:
    root = Path("/staging")
    path = passing.path_of(root, job.encode("utf-8", "replace").decode(), batch, f"x{file}")
    assert path.parent.parent.parent == root or path.parent.parent == root
    assert ".." not in path.parts


def test_only_passed_files_are_kept_and_forgotten(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="none which is passed on"):
        passing.keep(tmp_path, StagePart("job", 0, "rows.arrow", 0, b"data"))
    own = tmp_path / "own.prepared"
    own.write_bytes(b"data")
    passing.forget(own)
    assert own.exists()
