"""How much a queue holds and for how long; priorities; orders from above."""

from __future__ import annotations

import pytest

from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import effects as e
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum.policy import REJECT_PUBLISH, RETRY_ALL
from queuelake.engine.quorum.snapshot import state_hash
from tests.quorum.driven import C1, C2, Driven, P


def told(queue: Driven) -> list[tuple[str, bool]]:
    return [(one.pid, one.rejects) for one in queue.found(e.QueueStatus)]


@pytest.mark.rule("Q24")
def test_the_oldest_is_dropped_when_there_are_too_many() -> None:
    queue = Driven(length_max=2, dead_letter_target="dead")
    indexes = [queue.enqueue() for _ in range(3)]
    assert queue.ready() == indexes[1:]
    assert queue.dead() == [(indexes[0], "maxlen")]


@pytest.mark.rule("Q24")
def test_the_oldest_of_all_priorities_and_returns_is_dropped() -> None:
    queue = Driven(length_max=3)
    key = queue.checkout(prefetch=1)
    returned = queue.enqueue()
    high, low = queue.enqueue(priority=9), queue.enqueue(priority=1)
    queue.apply(c.Cancel(C1, "t"))
    queue.give(key, 0)
    assert queue.ready() == [returned, high, low]
    new = queue.enqueue()
    assert queue.ready() == [high, new, low]
    newer = queue.enqueue()
    assert queue.ready() == [new, newer, low]


@pytest.mark.rule("Q24")
def test_bytes_are_limited_as_well() -> None:
    queue = Driven(bytes_max=25)
    first, second = queue.enqueue(size=10), queue.enqueue(size=10)
    assert queue.ready() == [first, second]
    third = queue.enqueue(size=16)
    assert queue.ready() == [third]


@pytest.mark.rule("Q24")
def test_what_is_held_does_not_count_and_what_is_delayed_does() -> None:
    queue = Driven(length_max=2, delayed_retry=RETRY_ALL)
    key = queue.checkout(prefetch=2)
    held = [queue.enqueue() for _ in range(2)]
    ready = [queue.enqueue() for _ in range(2)]
    assert list(queue.held(key).values()) == held
    assert queue.ready() == ready
    queue.apply(c.Cancel(C1, "t"))
    queue.give(key, 0)
    assert queue.queue.delayed.keys() == {held[0]}
    assert queue.ready() == ready[1:]


@pytest.mark.rule("Q24")
def test_publishers_are_told_to_stop_and_to_go_on_at_80_percent() -> None:
    queue = Driven(length_max=11, overflow=REJECT_PUBLISH)
    queue.apply(c.RegisterEnqueuer("n2/other"))
    for _ in range(11):
        queue.enqueue()
        assert told(queue) == []
    queue.enqueue()
    assert told(queue) == [("n2/other", True), (P, True)]
    queue.enqueue()  # it was on its way
    assert told(queue) == []
    assert queue.queue.lines.count == 13
    for left in range(12, 8, -1):
        queue.apply(c.Dequeue(C1, "x", settled=True))
        assert queue.queue.lines.count == left
        assert told(queue) == []
    queue.apply(c.Dequeue(C1, "x", settled=True))
    assert told(queue) == [("n2/other", False), (P, False)]  # 8 are left: floor(11 * 0.8)


@pytest.mark.rule("Q24")
def test_both_limits_must_be_at_80_percent() -> None:
    queue = Driven(length_max=100, bytes_max=100, overflow=REJECT_PUBLISH)
    queue.enqueue(size=101)
    assert told(queue) == [(P, True)]
    queue.enqueue(size=81)
    queue.apply(c.Dequeue(C1, "x", settled=True))
    assert queue.queue.rejecting
    queue.enqueue(size=80)
    queue.apply(c.Dequeue(C1, "x", settled=True))
    assert told(queue) == [(P, False)]


@pytest.mark.rule("Q24")
def test_who_comes_while_it_is_full_is_told_as_well() -> None:
    queue = Driven(length_max=1, overflow=REJECT_PUBLISH)
    queue.enqueue()
    queue.enqueue()
    assert queue.apply(c.RegisterEnqueuer(C1)).code == r.REJECT_PUBLISH
    assert told(queue) == [(C1, True)]
    assert queue.apply(c.RegisterEnqueuer(C1)).code == r.REJECT_PUBLISH
    queue.enqueue(C2)
    assert told(queue) == [(C2, True)]
    # Nobody could be told.
    assert queue.apply(c.Enqueue("", 0, 10)).code == r.NOT_ENQUEUED
    assert queue.queue.lines.count == 3


@pytest.mark.rule("Q24")
def test_other_limits_hold_at_once() -> None:
    queue = Driven(length_max=2, overflow=REJECT_PUBLISH)
    for _ in range(3):
        queue.enqueue()
    queue.configure(length_max=10, overflow=REJECT_PUBLISH)
    assert told(queue) == [(P, False)]
    queue.configure(length_max=2, overflow=REJECT_PUBLISH)
    assert told(queue) == [(P, True)]
    queue.configure(length_max=1)
    assert told(queue) == [(P, False)]
    assert queue.ready() == [3]


