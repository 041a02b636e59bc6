"""The timer wheel: never early, soon after, once, and not at all when cancelled."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queuelake.broker.clock import SLOT_MS, Clock, TimerWheel

TIMERS = st.lists(st.tuples(st.integers(0, 5000), st.booleans()), max_size=30)
TURNS = st.lists(st.integers(1, 900), min_size=1, max_size=40)
START_MS = 1_700_000_000_123


@given(TIMERS, TURNS)
def test_a_timer_fires_once_and_never_early(
    timers: list[tuple[int, bool]], turns: list[int]
) -> None:
    now_ms = START_MS
    wheel = TimerWheel(now_ms)
    fired: dict[int, list[int]] = {number: [] for number in range(len(timers))}
    armed = []
    for number, (delay_ms, _) in enumerate(timers):
        armed.append(wheel.arm(now_ms + delay_ms, fired[number].append))
    for number, (_, cancelled) in enumerate(timers):
        if cancelled:
            armed[number].cancel()
    for step in turns:
        before_ms, now_ms = now_ms, now_ms + step
        count = sum(len(times) for times in fired.values())
        said = wheel.turn(now_ms)
        assert said == sum(len(times) for times in fired.values()) - count
        for number, (delay_ms, cancelled) in enumerate(timers):
            due_ms = START_MS + delay_ms
            if cancelled or due_ms >= now_ms:
                assert fired[number] == []
            elif due_ms + SLOT_MS <= before_ms:
                assert len(fired[number]) == 1
            assert len(fired[number]) <= 1
            assert all(at_ms >= due_ms for at_ms in fired[number])


@given(st.lists(st.integers(-5000, 3000), min_size=1, max_size=10))
def test_a_timer_armed_by_a_timer_fires_too(delays: list[int]) -> None:
    """Also one which is overdue already: in the next turn, not in this one without end."""
    wheel = TimerWheel(START_MS)
    fired: list[int] = []
    waiting = list(delays)

    def fire(now_ms: int) -> None:
        fired.append(now_ms)
        if waiting:
            wheel.arm(now_ms + waiting.pop(0), fire)

    wheel.arm(START_MS, fire)
    now_ms = START_MS
    for _ in range(20 * (len(delays) + 1)):
        now_ms += SLOT_MS
        wheel.turn(now_ms)
    assert len(fired) == len(delays) + 1
    assert fired == sorted(fired)


def test_a_timer_which_fails_stops_neither_the_others_nor_the_wheel() -> None:
    wheel = TimerWheel(START_MS)
    fired: list[int] = []

    def fail(now_ms: int) -> None:
        raise ZeroDivisionError

    wheel.arm(START_MS, fail)
    wheel.arm(START_MS, fired.append)
    wheel.arm(START_MS + 1000, fired.append)
    wheel.turn(START_MS + 500)
    wheel.turn(START_MS + 2000)
    assert len(fired) == 2


def test_a_cancelled_timer_forgets_its_action_at_once() -> None:
    wheel = TimerWheel(START_MS)
    timer = wheel.arm(START_MS + 10_000_000, print)
    timer.cancel()
    assert timer.action is None


def test_a_timer_can_cancel_another_of_the_same_slot() -> None:
    wheel = TimerWheel(START_MS)
    fired: list[int] = []
    wheel.arm(START_MS, lambda _: other.cancel())
    other = wheel.arm(START_MS, fired.append)
    wheel.turn(START_MS + 1000)
    assert fired == []


def test_the_clock_follows_the_time_it_is_given() -> None:
    ns = 5_000_000_000

    def monotonic_ns() -> int:
        return ns

    clock = Clock(monotonic_ns, wall_ns=1_000_000_000_000_000_000)
    assert clock.now_ms() == clock.started_ms == clock.coarse_ms == 1_000_000_000_000
    ns += 1_500_000
    assert clock.now_ms() == 1_000_000_000_001
