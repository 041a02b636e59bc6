"""P9a: one fenced lease for each lake, on a clock the test owns."""

from __future__ import annotations

import pytest

from queuelake.broker.pipeline.lease import LAKES_MAX, Leases
from queuelake.errors import LeaseLostError, LeaseTakenError, RefusedError
from queuelake.flight import Lease, LeaseAsked
from tests.simulation.node import Node

LAKE = "/lake"


class LeaseNode(Node):
    def _start(self) -> None:
        super()._start()
        self.leases = Leases(self.store, self.broker.runner, self.broker.clock)

    def ask(self, holder: str, epoch: int = 0, *, lake: str = LAKE, ttl_s: float = 60.0) -> Lease:
        lease = self.leases.ask(LeaseAsked(lake, holder, ttl_s, epoch))
        self.work()
        return lease


@pytest.mark.rule("P9a")
def test_one_holder_at_a_time_until_its_time_is_over() -> None:
    node = LeaseNode()
    first = node.ask("a")
    assert first.until_ms == node.broker.clock.now_ms() + 60_000
    with pytest.raises(LeaseTakenError, match=r"/lake is held by a until 20\d\d-.*T"):
        node.ask("b")
    node.pass_time(59_000)
    with pytest.raises(LeaseTakenError):
        node.ask("b")
    node.pass_time(1_000)
    second = node.ask("b")
    assert second.epoch > first.epoch
    with pytest.raises(LeaseLostError, match=f"b has lease {second.epoch}"):
        node.ask("a", first.epoch)


def test_a_lease_which_is_kept_longer_stays_the_same() -> None:
    node = LeaseNode()
    lease = node.ask("a")
    for _ in range(5):
        node.pass_time(40_000)
        assert node.ask("a", lease.epoch).epoch == lease.epoch
    with pytest.raises(LeaseTakenError):
        node.ask("b")


def test_who_was_late_may_go_on_if_nobody_came() -> None:
    node = LeaseNode()
    lease = node.ask("a")
    node.pass_time(100_000)
    assert node.ask("a", lease.epoch).epoch == lease.epoch


def test_an_answer_which_was_lost_does_not_lock_its_holder_out() -> None:
    node = LeaseNode()
    assert node.ask("a").epoch < node.ask("a").epoch


def test_given_back_it_is_free_at_once_and_old_leases_give_nothing_back() -> None:
    node = LeaseNode()
    first = node.ask("a")
    node.leases.release(first)
    second = node.ask("b")
    node.leases.release(first)
    with pytest.raises(LeaseTakenError):
        node.ask("c")
    node.leases.release(second)
    with pytest.raises(LeaseLostError, match="was given back"):
        node.ask("b", second.epoch)
    assert node.ask("c").epoch > second.epoch


def test_a_restart_with_a_clock_which_jumped_frees_nothing_early() -> None:
    node = LeaseNode()
    lease = node.ask("a")
    for jump_s in (-86_400, 86_400):
        node.loop.now_ns += jump_s * 1_000_000_000
        node.crash()
        with pytest.raises(LeaseTakenError):
            node.ask("b")
        assert node.ask("a", lease.epoch).epoch == lease.epoch
    node.crash()
    node.pass_time(60_000)
    assert node.ask("b").epoch > lease.epoch


@pytest.mark.rule("P9a")
def test_epochs_rise_over_restarts_and_lakes() -> None:
    node = LeaseNode()
    epochs: list[int] = []
    for number in range(20):
        lease = node.ask("a", lake=f"/lake{number % 3}")
        epochs.append(lease.epoch)
        node.leases.release(lease)
        node.work()
        if number % 4 == 0:
            node.crash()
    assert epochs == sorted(set(epochs))


def test_a_lease_is_in_the_store_before_it_is_of_use() -> None:
    node = LeaseNode()
    node.store.fail_commits = 1
    first = node.leases.ask(LeaseAsked(LAKE, "a", 60.0))
    node.work()
    node.pass_time(2_000)
    node.crash()
    assert node.ask("a").epoch > first.epoch


@pytest.mark.parametrize("ttl_s", [0, -1, 3_601, float("nan")])
def test_how_long_it_may_last_is_limited(ttl_s: float) -> None:
    with pytest.raises(RefusedError, match="ttl_s is"):
        LeaseNode().ask("a", ttl_s=ttl_s)


def test_forgotten_lakes_make_room() -> None:
    node = LeaseNode()
    for number in range(LAKES_MAX + 1):
        node.leases.ask(LeaseAsked(f"/lake{number}", "a", 1.0))
    node.pass_time(2_000)
    node.ask("a", lake="/one-more")
    assert len(node.leases._held) == 1
