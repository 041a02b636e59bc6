"""Sessions which end, nodes which go and come, leaders which change, consumers which sleep."""

from __future__ import annotations

import pytest

from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import effects as e
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum.leading import take_over
from queuelake.engine.quorum.snapshot import state_hash
from tests.quorum.driven import C1, C2, Driven, P


def failures(queue: Driven) -> list[tuple[int, int, int]]:
    """Index, acquired count and delivery count of what returned."""
    return [(one.index, one.acquired, one.failures) for one in queue.queue.lines.returns]


@pytest.mark.rule("Q15", "section 6")
def test_what_a_dead_session_held_returns_and_counts() -> None:
    queue = Driven()
    queue.checkout(C1, "a", prefetch=1)
    queue.checkout(C1, "b", prefetch=1)
    first, second = queue.enqueue(), queue.enqueue()
    queue.apply(c.Down(C1))
    assert not queue.queue.consumers
    assert failures(queue) == [(first, 1, 1), (second, 1, 1)]
    assert [one.pid for one in queue.found(e.Demonitor)] == [C1]


@pytest.mark.rule("Q15")
def test_the_end_of_an_unknown_session_changes_nothing() -> None:
    queue = Driven()
    queue.apply(c.Down("n9/nobody"))
    queue.apply(c.Down("n9/nobody", noconnection=True))
    queue.apply(c.NodeUp("n9"))
    assert queue.effects == []


@pytest.mark.rule("Q16", "section 6")
def test_all_sessions_of_a_lost_node_are_suspected_and_get_nothing() -> None:
    queue = Driven()
    key = queue.checkout(C1, prefetch=9)
    other = queue.checkout(C2, prefetch=9)
    queue.enqueue("n1/another")
    queue.apply(c.Down(P, noconnection=True))
    assert [one.node for one in queue.found(e.MonitorNode)] == ["n1"]
    assert queue.queue.enqueuers["n1/another"].suspected
    assert queue.queue.consumers[key].status() == "suspected"
    for _ in range(2):
        queue.enqueue("n2/p")
    assert len(queue.held(key)) == 1
    assert len(queue.held(other)) == 2


@pytest.mark.rule("Q16", "section 6")
def test_what_a_suspected_consumer_holds_returns_uncounted_after_a_minute() -> None:
    queue = Driven()
    key = queue.checkout(C1, prefetch=1)
    index = queue.enqueue("n2/p")
    queue.apply(c.Down(C1, noconnection=True))
    queue.later(59_999)
    assert queue.held(key) == {0: index}
    queue.later(1)
    assert queue.held(key) == {}
    assert failures(queue) == [(index, 1, 0)]
    queue.apply(c.NodeUp("n1"))
    assert queue.held(key) == {1: index}


@pytest.mark.rule("Q16")
def test_a_node_which_comes_back_has_its_sessions_again() -> None:
    queue = Driven()
    key = queue.checkout(C1, prefetch=2)
    queue.enqueue("n1/p")
    queue.apply(c.Down(C1, noconnection=True))
    queue.later(10_000)
    queue.apply(c.NodeUp("n1"))
    assert sorted(one.pid for one in queue.found(e.Monitor)) == [C1, "n1/p"]
    assert [one.pid for one in queue.found(e.LeaderChange)] == ["n1/p"]
    assert queue.delivered() == [(key, 0, 2)]  # it may have been lost on the way
    queue.later(60_000)
    assert list(queue.held(key)) == [0]
    queue.enqueue("n1/p")
    assert list(queue.held(key)) == [0, 1]


@pytest.mark.rule("Q16")
def test_a_cancelled_consumer_which_is_away_too_long_is_forgotten() -> None:
    queue = Driven()
    queue.checkout(C1)
    queue.enqueue("n2/p")
    queue.apply(c.Cancel(C1, "t"))
    queue.apply(c.Down(C1, noconnection=True))
    queue.later(60_000)
    assert not queue.queue.consumers
    assert len(failures(queue)) == 1


@pytest.mark.rule("Q16")
def test_who_checks_out_again_is_not_suspected() -> None:
    queue = Driven()
    key = queue.checkout(C1)
    queue.apply(c.Down(C1, noconnection=True))
    assert queue.checkout(C1) == key
    queue.enqueue("n2/p")
    assert list(queue.held(key)) == [0]


@pytest.mark.rule("section 2")
def test_nodes_which_left_for_good_leave_nothing_behind() -> None:
    queue = Driven()
    queue.checkout(C1)
    index = queue.enqueue("n1/p")
    queue.apply(c.DeadLetterCheckout("n1/worker"))
    queue.checkout(C2, prefetch=0, credited=True)
    queue.apply(c.PurgeNodes(["n1", "n7"]))
    assert list(queue.queue.sessions) == [C2]
    assert failures(queue) == [(index, 1, 0)]


