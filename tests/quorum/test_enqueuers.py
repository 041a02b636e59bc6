"""Enqueuers: messages are stored once and in order; their half sends again what is lost."""

from __future__ import annotations

import pytest

from queuelake.engine.machine import Meta
from queuelake.engine.publishers import PARKED_MAX
from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import effects as e
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum import sending as s
from queuelake.engine.quorum.machine import QuorumQueue
from queuelake.engine.quorum.policy import QuorumPolicy
from tests.quorum.driven import C1, Driven, P


def sent(actions: list[s.Action]) -> list[int]:
    return [one.number for one in actions if isinstance(one, s.Send)]


def confirmed(actions: list[s.Action]) -> list[int]:
    return [one.correlation for one in actions if isinstance(one, s.Confirm)]


def refused(actions: list[s.Action]) -> list[int]:
    return [one.correlation for one in actions if isinstance(one, s.Refuse)]


@pytest.mark.rule("Q6")
def test_a_message_which_comes_again_is_confirmed_and_not_stored() -> None:
    queue = Driven()
    queue.enqueue()
    assert queue.apply(c.Enqueue(P, 1, 10)).code == r.ACCEPTED
    assert queue.ready() == [1]
    assert [one.indexes for one in queue.found(e.Release)] == [[2]]


@pytest.mark.rule("Q6")
def test_what_comes_too_early_is_parked_until_the_gap_is_filled() -> None:
    queue = Driven()
    assert queue.apply(c.Enqueue(P, 3, 10)).code == r.ACCEPTED
    assert queue.apply(c.Enqueue(P, 2, 10)).code == r.ACCEPTED
    assert queue.apply(c.Enqueue(P, 3, 10)).code == r.ACCEPTED  # sent again, and known
    assert queue.ready() == []
    assert queue.apply(c.Enqueue(P, 1, 10)).code == r.ACCEPTED
    assert queue.ready() == [4, 2, 1]
    assert queue.queue.enqueuers[P].numbers.next == 4


@pytest.mark.rule("Q6")
def test_so_many_are_parked_and_no_more() -> None:
    queue = QuorumQueue(QuorumPolicy())  # not driven: a thousand checks take long
    for index in range(1, PARKED_MAX + 1):
        queue.apply(Meta(index, 1), c.Enqueue(P, index + 1, 1))
    last = PARKED_MAX + 1
    reply, effects = queue.apply(Meta(last, 1), c.Enqueue(P, last + 1, 1))
    assert reply.code == r.NOT_ENQUEUED
    assert [one.indexes for one in effects if isinstance(one, e.Release)] == [[last]]
    queue.apply(Meta(last + 1, 1), c.Enqueue(P, 1, 1))
    assert queue.total == last
    assert queue.enqueuers[P].numbers.next == last + 1


@pytest.mark.rule("Q6")
def test_untracked_messages_are_stored_as_they_come() -> None:
    queue = Driven()
    for _ in range(2):
        assert queue.apply(c.Enqueue("", 0, 10)).code == r.ACCEPTED
    assert queue.ready() == [1, 2]
    assert not queue.queue.enqueuers


@pytest.mark.rule("Q15")
def test_what_is_parked_when_its_session_ends_is_stored_in_order() -> None:
    """It was confirmed, so it may not be lost; the one which is missing was not."""
    queue = Driven()
    queue.apply(c.Enqueue(P, 3, 10))
    queue.apply(c.Enqueue(P, 2, 10))
    queue.apply(c.Down(P))
    assert queue.ready() == [2, 1]
    assert [one.pid for one in queue.found(e.Demonitor)] == [P]


def test_an_enqueuer_is_monitored_once_and_let_go_when_it_ends() -> None:
    queue = Driven()
    assert queue.apply(c.RegisterEnqueuer(P)).code == r.ACCEPTED
    assert [one.pid for one in queue.found(e.Monitor)] == [P]
    queue.checkout(P)
    assert not queue.found(e.Monitor)
    queue.apply(c.Down(P))
    assert [one.pid for one in queue.found(e.Demonitor)] == [P]


@pytest.mark.rule("Q5")
def test_the_sender_numbers_messages_and_commands() -> None:
    sender = s.Sender(P)
    (first,) = sender.enqueue(70, 10, 0)
    (answer,) = sender.answer(s.SETTLE, 5, [1], 0)
    (second,) = sender.enqueue(71, 10, 0)
    assert isinstance(first, s.Send)
    assert isinstance(answer, s.Send)
    assert isinstance(second, s.Send)
    assert [first.number, answer.number, second.number] == [1, 2, 3]
    assert isinstance(first.command, c.Enqueue)
    assert isinstance(second.command, c.Enqueue)
    assert [first.command.seq, second.command.seq] == [1, 2]


@pytest.mark.rule("Q8")
def test_a_message_is_confirmed_when_it_is_applied_and_not_before() -> None:
    sender = s.Sender(P)
    assert confirmed(sender.enqueue(70, 10, 0)) == []
    assert confirmed(sender.leader_changed(1)) == []
    assert confirmed(sender.applied([(1, r.ACCEPTED)], 2)) == [70]
    assert confirmed(sender.applied([(1, r.ACCEPTED)], 3)) == []  # it was sent twice


@pytest.mark.rule("Q7")
def test_what_was_overtaken_is_lost_and_sent_again_once() -> None:
    sender = s.Sender(P)
    for correlation in range(1, 6):
        sender.enqueue(correlation, 10, 0)
    assert sent(sender.applied([(2, r.ACCEPTED)], 1)) == [1]
    # Sent before 1 was sent again, so they say nothing about it.
    assert sent(sender.applied([(3, r.ACCEPTED), (4, r.ACCEPTED), (5, r.ACCEPTED)], 1)) == []
    sender.enqueue(6, 10, 1)
    assert sent(sender.applied([(6, r.ACCEPTED)], 1)) == [1]
    assert confirmed(sender.applied([(1, r.ACCEPTED)], 1)) == [1]
    assert sender.pending_count() == 0


