"""Queued messages: stored once for all sessions, read from anywhere, freed with the last one."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queuelake.protocol.message import Message
from queuelake.storage.api import MESSAGES, SEQUENCE_MAX, Batch, Store
from queuelake.storage.queue_rows import (
    CHUNK_BYTES_MAX,
    decode_message,
    encode_message,
    read_queue,
    row_totals,
)
from tests.contract.rows import Queues, count, message, payloads, row_counts

NO_ROWS = (0, 0, 0)


def test_a_message_for_many_sessions_is_stored_once(store: Store) -> None:
    queues = Queues(store)
    queues.store([message(1)], list(range(1, 101)))
    assert row_counts(store) == (100, 100, 1)
    assert all(payloads(store, one) == [message(1).payload()] for one in range(1, 101))


def test_a_shared_chunk_is_freed_with_its_last_reference(store: Store) -> None:
    queues = Queues(store)
    queues.store([message(1), message(2)], [1, 2, 3])
    for left, session_id in ((2, 1), (1, 3)):
        queues.trim(session_id, 2)
        assert row_counts(store) == (left, left, 1)
    assert payloads(store, 2) == [message(1).payload(), message(2).payload()]
    queues.trim(2, 2)
    assert row_counts(store) == NO_ROWS


def test_a_row_stays_until_all_of_it_is_settled(store: Store) -> None:
    queues = Queues(store)
    queues.store([message(n) for n in range(3)], [1])
    queues.trim(1, 2)
    assert row_counts(store) == (1, 0, 1), "a chunk of one row needs no reference"
    queues.trim(1, 3)
    assert row_counts(store) == NO_ROWS


def test_a_trim_leaves_other_sessions_and_later_rows_alone(store: Store) -> None:
    queues = Queues(store)
    for number in range(4):
        queues.store([message(number)], [1, 2, 2**63])
    queues.trim(2, 3)
    assert payloads(store, 1) == payloads(store, 2**63) == [message(n).payload() for n in range(4)]
    assert payloads(store, 2) == [message(3).payload()]


def test_a_trim_in_the_batch_of_a_new_row_sees_that_row(store: Store) -> None:
    """A message may expire before it was ever stored: row and trim come together."""
    batch = Batch()
    Queues(store).add(batch, [message(1)], [1])
    batch.trim(1, 1)
    store.commit(batch)
    assert row_counts(store) == NO_ROWS


def test_everything_of_a_session_can_be_trimmed(store: Store) -> None:
    queues = Queues(store)
    queues.store([message(n) for n in range(500)], [1, 2])
    queues.trim(1, SEQUENCE_MAX)
    assert payloads(store, 1) == []
    queues.trim(2, SEQUENCE_MAX)
    assert row_counts(store) == NO_ROWS


def test_a_large_message_is_stored_in_pieces_and_freed_with_them(store: Store) -> None:
    queues = Queues(store)
    large = message(1, size=10_000_000)
    queues.store([message(0), large, message(2)], [1, 2])
    assert count(store, MESSAGES) > 10_000_000 // CHUNK_BYTES_MAX
    for session_id in (1, 2):
        assert payloads(store, session_id) == [
            message(0).payload(),
            large.payload(),
            message(2).payload(),
        ]
    queues.trim(1, 3)
    assert payloads(store, 2, after=1)[0] == large.payload()
    queues.trim(2, 3)
    assert row_counts(store) == NO_ROWS


def test_chunks_are_small_and_hold_many_messages(store: Store) -> None:
    Queues(store).store([message(n, size=100) for n in range(1000)], [1])
    with store.view() as view:
        sizes = [len(value) for _, value in view.scan(MESSAGES, b"", b"\xff" * 12)]
    assert max(sizes) <= CHUNK_BYTES_MAX
    assert len(sizes) < 10


def test_reading_stops_near_the_limit_but_always_gives_something(store: Store) -> None:
    queues = Queues(store)
    for number in range(10):
        queues.store([message(number, size=1000)], [1])
    with store.view() as view:
        assert len(read_queue(view, 1, 0, 1)) == 1
        assert len(read_queue(view, 1, 0, 2500)) == 3
        assert len(read_queue(view, 1, 9, 1)) == 1
        assert read_queue(view, 1, 10, 1) == []
        assert read_queue(view, 2, 0, 1) == []


def test_totals_are_the_last_sequence_and_all_bytes_not_settled(store: Store) -> None:
    queues = Queues(store)
    queues.store([message(1), message(2)], [1, 3])
    queues.store([message(3)], [1])
    with store.view() as view:
        assert row_totals(view, 1, 0, set()) == (3, sum(message(n).size() for n in (1, 2, 3)))
        assert row_totals(view, 1, 1, set()) == (3, sum(message(n).size() for n in (2, 3)))
        assert row_totals(view, 1, 0, {2, 3}) == (3, message(1).size())
        assert row_totals(view, 2, 0, set()) == (0, 0)


messages = st.builds(
    Message,
    topic=st.binary(min_size=1, max_size=300),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    body=st.binary(max_size=200),
    payload_at=st.just(0),
    expiry_at=st.just(0),
    publisher=st.text(max_size=20),
    ts_ms=st.integers(0, 2**53),
)


@given(messages, st.integers(0, 2**53))
def test_a_message_record_reads_back_as_it_was(one: Message, expires_ms: int) -> None:
    one.expires_ms = expires_ms
    found = decode_message(encode_message(one))
    for name in ("topic", "qos", "retain", "body", "payload_at", "publisher", "ts_ms"):
        assert getattr(found, name) == getattr(one, name)
    assert found.expires_ms == expires_ms


groups = st.lists(
    st.tuples(
        st.lists(st.sampled_from([0, 5, 900, 40_000]), min_size=1, max_size=6),  # payload sizes
        st.sets(st.integers(1, 3), min_size=1),  # sessions
        st.integers(0, 8),  # then this session settles ...
        st.integers(0, 30),  # ... up to this sequence
    ),
    max_size=8,
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)
@given(groups=groups, after=st.integers(0, 40))
def test_read_queue_from_any_position_equals_a_list(
    store: Store,
    groups: list[tuple[list[int], set[int], int, int]],
    after: int,
) -> None:
    queues = Queues(store)
    model: dict[int, list[bytes]] = {1: [], 2: [], 3: []}
    settled = dict.fromkeys(model, 0)
    number = 0
    for sizes, session_ids, trimmed, upto in groups:
        group = []
        for size in sizes:
            number += 1
            group.append(message(number, size))
        queues.store(group, sorted(session_ids))
        for session_id in session_ids:
            model[session_id] += [one.payload() for one in group]
        if trimmed in model:
            upto = min(upto, len(model[trimmed]))
            settled[trimmed] = max(settled[trimmed], upto)
            queues.trim(trimmed, upto)
    for session_id, expected in model.items():
        start = max(after, settled[session_id])
        assert payloads(store, session_id, start) == expected[start:]
    for session_id in model:
        queues.trim(session_id, SEQUENCE_MAX)
    assert row_counts(store) == NO_ROWS
