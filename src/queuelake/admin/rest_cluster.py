"""REST of a cluster: everybody reads, an admin changes, see auth.py; 404 on a single node."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Path, Request
from starlette.responses import Response

from queuelake.admin.answers import answer
from queuelake.admin.bodies import read_body, read_struct, takes
from queuelake.admin.openapi import returns
from queuelake.admin.paths import SEGMENT
from queuelake.admin.services import Services
from queuelake.control_cluster import (
    Checked,
    ClusterInfo,
    Drained,
    DrainWanted,
    MemberList,
    Rebalanced,
    ShardList,
    Transferred,
    TransferWanted,
)

CLUSTER_PATH = "/api/v1/cluster"
BODY_BYTES_MAX = 4096
TAGS: list[Any] = ["cluster"]

Node = Annotated[str, Path(min_length=1, description="The name of the node.")]


def add_cluster_routes(app: FastAPI, services: Services) -> None:
    _add_reading(app, services)
    _add_changing(app, services)


def _add_reading(app: FastAPI, services: Services) -> None:
    @app.get(CLUSTER_PATH, tags=TAGS, responses=returns(ClusterInfo))
    async def cluster() -> Response:
        """Members and shards, as the node knows them which is asked."""
        return answer(await services.cluster())

    @app.get(f"{CLUSTER_PATH}/members", tags=TAGS, responses=returns(MemberList))
    async def members() -> Response:
        """The nodes, by name: their roles, and how far each has applied the log."""
        return answer(MemberList((await services.cluster()).members))

    @app.get(f"{CLUSTER_PATH}/shards", tags=TAGS, responses=returns(ShardList))
    async def shards() -> Response:
        """The shards: their owners, and the ends of their logs."""
        return answer(ShardList((await services.cluster()).shards))


def _add_changing(app: FastAPI, services: Services) -> None:
    @app.post(
        f"{CLUSTER_PATH}/transfer",
        tags=TAGS,
        responses=returns(Transferred),
        openapi_extra=takes(TransferWanted, required=False),
    )
    async def transfer(request: Request) -> Response:
        """Make another node the owner, of one shard; answered when it is. Clients connect again."""
        body = await read_body(request, BODY_BYTES_MAX)
        wanted = read_struct(body, TransferWanted) if body else TransferWanted()
        return answer(await services.transfer_ownership(wanted.node, wanted.shard))

    @app.post(f"{CLUSTER_PATH}/rebalance", tags=TAGS, responses=returns(Rebalanced))
    async def rebalance() -> Response:
        """Move shards so that all nodes own equally many; of one there is nothing to move."""
        return answer(await services.rebalance_cluster())

    @app.post(
        f"{CLUSTER_PATH}/drain",
        tags=TAGS,
        responses=returns(Drained),
        openapi_extra=takes(DrainWanted, required=False),
    )
    async def drain(request: Request) -> Response:
        """Let the node which is asked hand on what it owns and not be the owner until it is
        started again, or until `draining` is false."""
        body = await read_body(request, BODY_BYTES_MAX)
        wanted = read_struct(body, DrainWanted) if body else DrainWanted()
        return answer(await services.drain_node(wanted.draining))

    @app.delete(f"{CLUSTER_PATH}/members/{{node:{SEGMENT}}}", tags=TAGS, status_code=204)
    async def remove(node: Node) -> Response:
        """Forget a node which will not come back; 409 while it is heard."""
        await services.remove_node(node)
        return Response(status_code=204)

    @app.post(f"{CLUSTER_PATH}/check", tags=TAGS, responses=returns(Checked))
    async def check() -> Response:
        """Compare the stores of all nodes at one position of the log."""
        return answer(await services.check_cluster())