@pytest.mark.rule("Q7")
def test_what_was_too_far_ahead_is_sent_again_behind_what_was_lost() -> None:
    sender = s.Sender(P)
    for correlation in range(1, 4):
        sender.enqueue(correlation, 10, 0)
    assert sent(sender.applied([(3, r.NOT_ENQUEUED)], 1)) == [1, 2, 3]


@pytest.mark.rule("Q7")
def test_all_pending_is_sent_again_in_order_when_the_leader_changes() -> None:
    sender = s.Sender(P)
    for correlation in range(1, 4):
        sender.enqueue(correlation, 10, 0)
    sender.applied([(1, r.ACCEPTED)], 0)
    assert sent(sender.leader_changed(0)) == [2, 3]
    assert sent(sender.enqueue(4, 10, 0)) == [4]


@pytest.mark.rule("Q7")
def test_a_command_without_an_answer_is_sent_again_after_30_seconds() -> None:
    sender = s.Sender(P)
    sender.enqueue(1, 10, 1_000)
    assert sent(sender.tick(30_999)) == []
    assert sent(sender.tick(31_000)) == [1]
    assert sent(sender.tick(31_001)) == []


@pytest.mark.rule("Q9")
def test_a_new_session_begins_with_its_own_numbers() -> None:
    queue = Driven()
    queue.enqueue("n1/client/1")
    queue.apply(c.Enqueue("n2/client/2", 1, 10))
    assert queue.ready() == [1, 2]


@pytest.mark.rule("Q17")
def test_a_sender_whose_queue_is_deleted_refuses() -> None:
    sender = s.Sender(P)
    for correlation in range(1, s.SOFT_LIMIT + 1):
        sender.enqueue(correlation, 10, 0)
    actions = sender.eol()
    assert refused(actions) == list(range(1, s.SOFT_LIMIT + 1))
    assert isinstance(actions[-1], s.Unblock)
    assert refused(sender.enqueue(99, 10, 0)) == [99]
    assert sender.answer(s.SETTLE, 1, [1], 0) == []


@pytest.mark.rule("Q17")
def test_a_message_for_a_queue_which_was_deleted_is_refused() -> None:
    queue = Driven()
    queue.apply(c.Delete())
    assert queue.apply(c.Enqueue(P, 1, 10)).code == r.GONE
    assert [one.indexes for one in queue.found(e.Release)] == [[2]]
    sender = s.Sender(P)
    sender.enqueue(70, 10, 0)
    assert refused(sender.applied([(1, r.GONE)], 0)) == [70]


@pytest.mark.rule("Q30")
def test_a_sender_with_32_pending_commands_blocks_until_there_are_fewer() -> None:
    sender = s.Sender(P)
    blocks = []
    for correlation in range(1, s.SOFT_LIMIT + 1):
        actions = sender.enqueue(correlation, 10, 0)
        blocks.append(any(isinstance(one, s.Block) for one in actions))
    assert blocks == [False] * (s.SOFT_LIMIT - 1) + [True]
    actions = sender.applied([(1, r.ACCEPTED)], 0)
    assert isinstance(actions[-1], s.Unblock)
    assert not sender.is_blocked


@pytest.mark.rule("Q30")
def test_answers_wait_while_it_blocks_and_are_sent_merged() -> None:
    sender = s.Sender(P)
    for correlation in range(1, s.SOFT_LIMIT + 1):
        sender.enqueue(correlation, 10, 0)
    assert sender.answer(s.SETTLE, 7, [1, 2], 0) == []
    assert sender.answer(s.RETURN, 7, [3], 0) == []
    assert sender.answer(s.DISCARD, 7, [4], 0) == []
    assert sender.answer(s.SETTLE, 7, [5], 0) == []
    results = [(number, r.ACCEPTED) for number in range(1, 5)]
    commands = [one.command for one in sender.applied(results, 0) if isinstance(one, s.Send)]
    settle, give, discard = commands
    assert isinstance(settle, c.Settle)
    assert isinstance(give, c.Return)
    assert isinstance(discard, c.Discard)
    assert [settle.ids, give.ids, discard.ids] == [[1, 2, 5], [3], [4]]


@pytest.mark.rule("Q30")
def test_it_stays_blocked_when_the_collected_answers_fill_it_again() -> None:
    sender = s.Sender(P)
    for correlation in range(1, s.SOFT_LIMIT + 1):
        sender.enqueue(correlation, 10, 0)
    sender.answer(s.SETTLE, 7, [1], 0)
    assert sent(sender.applied([(1, r.ACCEPTED)], 0)) == [s.SOFT_LIMIT + 1]
    assert sender.is_blocked


@pytest.mark.rule("Q24")
def test_a_sender_refuses_while_the_queue_is_full_and_believes_the_newest_word() -> None:
    sender = s.Sender(P)
    sender.queue_status(True, 5)
    assert refused(sender.enqueue(1, 10, 0)) == [1]
    sender.queue_status(False, 9)
    sender.queue_status(True, 5)  # late
    assert sent(sender.enqueue(2, 10, 0)) == [1]


def test_the_pid_of_a_consumer_and_an_enqueuer_may_be_one() -> None:
    queue = Driven()
    queue.enqueue(C1)
    key = queue.checkout(C1)
    queue.apply(c.Down(C1))
    assert key not in queue.queue.consumers
    assert queue.ready() == [1]
