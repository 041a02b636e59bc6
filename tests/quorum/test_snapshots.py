"""State without payloads: equal on every replica, restored at any index, and how the log is cut."""

from __future__ import annotations

import msgspec
import pytest

from queuelake.engine.machine import Command, Meta
from queuelake.engine.quorum import checkpoints as k
from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum.machine import QuorumQueue
from queuelake.engine.quorum.policy import QuorumPolicy
from queuelake.engine.quorum.querying import live_indexes
from queuelake.engine.quorum.snapshot import encode, restore, state_hash, take
from queuelake.errors import StoreFormatError
from tests.quorum.driven import C1, START_MS, Driven, P


def grown(count: int) -> QuorumQueue:
    queue = QuorumQueue(QuorumPolicy())
    for index in range(1, count + 1):
        queue.apply(Meta(index, START_MS), c.Enqueue(P, index, 1_000_000))
    return queue


@pytest.mark.rule("Q1", "Q2")
def test_replicas_which_apply_the_same_log_have_the_same_hash_after_every_command() -> None:
    queue = Driven()
    key = queue.checkout(prefetch=2)
    for _ in range(4):
        queue.enqueue()
    queue.give(key, 0)
    replica = QuorumQueue(QuorumPolicy())
    another = QuorumQueue(QuorumPolicy())
    for meta, command in queue.log:
        replica.apply(meta, command)
        another.apply(meta, command)
        assert state_hash(replica) == state_hash(another)
    assert state_hash(replica) == state_hash(queue.queue)


@pytest.mark.rule("Q33")
def test_a_state_holds_no_payloads_and_little_for_each_message() -> None:
    queue = grown(3_000)
    assert len(encode(queue)) < 3_000 * 40


@pytest.mark.rule("Q34")
def test_the_worked_example_of_the_release_cursor() -> None:
    """ENQ A(1) ENQ B(2) CHK C1,2(3) SET B(4) ENQ C(5) SET A(6), a checkpoint at each enqueue."""
    log: list[Command] = [
        c.Enqueue(P, 1, 10),
        c.Enqueue(P, 2, 10),
        c.Checkout(C1, "C1", 2),
        c.Settle(3, [1]),
        c.Enqueue(P, 3, 10),
        c.Settle(3, [0]),
    ]
    queue = QuorumQueue(QuorumPolicy())
    checkpoints = k.Checkpoints()
    states: dict[int, bytes] = {}
    cursors: list[tuple[int, int]] = []
    for index, command in enumerate(log, 1):
        _, effects = queue.apply(Meta(index, START_MS), command)
        checkpoints.applied(index, command, effects)
        if isinstance(command, c.Enqueue):
            states[index] = encode(queue)
            checkpoints.taken(index, START_MS, queue.released_bytes)
        cursor = checkpoints.release()
        if cursor is not None:
            cursors.append((index, cursor.index))
    assert cursors == [(6, 2)]  # at 6, for 2
    replica = restore(states[2])
    assert replica.total == 2  # the prefix count
    for index in range(3, 7):
        replica.apply(Meta(index, START_MS), log[index - 1])
    assert encode(replica) == encode(queue)


@pytest.mark.rule("Q35")
def test_one_stuck_message_keeps_nothing_but_itself() -> None:
    queue = Driven()
    stuck = queue.checkout(C1, prefetch=1)
    queue.enqueue()
    for _ in range(50):
        queue.enqueue("n2/p")
        queue.apply(c.Dequeue("n2/c", "x", settled=True))
    snapshot = take(queue.queue)
    assert snapshot.live == list(queue.held(stuck).values()) == [2]
    assert snapshot.index == queue.index
    assert encode(restore(snapshot.state)) == encode(queue.queue)


@pytest.mark.rule("Q35")
def test_parked_messages_are_live() -> None:
    queue = Driven()
    queue.apply(c.Enqueue(P, 2, 10))
    assert take(queue.queue).live == [1]


@pytest.mark.rule("Q35")
def test_when_a_checkpoint_is_due() -> None:
    now = START_MS
    checkpoints = k.Checkpoints()
    assert not checkpoints.is_due(k.INDEXES_MIN - 1, now, 0, 0)
    assert checkpoints.is_due(k.INDEXES_MIN, now, 0, 0)
    assert not checkpoints.is_due(k.INDEXES_MIN, now, k.INDEXES_MIN + 1, 0)  # a long queue
    assert checkpoints.is_due(k.INDEXES_MAX, now, 10 * k.INDEXES_MAX, 0)
    assert checkpoints.is_due(1, now, 0, k.RECLAIMABLE_BYTES_MIN)
    checkpoints.taken(k.INDEXES_MIN, now, k.RECLAIMABLE_BYTES_MIN)
    assert not checkpoints.is_due(3 * k.INDEXES_MIN, now + k.INTERVAL_MS_MIN - 1, 0, 0)
    assert checkpoints.is_due(3 * k.INDEXES_MIN, now + k.INTERVAL_MS_MIN, 0, 0)
    later = now + k.INTERVAL_MS_MIN
    assert not checkpoints.is_due(k.INDEXES_MIN + 1, later, 0, k.RECLAIMABLE_BYTES_MIN)
    checkpoints.applied(k.INDEXES_MIN + 1, c.Enqueue(P, 1, k.WRITTEN_BYTES_MAX), [])
    assert checkpoints.is_due(k.INDEXES_MIN + 1, later, 0, k.RECLAIMABLE_BYTES_MIN)


@pytest.mark.rule("Q34", "Q35")
def test_a_replica_which_begins_with_a_checkpoint_knows_what_is_live() -> None:
    queue = Driven()
    checkpoints = k.Checkpoints()
    key = queue.checkout(prefetch=9)
    for _ in range(5):
        queue.enqueue()
    queue.settle(key, 1, 3)
    checkpoints.resume(queue.index, live_indexes(queue.queue))
    assert checkpoints.first_live() == 2
    for number, first in ((0, 4), (4, 4), (2, queue.index + 4)):
        queue.settle(key, number)
        checkpoints.applied(queue.index, queue.log[-1][1], queue.effects)
        assert checkpoints.first_live() == first
    checkpoints.resume(queue.index, [])
    assert checkpoints.first_live() == queue.index + 1


@pytest.mark.rule("Q36")
def test_recovery_reads_what_is_live_and_redelivers_nothing_settled() -> None:
    queue = Driven()
    key = queue.checkout(prefetch=2)
    for _ in range(60):
        queue.enqueue()
        queue.settle(key, queue.queue.consumers[key].next_id - 1)
    last = queue.enqueue()
    data = encode(queue.queue)
    assert len(data) < 500  # whatever the log was
    recovered = restore(data)
    assert live_indexes(recovered) == [last]
    assert list(recovered.consumers[key].held) == [60]


@pytest.mark.rule("Q2")
def test_a_state_of_another_version_is_refused() -> None:
    fields = msgspec.msgpack.decode(encode(QuorumQueue(QuorumPolicy())))
    fields[0] = 99
    del fields[-1]  # whatever else there is in it
    with pytest.raises(StoreFormatError, match="not of version 1"):
        restore(msgspec.msgpack.encode(fields))