@pytest.mark.rule("Q17")
def test_every_session_is_told_when_the_queue_is_deleted() -> None:
    queue = Driven()
    queue.checkout(C1)
    queue.enqueue()
    queue.enqueue()
    queue.apply(c.Enqueue(P, 9, 10))
    queue.apply(c.DeadLetterCheckout("n3/worker"))
    queue.apply(c.Delete())
    assert sorted(one.pid for one in queue.found(e.Eol)) == [C1, P, "n3/worker"]
    assert queue.found(e.QueueDeleted)
    assert queue.payloads == set()
    assert queue.apply(c.Checkout(C1, "t")).code == r.GONE


@pytest.mark.rule("Q18", "Q3")
def test_a_new_leader_does_again_what_may_be_undone() -> None:
    queue = Driven(length_max=1, overflow=1, single_active_consumer=True)
    key = queue.checkout(C1, prefetch=2)
    waiting = queue.checkout(C2)
    queue.enqueue()
    for _ in range(3):
        queue.enqueue()
    queue.apply(c.Down(C2, noconnection=True))
    before = state_hash(queue.queue)
    queue.effects = take_over(queue.queue)
    assert state_hash(queue.queue) == before
    assert {one.pid for one in queue.found(e.Monitor)} == {C1, C2, P}
    assert [one.node for one in queue.found(e.MonitorNode)] == ["n2"]
    assert {one.name for one in queue.found(e.Timer)} == {c.CONSUMER_TIMEOUT, c.DISCONNECTED}
    assert queue.delivered() == [(key, 0, 3), (key, 1, 4)]
    assert [(one.pid, one.rejects) for one in queue.found(e.QueueStatus)] == [(P, True)]
    assert [one.pid for one in queue.found(e.LeaderChange)] == [P]
    told = {one.key: one.active for one in queue.found(e.ConsumerStatus)}
    assert told == {key: True, waiting: False}


@pytest.mark.rule("Q23", "section 6")
def test_what_is_held_too_long_returns_uncounted_and_nothing_new_comes() -> None:
    queue = Driven()
    key = queue.checkout(prefetch=2, timeout_ms=5_000)
    first = queue.enqueue()
    queue.later(3_000)
    second = queue.enqueue()
    queue.later(2_000)
    assert queue.held(key) == {1: second}
    assert failures(queue) == [(first, 1, 0)]
    assert [one.ids for one in queue.found(e.ConsumerTimedOut)] == [[0]]
    assert queue.queue.consumers[key].status() == "timed_out"
    queue.settle(key, 1)
    assert queue.held(key) == {}
    # It says what became of the first, too late for that, and gets messages again.
    queue.settle(key, 0)
    assert queue.held(key) == {2: first}


@pytest.mark.rule("Q23")
def test_how_long_is_for_the_consumer_to_say_then_for_the_queue() -> None:
    queue = Driven(consumer_timeout_ms=10_000)
    own = queue.checkout(C1, timeout_ms=4_000)
    default = queue.checkout(C2)
    never = queue.checkout("n1/x", timeout_ms=0)
    for _ in range(3):
        queue.enqueue()
    queue.later(4_000)
    assert (len(queue.held(own)), len(queue.held(default))) == (0, 1)
    queue.later(6_000)
    assert (len(queue.held(default)), len(queue.held(never))) == (0, 1)
    queue.later(1_000_000_000)
    assert len(queue.held(never)) == 1


@pytest.mark.rule("Q23")
def test_the_default_is_half_an_hour() -> None:
    queue = Driven()
    key = queue.checkout()
    queue.enqueue()
    queue.later(1_799_999)
    assert len(queue.held(key)) == 1
    queue.later(1)
    assert len(queue.held(key)) == 0


@pytest.mark.rule("Q23")
def test_a_cancelled_consumer_which_holds_messages_too_long_is_forgotten() -> None:
    queue = Driven()
    queue.checkout(timeout_ms=5_000)
    queue.enqueue()
    queue.apply(c.Cancel(C1, "t"))
    queue.later(5_000)
    assert not queue.queue.consumers


@pytest.mark.rule("Q23")
def test_who_checks_out_again_after_a_timeout_gets_messages() -> None:
    queue = Driven()
    key = queue.checkout(timeout_ms=5_000)
    queue.enqueue()
    queue.later(5_000)
    assert queue.checkout(timeout_ms=5_000) == key
    assert list(queue.held(key)) == [1]


@pytest.mark.rule("Q3")
def test_a_follower_does_only_what_concerns_itself() -> None:
    queue = Driven(dead_letter_target="dead")
    key = queue.checkout(prefetch=2)
    queue.enqueue()
    queue.enqueue()
    queue.apply(c.Discard(key, [0]))
    assert {type(one) for one in queue.found(e.LocalEffect)} == {e.Release}
    assert queue.dead()
    queue.apply(c.Delete())
    assert {type(one) for one in queue.found(e.LocalEffect)} == {e.Release, e.QueueDeleted}
