"""What the members of one node know of their shards, as one picture of the cluster. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import cast

from queuelake.broker.node.roster import ALIVE_S, OWNER, Report
from queuelake.control_cluster import Checked, CheckedShard, MemberInfo, Role

# What is said of a node with several shards, the first which is so of one of them.
ROLES = ("stuck", "copying", OWNER, "replica")

Heard = list[tuple[Report, float]]  # each node, and how long ago in seconds


def members(heard: Sequence[Heard]) -> list[MemberInfo]:
    """All nodes, by name; `heard` is by shard. Positions are of all logs together."""
    furthest = [max([report.position for report, _ in one], default=0) for one in heard]
    by_node: dict[str, list[tuple[int, Report, float]]] = {}
    for shard, one in enumerate(heard):
        for report, ago_s in one:
            by_node.setdefault(report.node, []).append((shard, report, ago_s))
    return [
        _member(by_node[node], furthest, is_one_of_several=len(heard) > 1)
        for node in sorted(by_node)
    ]


def _member(
    told: list[tuple[int, Report, float]], furthest: list[int], is_one_of_several: bool
) -> MemberInfo:
    reports = [report for _, report, _ in told]
    latest = reports[0]
    ago_s = min([ago_s for _, _, ago_s in told])
    problems = [
        f"shard {shard}: {report.problem}" if is_one_of_several else report.problem
        for shard, report, _ in told
        if report.problem
    ]
    return MemberInfo(
        latest.node,
        cast(Role, min([report.role for report in reports], key=ROLES.index)),
        ago_s < ALIVE_S,
        round(ago_s, 3),
        sum([report.position for report in reports]),
        sum([furthest[shard] - report.position for shard, report, _ in told]),
        sum([report.synced for report in reports]),
        latest.version,
        latest.addresses,
        latest.draining,
        "; ".join(problems),
        [shard for shard, report, _ in told if report.role == OWNER],
    )


def checked(found: Sequence[Checked]) -> Checked:
    """The result of a whole cluster from those of its shards."""
    if len(found) == 1:
        return found[0]
    answered = set.intersection(*[set(one.hashes) for one in found])
    return Checked(
        sum([one.position for one in found]),
        all([one.equal for one in found]),
        {node: _digest([one.hashes[node] for one in found]) for node in sorted(answered)},
        sorted({node for one in found for node in one.missing}),
        [
            CheckedShard(shard, one.position, one.equal, one.hashes, one.missing)
            for shard, one in enumerate(found)
        ],
    )


def _digest(hashes: list[str]) -> str:
    return hashlib.blake2b("".join(hashes).encode(), digest_size=16).hexdigest()
