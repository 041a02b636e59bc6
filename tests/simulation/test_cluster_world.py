"""Whole lives of a cluster from a seed; `scripts/soak cluster_world` runs many more.

A seed which fails is told by pytest; `run_seed` alone shows the same life again. The sabotage shows
that a life notices what would be wrong: each takes away one thing that keeps messages safe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from queuelake.cluster import committer
from queuelake.cluster.appending import OvertakenError, append_surely
from queuelake.cluster.engine import ConflictingWriteError, EngineError, Log, UnknownOutcomeError
from queuelake.cluster.entry import Part, split
from queuelake.cluster.follower import Follower
from queuelake.cluster.replica import Replica
from tests.simulation import cluster_node
from tests.simulation.cluster_engine import Center
from tests.simulation.cluster_world import run_seed

SEEDS = 200
SEEDS_PER_TEST = 20
SABOTAGED_SEEDS_MAX = 80


@pytest.mark.rule("D29", "D30", "Q2", "Q8", "section 18")
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_promises_are_kept_in_every_life(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        run_seed(seed)


def test_lives_are_eventful() -> None:
    """A simulation in which little happens proves little."""
    tally: Counter[str] = Counter()
    for seed in range(1000, 1040):
        tally += run_seed(seed).tally
    for what in ("taken over", "not taken over", "lease lost", "append lost", "fenced"):
        assert tally[what], f"never {what}"
    for what in ("append refused", "late write", "stuck", "copied", "transferred", "undone"):
        assert tally[what], f"never {what}"


def test_the_same_seed_is_the_same_life() -> None:
    one, other = run_seed(3), run_seed(3)
    assert one.center.parts == other.center.parts
    assert one.tally == other.tally
    assert one.time.now_ns == other.time.now_ns


# Sabotage

Sabotage = Callable[[pytest.MonkeyPatch], None]


def an_engine_which_does_not_compare_positions(patch: pytest.MonkeyPatch) -> None:
    def append(center: Center, part: bytes, after: int) -> None:
        center.parts.append(part)

    patch.setattr(Center, "append", append)


def an_engine_which_stores_what_it_refuses(patch: pytest.MonkeyPatch) -> None:
    append = Center.append

    def append_anyway(center: Center, part: bytes, after: int) -> None:
        try:
            append(center, part, after)
        except ConflictingWriteError:
            center.parts.append(part)
            raise

    patch.setattr(Center, "append", append_anyway)


def replicas_which_accept_what_is_there(patch: pytest.MonkeyPatch) -> None:
    def is_next(replica: Replica, part: Part) -> bool:
        return True

    an_engine_which_stores_what_it_refuses(patch)
    patch.setattr(Replica, "_is_next", is_next)


def a_committer_which_takes_silence_for_yes(patch: pytest.MonkeyPatch) -> None:
    async def append(log: Log, parts: list[bytes], after: int, patience_s: float) -> int:
        try:
            return await log.append(parts, after)
        except UnknownOutcomeError:
            return after + len(parts)
        except ConflictingWriteError as error:
            raise OvertakenError(str(error)) from None

    patch.setattr(committer, "append_surely", append)


def an_owner_which_does_not_read_to_the_end(patch: pytest.MonkeyPatch) -> None:
    async def take_over(
        log: Log, follower: Follower, replica: Replica, epoch: int, patience_s: float
    ) -> bool:
        try:
            last = (await log.ends())[1]
            parts = split(follower.beginning(epoch), log.part_bytes_max)
            position = await append_surely(log, parts, last, patience_s)
        except EngineError:
            return False
        await follower.begin_epoch(follower.beginning(epoch), position)
        return True

    patch.setattr(cluster_node, "take_over", take_over)


@pytest.mark.parametrize(
    "sabotage",
    [
        an_engine_which_does_not_compare_positions,
        replicas_which_accept_what_is_there,
        a_committer_which_takes_silence_for_yes,
        an_owner_which_does_not_read_to_the_end,
    ],
)
def test_sabotage_is_noticed(monkeypatch: pytest.MonkeyPatch, sabotage: Sabotage) -> None:
    sabotage(monkeypatch)
    noticed = r"broken promises|came before|was used for another"
    with pytest.raises(AssertionError, match=noticed):
        run_seeds(SABOTAGED_SEEDS_MAX)


def test_replicas_refuse_what_the_engine_should_have_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fencing is done twice; here the second time alone."""
    an_engine_which_stores_what_it_refuses(monkeypatch)
    run_seeds(SEEDS_PER_TEST)


def run_seeds(count: int) -> None:
    for seed in range(count):
        run_seed(seed)
