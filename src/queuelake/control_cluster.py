"""What may be asked of a node of a cluster, over the control socket and over REST."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

CLUSTER: Final = "cluster"
CLUSTER_TRANSFER: Final = "cluster_transfer"
CLUSTER_REBALANCE: Final = "cluster_rebalance"
CLUSTER_DRAIN: Final = "cluster_drain"
CLUSTER_REMOVE: Final = "cluster_remove"
CLUSTER_CHECK: Final = "cluster_check"
OPERATIONS: Final = (
    *(CLUSTER, CLUSTER_TRANSFER, CLUSTER_REBALANCE),
    *(CLUSTER_DRAIN, CLUSTER_REMOVE, CLUSTER_CHECK),
)

Role = Literal["owner", "replica", "copying", "stuck"]


class MemberInfo(Struct, frozen=True):
    """One node, as the node which was asked knows it."""

    node: str
    role: Annotated[Role, Meta(description="what it said last")]
    alive: bool
    heard_s: Annotated[float, Meta(description="how long ago it was heard")]
    position: Annotated[int, Meta(description="how far it has applied the log")]
    lag: Annotated[int, Meta(description="positions behind the furthest node")]
    synced: Annotated[int, Meta(description="what it keeps whatever happens to its machine")]
    version: str
    addresses: list[str]
    draining: Annotated[bool, Meta(description="it does not become the owner")] = False
    problem: str = ""
    owns: Annotated[list[int], Meta(description="the shards whose owner it is")] = []


class ShardInfo(Struct, frozen=True):
    shard: int
    owner: Annotated[str, Meta(description="empty: nobody at the moment")]
    epoch: int
    lease_age_s: Annotated[float, Meta(description="since its owner was heard of")]
    log_first: int
    log_last: int
    log_bytes: int


class ClusterInfo(Struct, frozen=True):
    name: str
    node: Annotated[str, Meta(description="the one which answers")]
    connected: Annotated[bool, Meta(description="with NATS")]
    members: list[MemberInfo]
    shards: list[ShardInfo]


class MemberList(Struct, frozen=True):
    members: list[MemberInfo]


class ShardList(Struct, frozen=True):
    shards: list[ShardInfo]


class TransferWanted(Struct, frozen=True, forbid_unknown_fields=True):
    node: Annotated[str, Meta(description="the next owner; empty: whoever is furthest")] = ""
    shard: Annotated[int | None, Meta(description="needed when there are several")] = None


class DrainWanted(Struct, frozen=True, forbid_unknown_fields=True):
    draining: Annotated[bool, Meta(description="false: it may be the owner again")] = True


class Transferred(Struct, frozen=True):
    shard: int
    owner: Annotated[str, Meta(description="who has it now")]


class Rebalanced(Struct, frozen=True):
    moved: Annotated[list[Transferred], Meta(description="empty: there was nothing to move")]


class Drained(Struct, frozen=True):
    node: str
    draining: bool


class CheckedShard(Struct, frozen=True):
    """The hashes of all replicas at one position of the log of a shard."""

    shard: int
    position: int
    equal: bool
    hashes: Annotated[dict[str, str], Meta(description="by node")]
    missing: Annotated[list[str], Meta(description="nodes which are alive and did not answer")]


class Checked(Struct, frozen=True, omit_defaults=True):
    """The hashes of all replicas at one position of the log, or at one of each log."""

    position: Annotated[int, Meta(description="of several shards, the sum")]
    equal: bool
    hashes: Annotated[dict[str, str], Meta(description="by node")]
    missing: Annotated[list[str], Meta(description="nodes which are alive and did not answer")]
    shards: Annotated[list[CheckedShard], Meta(description="empty: there is one shard")] = []


class ClusterFigures(Struct, frozen=True):
    """For the metrics of a node, about one shard."""

    shard: int = 0
    is_owner: bool = False
    epoch: int = 0
    position: int = 0
    lag_by_node: dict[str, int] = {}
    lease_age_s: float = 0.0
    failovers: Annotated[int, Meta(description="times this node became the owner")] = 0
    fenced: Annotated[int, Meta(description="times it was the owner and lost that")] = 0
    copies: Annotated[int, Meta(description="stores copied from another node")] = 0
