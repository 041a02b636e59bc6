"""Which entries count: every replica says the same, however it reads and wherever it began."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuelake.cluster.entry import (
    BARRIER,
    BATCH,
    CHECK,
    GENESIS,
    BadEntryError,
    Entry,
    read_part,
    split,
)
from queuelake.cluster.replica import DivergedError, Position, Replica, barrier
from queuelake.storage.api import Batch
from queuelake.storage.memory import MemoryStore

PART_BYTES_MAX = 40  # 10 bytes of a body


def genesis(epoch: int = 1) -> Entry:
    return Entry(epoch, 0, GENESIS, b"first")


def read(parts: list[bytes]) -> tuple[list[Entry], Position]:
    replica = Replica(Position())
    found = [replica.take(at, part) for at, part in enumerate(parts, 1)]
    return [entry for entry in found if entry is not None], replica.accepted


@given(st.binary(max_size=100), st.integers(32, 80))
def test_parts_fit_and_give_the_entry_again(body: bytes, part_bytes_max: int) -> None:
    parts = split(Entry(7, 3, BATCH, body), part_bytes_max)
    assert all(len(part) <= part_bytes_max for part in parts)
    replica = Replica(Position(10, 7, 2, 5))
    *before, last = [replica.take(11 + n, part) for n, part in enumerate(parts)]
    assert before == [None] * (len(parts) - 1)
    assert last == Entry(7, 3, BATCH, body)
    assert replica.accepted.position == 10 + len(parts)


def test_the_next_number_counts_and_no_other() -> None:
    first = genesis()
    entries = [first, *[Entry(1, n, BATCH, b"%d" % n) for n in (1, 1, 3, 0, 2)]]
    counted, at = read([part for entry in entries for part in split(entry, 100)])
    assert [entry.number for entry in counted] == [0, 1, 2]
    assert (at.position, at.epoch, at.number) == (6, 1, 2)


def test_a_barrier_ends_what_an_older_owner_writes() -> None:
    parts = split(genesis(), 100)
    unfinished = split(Entry(1, 1, BATCH, bytes(30)), PART_BYTES_MAX)
    start = read(parts)[1]
    parts += [*unfinished[:2], *split(barrier(2, start), 100), *unfinished[2:]]
    parts += split(Entry(1, 1, BATCH, b"again"), 100) + split(Entry(2, 1, CHECK, b"new"), 100)
    counted, at = read(parts)
    kinds = [(entry.epoch, entry.kind) for entry in counted]
    assert kinds == [(1, GENESIS), (2, BARRIER), (2, CHECK)]
    assert at.position == len(parts)


@pytest.mark.parametrize(
    "between",
    [b"hello", split(Entry(1, 7, BATCH, b""), 100)[0]],
    ids=["from a tool", "of another entry"],
)
def test_parts_which_are_not_side_by_side_are_no_entry(between: bytes) -> None:
    one, two, three = split(Entry(1, 1, BATCH, bytes(30)), PART_BYTES_MAX)
    start = split(genesis(), 100)
    assert read([*start, one, between, two, three])[1].number == 0
    assert read([*start, one, two, between, three])[1].number == 0
    assert read([*start, one, between, one, two, three])[1].number == 1


def test_parts_of_different_tries_are_no_entry() -> None:
    long = split(Entry(1, 1, BATCH, b"a" * 30), PART_BYTES_MAX)
    short = split(Entry(1, 1, BATCH, b"b" * 20), PART_BYTES_MAX)
    start = split(genesis(), 100)
    assert read([*start, long[0], short[1]])[1].number == 0
    assert read([*start, short[0], *long[1:]])[1].number == 0


def test_a_barrier_of_an_older_epoch_does_not_count() -> None:
    parts = split(genesis(5), 100)
    start = read(parts)[1]
    parts += split(barrier(5, start), 100) + split(barrier(4, start), 100)
    assert read(parts)[1] == start


def test_a_cluster_begins_once() -> None:
    parts = split(genesis(1), 100)
    start = read(parts)[1]
    assert read(parts + split(genesis(2), 100))[1] == start


def test_a_replica_with_another_history_does_not_go_on() -> None:
    parts = split(genesis(), 100) + split(Entry(1, 1, BATCH, b"x"), 100)
    _, at = read(parts)
    other = Replica(msgspec.structs.replace(at, chain=at.chain ^ 1))
    with pytest.raises(DivergedError, match="epoch 2 begins behind"):
        other.take(3, split(barrier(2, at), 100)[0])


def test_the_chain_tells_histories_apart() -> None:
    start = Position()
    one = start.after(Entry(1, 1, BATCH, b"a"), 1)
    assert one != start.after(Entry(1, 1, BATCH, b"b"), 1)
    assert one != start.after(Entry(1, 1, CHECK, b"a"), 1)
    assert one == Position().after(Entry(1, 1, BATCH, b"a"), 1)


def test_what_is_no_part_is_skipped() -> None:
    assert read_part(b"") is None
    assert read_part(b"hello from somebody with a tool, long enough") is None
    assert read([b"x", *split(genesis(), 100), b"y" * 40])[1].position == 2


def test_what_a_newer_version_wrote_is_not_skipped() -> None:
    part = split(genesis(), 100)[0]
    with pytest.raises(BadEntryError, match="entry of version 2, this version reads 1"):
        Replica(Position()).take(1, part[:2] + b"\x02" + part[3:])
    replica = Replica(Position(1, 1, 0, 0))
    with pytest.raises(BadEntryError, match="kind 99"):
        replica.take(2, split(Entry(1, 1, 99, b""), 100)[0])


def test_a_position_is_kept_in_the_store() -> None:
    store = MemoryStore()
    assert Position.read(store.view()) == Position()
    at = Position(2**40, 3, 4, 2**32 - 1)
    batch = Batch()
    at.put(batch)
    store.commit(batch)
    assert Position.read(store.view()) == at


# Logs as two owners, late writers and somebody with a tool may leave them


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """Mostly what comes next, by whoever owns it; in between parts of all kinds."""
    log: list[bytes] = []
    replica = Replica(Position())
    for _ in range(draw(st.integers(1, 25))):
        at = replica.accepted
        what = draw(
            st.sampled_from(["next", "next", "part", "torn", "other", "barrier", "again", "tool"])
        )
        parts: list[bytes]
        if at.position == 0 and what != "tool":
            parts = split(genesis(draw(st.integers(1, 2))), 100)
        elif what in ("next", "part", "torn"):
            kind = draw(st.sampled_from([BATCH, BATCH, CHECK]))
            body = draw(st.binary(min_size=8, max_size=45))
            parts = split(Entry(at.epoch, at.number + 1, kind, body), PART_BYTES_MAX)
            if what == "part":
                start = draw(st.integers(0, 2))
                parts = parts[start : start + draw(st.integers(1, 3))]
            elif what == "torn":
                parts.insert(draw(st.integers(0, 3)), draw(st.sampled_from([b"", *log])))
        elif what == "other":
            epoch, number = draw(st.integers(0, 4)), draw(st.integers(1, 5))
            parts = split(Entry(epoch, number, BATCH, b"x" * 15), PART_BYTES_MAX)
        elif what == "barrier":
            parts = split(barrier(draw(st.integers(0, at.epoch + 2)), at), 100)
        elif what == "again" and log:
            parts = [draw(st.sampled_from([part for part in log if is_repeatable(part)] or [b""]))]
        else:
            parts = [draw(st.binary(max_size=40))]
        for part in parts:
            log.append(part)
            replica.take(len(log), part)
    return log


def is_repeatable(data: bytes) -> bool:
    """A barrier which comes again is one of an older epoch, unless its first one did not count."""
    part = read_part(data)
    return part is None or part.kind != BARRIER


def model(log: list[bytes]) -> tuple[list[Entry], Position]:
    """The rules once more, by looking ahead instead of remembering."""
    parts = [read_part(data) for data in log]
    counted: list[Entry] = []
    at = Position()
    start = 0
    while start < len(parts):
        first = parts[start]
        start += 1
        if first is None or first.index != 0:
            continue
        following = (first.epoch, first.number) == (at.epoch, at.number + 1)
        if first.number == 0:
            newer = first.epoch > at.epoch
            following = newer and (first.kind == BARRIER or at.position == 0)
        whole = parts[start - 1 : start - 1 + first.count]
        beside = [
            part is not None
            and (part.epoch, part.number, part.count) == (first.epoch, first.number, first.count)
            and part.index == n
            for n, part in enumerate(whole)
        ]
        if not following or len(whole) < first.count or not all(beside):
            continue
        start += first.count - 1
        body = b"".join(part.piece for part in whole if part is not None)
        counted.append(Entry(first.epoch, first.number, first.kind, body))
        at = at.after(counted[-1], start)
    return counted, at


@given(logs(), st.data())
def test_replicas_agree_whatever_way_they_read(log: list[bytes], data: st.DataObject) -> None:
    expected = model(log)
    assert read(log) == expected
    # One which is started again, now and then, from the position it has stored.
    counted: list[Entry] = []
    replica = Replica(Position())
    at = 0
    restarts = data.draw(st.integers(0, 5))
    while at < len(log):
        upto = len(log) if restarts == 0 else data.draw(st.integers(at, len(log)))
        for position in range(at + 1, upto + 1):
            entry = replica.take(position, log[position - 1])
            counted += [] if entry is None else [entry]
        at = upto
        if restarts:
            restarts -= 1
            replica = Replica(replica.accepted)
            at = replica.accepted.position
    assert (counted, replica.accepted) == expected
