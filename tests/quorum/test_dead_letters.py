"""Dead letters: which, why, and how surely they reach their target."""

from __future__ import annotations

import pytest

from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import effects as e
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum.leading import take_over
from queuelake.engine.quorum.policy import AT_LEAST_ONCE, REJECT_PUBLISH
from tests.quorum.driven import C1, Driven, P

W1, W2 = "n1/worker", "n2/worker"
SURE = {
    "dead_letter_strategy": AT_LEAST_ONCE,
    "dead_letter_target": "dead",
    "overflow": REJECT_PUBLISH,
}


def letters(queue: Driven) -> list[tuple[int, int, str]]:
    """Number, index and reason of what the worker was given."""
    return [
        (delivery.msg_id, delivery.index, reason)
        for one in queue.found(e.DeadLetterDeliver)
        for delivery, reason in zip(one.deliveries, one.reasons, strict=True)
    ]


def rejected(queue: Driven, count: int) -> list[int]:
    """Indexes of so many messages, which a consumer has rejected."""
    indexes = [queue.enqueue() for _ in range(count)]
    key = queue.checkout(C1, "rejects", prefetch=count)
    held = list(queue.held(key))
    queue.apply(c.Cancel(C1, "rejects"))
    queue.apply(c.Discard(key, held))
    return indexes


@pytest.mark.rule("Q27", "Q29")
def test_at_most_once_is_an_effect_when_the_message_is_gone() -> None:
    queue = Driven(dead_letter_target="dead")
    indexes = rejected(queue, 2)
    assert queue.dead() == [(index, "rejected") for index in indexes]
    assert queue.queue.total == 0
    kinds = [type(one) for one in queue.effects]
    assert kinds.index(e.DeadLetter) < kinds.index(e.Release)  # its payload is there so long
    letter = queue.found(e.DeadLetter)[0]
    assert (letter.delivery.acquired, letter.delivery.failures) == (1, 1)
    assert letter.at_ms == queue.now_ms


@pytest.mark.rule("Q27")
def test_without_a_target_it_is_gone() -> None:
    queue = Driven()
    rejected(queue, 1)
    assert queue.dead() == []
    assert queue.queue.total == 0


@pytest.mark.rule("Q27")
@pytest.mark.parametrize("missing", ["dead_letter_target", "overflow"])
def test_at_least_once_falls_back_without_what_it_needs(missing: str) -> None:
    queue = Driven(**{name: value for name, value in SURE.items() if name != missing})
    rejected(queue, 1)
    assert queue.queue.total == 0
    assert len(queue.dead()) == (missing == "overflow")


@pytest.mark.rule("Q27")
def test_at_least_once_keeps_it_until_the_worker_settles_it() -> None:
    queue = Driven(**SURE)
    first, second = rejected(queue, 2)
    assert queue.dead() == []
    assert queue.queue.total == 2
    queue.apply(c.DeadLetterCheckout(W1))
    assert letters(queue) == [(0, first, "rejected"), (1, second, "rejected")]
    queue.apply(c.DeadLetterSettle(W1, [0, 7]))
    assert queue.payloads == {second}
    queue.apply(c.DeadLetterSettle(W1, [1]))
    assert queue.queue.total == 0


@pytest.mark.rule("Q27")
def test_the_worker_holds_32_at_most() -> None:
    queue = Driven(**SURE)
    queue.apply(c.DeadLetterCheckout(W1))
    indexes = rejected(queue, 40)
    assert [index for _, index, _ in letters(queue)] == indexes[:32]
    queue.apply(c.DeadLetterSettle(W1, [0, 1, 2]))
    assert [index for _, index, _ in letters(queue)] == indexes[32:35]


@pytest.mark.rule("Q27", "Q18", "section 18")
def test_a_new_worker_begins_with_what_the_former_one_held() -> None:
    """The crash points: before the copy, before its confirmation, and before it is settled."""
    queue = Driven(**SURE)
    queue.apply(c.DeadLetterCheckout(W1, prefetch=2))
    indexes = rejected(queue, 3)
    queue.effects = take_over(queue.queue)
    assert letters(queue) == [(0, indexes[0], "rejected"), (1, indexes[1], "rejected")]
    queue.apply(c.DeadLetterCheckout(W2, prefetch=2))
    assert letters(queue) == [(2, indexes[0], "rejected"), (3, indexes[1], "rejected")]
    assert queue.apply(c.DeadLetterSettle(W1, [0])).code == r.NOT_FOUND
    assert queue.queue.total == 3
    queue.apply(c.Down(W2))
    assert not queue.queue.letters_held
    queue.apply(c.DeadLetterCheckout(W1, prefetch=9))
    assert [index for _, index, _ in letters(queue)] == indexes


@pytest.mark.rule("Q27", "Q24")
def test_the_backlog_counts_and_holds_publishers_back() -> None:
    queue = Driven(**SURE, length_max=2)
    rejected(queue, 2)
    queue.enqueue()
    assert [(one.pid, one.rejects) for one in queue.found(e.QueueStatus)] == [(P, True)]
    queue.apply(c.DeadLetterCheckout(W1))
    assert queue.queue.rejecting  # to be on its way is not to have arrived
    queue.apply(c.DeadLetterSettle(W1, [0, 1]))
    assert not queue.queue.rejecting


@pytest.mark.rule("Q28")
def test_the_backlog_goes_when_at_least_once_is_given_up_or_the_queue_is_purged() -> None:
    queue = Driven(**SURE)
    queue.apply(c.DeadLetterCheckout(W1, prefetch=1))
    rejected(queue, 2)
    queue.configure(dead_letter_target="dead")
    assert queue.queue.total == 0
    queue.configure(**SURE)
    rejected(queue, 2)
    queue.enqueue()
    reply = queue.apply(c.Purge())
    assert isinstance(reply, r.Counted)
    assert reply.count == 3
    assert queue.payloads == set()


@pytest.mark.rule("Q29")
def test_every_reason_reaches_the_backlog() -> None:
    queue = Driven(**SURE, delivery_limit=0)
    queue.apply(c.DeadLetterCheckout(W1))
    seen = []
    rejected(queue, 1)
    seen += letters(queue)
    queue.enqueue(ttl_ms=10)
    queue.later(10)
    seen += letters(queue)
    key = queue.checkout()
    queue.enqueue()
    queue.fail(key, 0)
    seen += letters(queue)
    assert [reason for _, _, reason in seen] == ["rejected", "expired", "delivery_limit"]


@pytest.mark.rule("section 2", "Q29")
def test_undeliverable_here_is_a_discard_with_a_note() -> None:
    queue = Driven(dead_letter_target="dead")
    key = queue.checkout()
    index = queue.enqueue()
    queue.apply(c.Modify(key, [0], undeliverable_here=True, annotations={"why": "x"}))
    assert queue.dead() == [(index, "rejected")]
    assert queue.found(e.DeadLetter)[0].delivery.annotations == {"why": "x"}
