"""The machine of one mailbox: batches, positions, refusals, rewinds."""

from __future__ import annotations

import pytest

from queuelake.engine.kinds import ecq as m
from queuelake.engine.machine import Command, Effect, Meta
from queuelake.engine.policy.settings import Policy


class Driven:
    """A mailbox, and what it asked for last."""

    def __init__(self, refusals: int = m.ADVANCE, batch: int = 3, acked: int = 0) -> None:
        self.machine = m.Mailbox(Policy())
        self.now_ms = 1_000
        self.effects: list[Effect] = []
        self.do(m.Attach(acked, batch, refusals))

    def do(self, command: Command) -> list[Effect]:
        self.effects = self.machine.apply(Meta(0, self.now_ms), command)
        return self.effects

    def delivered(self, *seqs: int) -> list[int]:
        """The host finds these; returns the tags."""
        effects = self.do(m.Read(list(seqs), 0))
        assert all(isinstance(one, m.Deliver) for one in effects)
        return [one.tag for one in effects if isinstance(one, m.Deliver)]

    def saved(self) -> int:
        (effect,) = self.effects
        assert isinstance(effect, m.Save)
        return effect.acked

    def fetched(self) -> tuple[int, int]:
        (effect,) = self.effects
        assert isinstance(effect, m.Fetch)
        return effect.after, effect.count


def test_an_owner_which_comes_gets_what_is_above_its_position() -> None:
    box = Driven(acked=7)
    assert box.fetched() == (7, 3)


def test_the_next_batch_is_read_when_all_is_answered_and_the_position_stored() -> None:
    box = Driven()
    tags = box.delivered(2, 5, 6)
    assert box.do(m.Settle(tags[2], m.DONE)) == []
    assert box.do(m.Settle(tags[0], m.DONE)) == []
    box.do(m.Settle(tags[1], m.DONE))
    assert box.saved() == 6
    assert box.do(m.Look()) == []
    box.do(m.Saved(6))
    assert box.fetched() == (6, 3)


def test_an_answer_which_comes_twice_counts_once() -> None:
    box = Driven()
    tags = box.delivered(1, 2)
    box.do(m.Settle(tags[0], m.DONE))
    assert box.do(m.Settle(tags[0], m.DONE)) == []
    assert box.machine.acked == 0


def test_an_owner_with_nothing_to_read_is_woken_by_a_write() -> None:
    box = Driven()
    assert box.do(m.Read([], 0)) == []
    box.do(m.Look())
    assert box.fetched() == (0, 3)


def test_a_look_which_stopped_before_the_end_goes_on_from_there() -> None:
    box = Driven()
    box.do(m.Read([], 1000))
    assert box.fetched() == (1000, 3)
    assert box.machine.acked == 0


def test_what_is_read_for_an_owner_which_left_goes_nowhere() -> None:
    box = Driven()
    box.do(m.Detach())
    assert box.do(m.Read([1], 0)) == []
    assert box.do(m.Look()) == []


def test_what_was_in_hand_is_delivered_again_under_another_tag() -> None:
    box = Driven()
    (former,) = box.delivered(4)
    box.do(m.Detach())
    box.do(m.Attach(0, 3, m.ADVANCE))
    (tag,) = box.delivered(4)
    assert box.do(m.Settle(former, m.DONE)) == []
    box.do(m.Settle(tag, m.DONE))
    assert box.saved() == 4


def test_a_refusal_is_an_answer_like_any_other_when_told_to_advance() -> None:
    box = Driven()
    (tag,) = box.delivered(1)
    box.do(m.Settle(tag, m.REJECTED, 0x97))
    assert box.saved() == 1


def test_a_refused_entry_is_tried_again_later_and_holds_up_the_batch() -> None:
    box = Driven(m.RETRY_LATER)
    first, second = box.delivered(1, 2)
    (wake,) = box.do(m.Settle(first, m.REJECTED, 0x80))
    assert isinstance(wake, m.Wake)
    assert wake.due_ms == box.now_ms + 5_000
    assert box.do(m.Settle(second, m.DONE)) == []
    assert box.do(m.Tick()) == []
    box.now_ms = wake.due_ms
    (again,) = box.do(m.Tick())
    assert isinstance(again, m.Deliver)
    assert (again.seq, again.again) == (1, True)
    assert not box.machine.is_out(first)
    box.do(m.Settle(again.tag, m.DONE))
    assert box.saved() == 2


def test_after_too_many_retries_it_is_a_dead_letter() -> None:
    box = Driven(m.RETRY_LATER)
    (tag,) = box.delivered(1)
    for _ in range(10):
        (wake,) = box.do(m.Settle(tag, m.REJECTED, 0x80))
        assert isinstance(wake, m.Wake)
        box.now_ms = wake.due_ms
        (again,) = box.do(m.Tick())
        assert isinstance(again, m.Deliver)
        tag = again.tag
    bury, save = box.do(m.Settle(tag, m.REJECTED, 0x80))
    assert isinstance(bury, m.Bury)
    assert (bury.seq, bury.attempts, bury.first_ms) == (1, 11, 1_000)
    assert isinstance(save, m.Save)


@pytest.mark.parametrize("outcome", [m.REJECTED, m.TOO_LARGE])
def test_a_refused_entry_is_a_dead_letter_at_once_when_told_so(outcome: int) -> None:
    box = Driven(m.DEAD_LETTER)
    (tag,) = box.delivered(9)
    bury, save = box.do(m.Settle(tag, outcome, 0x97))
    assert isinstance(bury, m.Bury)
    assert (bury.seq, bury.reason) == (9, 0x97)
    assert isinstance(save, m.Save)


def test_a_rewind_drops_what_is_out_and_reads_when_it_is_stored() -> None:
    box = Driven(acked=8)
    (tag,) = box.delivered(9)
    box.do(m.Rewind(2))
    assert box.saved() == 2
    assert box.do(m.Settle(tag, m.DONE)) == []
    assert box.do(m.Saved(8)) == []
    box.do(m.Saved(2))
    assert box.fetched() == (2, 3)
