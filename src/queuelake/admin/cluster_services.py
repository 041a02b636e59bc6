"""The cluster: the part of `Services` which a single node answers with 404."""

from __future__ import annotations

from typing import Final

from queuelake import control_cluster as ops
from queuelake.control_client import ControlClient
from queuelake.control_cluster import Checked, ClusterInfo, Drained, Rebalanced, Transferred

# Each more than the node takes at most.
TRANSFER_TIMEOUT_S: Final = 40.0
REBALANCE_TIMEOUT_S: Final = 40.0
DRAIN_TIMEOUT_S: Final = 40.0
CHECK_TIMEOUT_S: Final = 55.0


class ClusterServices:
    _control: ControlClient

    async def cluster(self) -> ClusterInfo:
        """As the node knows it which is asked."""
        return await self._control.call(ops.CLUSTER, ClusterInfo)

    async def transfer_ownership(self, node: str, shard: int | None = None) -> Transferred:
        """Make this node the owner, or the furthest one when it has no name. The shard has to be
        named when there are several."""
        args: dict[str, object] = {"node": node, "shard": shard}
        return await self._control.call(ops.CLUSTER_TRANSFER, Transferred, args, TRANSFER_TIMEOUT_S)

    async def rebalance_cluster(self) -> Rebalanced:
        return await self._control.call(ops.CLUSTER_REBALANCE, Rebalanced, {}, REBALANCE_TIMEOUT_S)

    async def drain_node(self, draining: bool) -> Drained:
        """Let the node which is asked not be the owner, or let it again."""
        args: dict[str, object] = {"draining": draining}
        return await self._control.call(ops.CLUSTER_DRAIN, Drained, args, DRAIN_TIMEOUT_S)

    async def remove_node(self, node: str) -> None:
        """Forget a node which will not come back."""
        await self._control.call(ops.CLUSTER_REMOVE, object, {"node": node})

    async def check_cluster(self) -> Checked:
        """Compare the stores of all nodes."""
        return await self._control.call(ops.CLUSTER_CHECK, Checked, {}, CHECK_TIMEOUT_S)
