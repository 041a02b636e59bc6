"""Which node should own which shard. Pure, and never more than a preference: what counts is the
record of the lease, see `cluster/ownership.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from queuelake.broker.node.roster import OWNER, Report

FIT: Final = (OWNER, "replica")

# How many positions a node may be behind the furthest and still be as good an heir.
CLOSE: Final = 1_000
# How long a node waits for each which is a better place, when an owner is gone, and when there was
# none: then nobody is without service, and the others may have just begun to look.
GIVE_WAY_S: Final = 0.3
GIVE_WAY_AT_FIRST_S: Final = 2.0


def able(reports: Iterable[Report]) -> list[Report]:
    """The nodes which do not own a shard and could."""
    return [one for one in reports if one.role == "replica" and not one.draining]


def fit(reports: Iterable[Report]) -> list[str]:
    """The nodes which own a shard or could."""
    return [one.node for one in reports if one.role in FIT and not one.draining]


def best_heir(others: Sequence[Report], load: Callable[[str], int]) -> str:
    """Of those which have most of the log, the one which owns fewest shards; empty: none."""
    furthest = max([one.position for one in others], default=0)
    close = [one for one in others if one.position > furthest - CLOSE]
    if not close:
        return ""
    return min(close, key=lambda one: (load(one.node), -one.position)).node


def give_way_s(shard: int, node: str, others: Iterable[str], former: str) -> float:
    """Each shard has another node which goes first, so those of a lost node go to all others."""
    names = sorted({*others, node} - {former})
    rank = (names.index(node) - shard) % len(names) if node in names else 0
    return rank * (GIVE_WAY_S if former else GIVE_WAY_AT_FIRST_S)


def moves(owners: Sequence[str], nodes: Iterable[str]) -> list[tuple[int, str]]:
    """Shards and their next owners, the fewest after which these nodes own equally many.

    `owners` are by shard, "" for nobody: that shard finds an owner without us.
    """
    owned: dict[str, list[int]] = {node: [] for node in nodes}
    stray: list[int] = []  # owned by a node which shall have none
    for shard, owner in enumerate(owners):
        if owner:
            owned.get(owner, stray).append(shard)
    moved: list[tuple[int, str]] = []
    if not owned:
        return moved
    while True:
        least = min(owned, key=lambda node: (len(owned[node]), node))
        most = max(owned.values(), key=len)
        if not stray and len(most) - len(owned[least]) < 2:
            return moved
        shard = (stray or most).pop()
        owned[least].append(shard)
        moved.append((shard, least))
