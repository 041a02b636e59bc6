"""The machine of one vehicle: commands in, effects out."""

from __future__ import annotations

from queuelake.engine.kinds import fanout as f
from queuelake.engine.machine import Command, Effect, Meta


def row(number: int) -> f.Row:
    return f.Row(b"%040d" % number, number, "V", f"task_a_{number}", "d", 60)


class Driven:
    """A machine and the time."""

    def __init__(self, on_reject: int = f.DONE, ack_timeout_ms: int = 0) -> None:
        policy = f.FanoutPolicy()
        policy.on_reject = on_reject
        policy.ack_timeout_ms = ack_timeout_ms
        self.vehicle = f.Vehicle(policy)
        self.now_ms = 1_000_000

    def apply(self, command: Command) -> list[Effect]:
        return self.vehicle.apply(Meta(0, self.now_ms), command)

    def attempt(self) -> list[Effect]:
        return self.apply(f.Attempt(f.HEARTBEAT, True))

    def send(self, number: int) -> None:
        (fetch,) = self.attempt()
        assert isinstance(fetch, f.Fetch)
        (sent,) = self.apply(f.Offer(row(number), fetch.cause, False))
        assert isinstance(sent, f.Send)

    def answer(self, number: int, reason: int = 0) -> list[Effect]:
        return self.apply(f.Acknowledge(row(number), reason, True))


def names(effects: list[Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def test_an_attempt_looks_for_the_first_row_and_sends_it() -> None:
    one = Driven()
    (fetch,) = one.apply(f.Attempt(f.BATCH, True))
    assert isinstance(fetch, f.Fetch)
    assert (fetch.after, fetch.cause) == (b"", f.BATCH)
    (sent,) = one.apply(f.Offer(row(1), f.BATCH, False))
    assert isinstance(sent, f.Send)
    assert (sent.row.ts_ms, sent.cause) == (1, f.BATCH)
    assert one.vehicle.sent_ms == one.now_ms


def test_nothing_is_sent_to_one_which_is_not_ready() -> None:
    one = Driven()
    assert one.apply(f.Attempt(f.HEARTBEAT, False)) == []
    assert one.vehicle.is_idle()


def test_one_is_in_flight_at_a_time() -> None:
    one = Driven()
    one.send(1)
    assert one.attempt() == []
    assert not one.vehicle.is_idle()


def test_what_the_session_holds_is_in_flight_and_not_sent_again() -> None:
    one = Driven()
    one.attempt()
    assert one.apply(f.Offer(row(1), f.SUBSCRIBE, True)) == []
    assert one.attempt() == []
    assert names(one.answer(1)) == ["Settle", "Fetch"]


def test_nothing_found_leaves_it_idle() -> None:
    one = Driven()
    one.attempt()
    assert one.apply(f.Offer(None, f.HEARTBEAT, False)) == []
    assert one.vehicle.is_idle()


def test_a_puback_settles_first_and_goes_on_behind_its_row() -> None:
    one = Driven()
    one.send(1)
    settle, fetch = one.answer(1)
    assert isinstance(settle, f.Settle)
    assert isinstance(fetch, f.Fetch)
    assert (settle.row.key, settle.outcome) == (row(1).key, f.ACKED)
    assert (fetch.after, fetch.cause) == (row(1).key, f.ACK)


def test_a_puback_of_another_row_settles_that_and_nothing_is_sent_besides_what_flies() -> None:
    one = Driven()
    one.send(2)
    assert names(one.answer(1)) == ["Settle"]
    assert one.vehicle.in_flight is not None
    assert one.vehicle.in_flight.key == row(2).key


def test_a_puback_of_a_row_which_is_gone_is_an_attempt() -> None:
    one = Driven()
    (fetch,) = one.apply(f.Acknowledge(None, 0, True))
    assert isinstance(fetch, f.Fetch)
    assert fetch.after == b""


def test_the_last_puback_before_it_unsubscribed_only_settles() -> None:
    one = Driven()
    one.send(1)
    assert names(one.apply(f.Acknowledge(row(1), 0, False))) == ["Settle"]


def test_one_without_room_is_tried_again() -> None:
    one = Driven()
    one.send(1)
    one.apply(f.NotTaken())
    one.send(1)


def test_refused_is_done_unless_told_otherwise() -> None:
    one = Driven()
    one.send(1)
    settle, fetch = one.answer(1, 0x83)
    assert isinstance(settle, f.Settle)
    assert settle.outcome == f.REJECTED
    assert isinstance(fetch, f.Fetch)


def test_refused_may_go_to_the_dead_letters() -> None:
    one = Driven(f.BURY)
    one.send(1)
    bury, settle, _ = one.answer(1, 0x97)
    assert isinstance(bury, f.Bury)
    assert bury.reason == 0x97
    assert isinstance(settle, f.Settle)
    assert settle.outcome == f.REJECTED
    one.apply(f.Offer(row(2), f.ACK, False))
    assert names(one.answer(2)) == ["Settle", "Fetch"]


def test_refused_may_be_tried_again_after_longer_and_longer_pauses() -> None:
    one = Driven(f.RETRY)
    pauses = []
    for _ in range(f.REJECTS_MAX - 1):
        one.send(1)
        (wake,) = one.answer(1, 0x83)
        assert isinstance(wake, f.WakeAt)
        pauses.append(wake.due_ms - one.now_ms)
        assert one.attempt() == []
        assert not one.vehicle.is_idle()
        one.now_ms = wake.due_ms
    assert pauses == [1_000, 2_000, 4_000, 8_000]
    one.send(1)
    assert names(one.answer(1, 0x83)) == ["Settle", "Fetch"]


def test_each_row_has_all_its_tries() -> None:
    one = Driven(f.RETRY)
    one.send(1)
    one.answer(1, 0x83)
    one.now_ms += 1_000
    one.send(1)
    one.answer(1)
    one.apply(f.Offer(row(2), f.ACK, False))
    (wake,) = one.answer(2, 0x83)
    assert isinstance(wake, f.WakeAt)
    assert wake.due_ms == one.now_ms + 1_000


def test_one_which_acknowledges_nothing_is_disconnected_when_that_is_wanted() -> None:
    one = Driven(ack_timeout_ms=5_000)
    assert one.apply(f.Tick()) == []
    one.send(1)
    one.now_ms += 4_999
    assert one.apply(f.Tick()) == []
    one.now_ms += 1
    assert names(one.apply(f.Tick())) == ["Disconnect"]
    patient = Driven()
    patient.send(1)
    patient.now_ms += 10**9
    assert patient.apply(f.Tick()) == []
