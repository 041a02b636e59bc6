"""The token bucket: the average holds, a burst passes, waiting as told suffices."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queuelake.broker.limits import TokenBucket


def test_a_burst_passes_and_then_the_rate_holds() -> None:
    bucket = TokenBucket(rate_per_s=10.0, burst=5.0)
    assert [bucket.take(1.0, 100.0) for _ in range(5)] == [0.0] * 5
    wait_s = bucket.take(1.0, 100.0)
    assert 0.1 <= wait_s < 0.101
    assert bucket.take(1.0, 100.0 + wait_s) == 0.0
    assert bucket.take(1.0, 100.0 + wait_s) > 0.0


def test_it_never_fills_beyond_the_burst() -> None:
    bucket = TokenBucket(10.0, 2.0)
    assert bucket.take(0.0, 0.0) == 0.0
    assert [bucket.take(1.0, 1e6) == 0.0 for _ in range(3)] == [True, True, False]


def test_more_than_the_burst_passes_once_and_is_paid_back() -> None:
    bucket = TokenBucket(10.0, 5.0)
    assert bucket.take(25.0, 0.0) == 0.0
    assert bucket.take(1.0, 0.0) > 2.0
    assert bucket.take(1.0, 2.2) == 0.0


def test_a_clock_that_steps_back_changes_nothing() -> None:
    bucket = TokenBucket(1.0, 1.0)
    assert bucket.take(1.0, 50.0) == 0.0
    assert bucket.take(1.0, 10.0) > 0.0
    assert bucket.take(1.0, 51.0) == 0.0


@given(
    st.floats(0.1, 1e6),
    st.floats(1.0, 1e6),
    st.floats(0.0, 1e6),
    st.lists(st.floats(0.0, 1e4), min_size=1, max_size=20),
)
def test_waiting_as_told_suffices_and_the_rate_is_kept(
    rate_per_s: float, burst: float, start: float, sizes: list[float]
) -> None:
    bucket = TokenBucket(rate_per_s, burst)
    now = start
    for size in sizes:
        for _ in range(3):
            wait_s = bucket.take(size, now)
            if wait_s == 0.0:
                break
            now += wait_s
        else:
            raise AssertionError("waited as told, three times, and was still refused")
    taken = sum(sizes) - sizes[-1]
    assert taken <= (burst + (now - start) * rate_per_s) * (1 + 1e-6) + 1e-3