@pytest.mark.rule("Q25")
def test_a_message_lives_as_long_as_the_shorter_of_both() -> None:
    queue = Driven(ttl_ms=1_000, dead_letter_target="dead")
    short, long, default = (
        queue.enqueue(ttl_ms=500),
        queue.enqueue(ttl_ms=2_000),
        queue.enqueue(),
    )
    queue.later(499)
    assert queue.ready() == [short, long, default]
    queue.later(1)
    assert queue.dead() == [(short, "expired")]
    queue.later(499)
    assert queue.ready() == [long, default]
    queue.later(1)
    assert queue.dead() == [(long, "expired"), (default, "expired")]


@pytest.mark.rule("Q25")
def test_a_message_without_time_to_live_goes_at_once_or_never() -> None:
    queue = Driven()
    lost = queue.enqueue(ttl_ms=0)
    queue.later(1)
    assert queue.queue.total == 0
    key = queue.checkout(prefetch=9)
    queue.enqueue(ttl_ms=0)
    assert list(queue.held(key)) == [0]
    queue.later(10_000)
    assert list(queue.held(key)) == [0]  # it was in time
    assert lost not in queue.payloads


@pytest.mark.rule("Q25")
def test_expiry_is_checked_at_the_head_of_each_line() -> None:
    queue = Driven()
    head = queue.enqueue()
    behind = queue.enqueue(ttl_ms=100)
    other = queue.enqueue(ttl_ms=100, priority=9)
    queue.later(200)
    assert queue.ready() == [head, behind]
    assert other not in queue.payloads
    key = queue.checkout(prefetch=9)
    assert list(queue.held(key).values()) == [head]


@pytest.mark.rule("Q25")
def test_what_returned_expires_as_well() -> None:
    queue = Driven()
    key = queue.checkout()
    queue.enqueue(ttl_ms=100)
    queue.apply(c.Cancel(C1, "t"))
    queue.later(50)
    queue.give(key, 0)
    queue.later(50)
    assert queue.queue.total == 0


@pytest.mark.rule("Q1")
def test_time_never_goes_back() -> None:
    queue = Driven()
    queue.enqueue(ttl_ms=100)
    queue.now_ms -= 5_000
    queue.enqueue(ttl_ms=100)
    assert len({one.expires_ms for one in queue.queue.lines.in_order()}) == 1


@pytest.mark.rule("Q26")
def test_a_queue_which_nobody_uses_is_deleted() -> None:
    queue = Driven(expires_ms=1_000)
    queue.enqueue()
    queue.later(900)
    queue.apply(c.Dequeue(C1, "x", settled=True))
    queue.later(900)
    queue.checkout()
    queue.later(5_000)
    queue.apply(c.Cancel(C1, "t"))
    queue.later(900)
    assert not queue.queue.deleted
    queue.later(100)
    assert queue.queue.deleted
    assert [one.pid for one in queue.found(e.Eol)] == [P]


@pytest.mark.rule("Q26")
def test_new_settings_do_not_make_it_used() -> None:
    queue = Driven(expires_ms=1_000)
    queue.enqueue()
    queue.later(900)
    queue.configure(expires_ms=1_001)
    queue.later(101)
    assert queue.queue.deleted


@pytest.mark.rule("Q26")
def test_a_consumer_which_is_away_uses_it_no_more() -> None:
    queue = Driven(expires_ms=1_000)
    queue.checkout()
    queue.later(5_000)
    queue.apply(c.Down(C1, noconnection=True))
    queue.later(999)
    assert not queue.queue.deleted
    queue.later(1)
    assert queue.queue.deleted


@pytest.mark.rule("Q32")
def test_high_priorities_go_first_and_equals_in_order() -> None:
    queue = Driven()
    priorities = [4, 0, 31, 7, 4, 31, 99, -5]
    indexes = [queue.enqueue(priority=priority) for priority in priorities]
    default = queue.enqueue()
    clamped = [min(31, max(0, priority)) for priority in priorities]
    wanted = sorted(zip(clamped, indexes, strict=True), key=lambda one: (-one[0], one[1]))
    order = [index for _, index in wanted]
    order.insert(order.index(indexes[4]) + 1, default)
    assert queue.ready() == order
    counts = {level: len(line) for level, line in queue.queue.lines.levels.items()}
    assert counts == {0: 2, 4: 3, 7: 1, 31: 3}


@pytest.mark.rule("section 2")
def test_a_purge_leaves_what_is_held() -> None:
    queue = Driven(delayed_retry=RETRY_ALL)
    key = queue.checkout(prefetch=2)
    for _ in range(4):
        queue.enqueue()
    queue.apply(c.Cancel(C1, "t"))
    queue.give(key, 0)
    reply = queue.apply(c.Purge())
    assert isinstance(reply, r.Counted)
    assert reply.count == 3
    assert queue.queue.total == len(queue.held(key)) == 1
    queue.later(100_000)
    assert queue.ready() == []


@pytest.mark.rule("section 2")
def test_garbage_collection_changes_nothing_anybody_sees() -> None:
    queue = Driven(delayed_retry=RETRY_ALL)
    key = queue.checkout(prefetch=2)
    for _ in range(4):
        queue.enqueue()
    queue.give(key, 0)
    before = queue.queue.index, state_hash(queue.queue)
    queue.apply(c.GarbageCollection())
    assert queue.effects == []
    queue.queue.index = before[0]
    assert state_hash(queue.queue) == before[1]


@pytest.mark.rule("section 9")
def test_new_settings_apply_to_what_comes() -> None:
    queue = Driven()
    queue.enqueue()
    queue.configure(ttl_ms=100)
    queue.enqueue()
    queue.apply(c.Dequeue(C1, "x", settled=True))
    queue.later(100)
    assert queue.queue.total == 0
