"""A replica which was served alone has a history of its own."""

from __future__ import annotations

import pytest

from queuelake.cluster.founding import Behind, ForeignStoreError, leave_cluster
from tests.cluster.nodes import Node
from tests.cluster.scripted_log import ScriptedLog


async def replicas(log: ScriptedLog) -> tuple[Node, Node]:
    owner, other = Node(log), Node(log, name="b")
    assert await owner.own(1)
    assert await owner.commit(b"row") == ""
    await other.follower.catch_up()
    return owner, other


async def test_a_replica_which_was_served_alone_does_not_follow_again() -> None:
    log = ScriptedLog()
    _, other = await replicas(log)
    leave_cluster(other.store)
    again = Node(log, other.store)
    with pytest.raises(ForeignStoreError):
        await again.follower.catch_up()
    assert again.rows == [b"row"]


async def test_it_may_begin_another_cluster_with_what_it_has() -> None:
    _, other = await replicas(ScriptedLog())
    leave_cluster(other.store)
    second = ScriptedLog()
    founder = Node(second, other.store)
    assert await founder.own(1)
    assert founder.position.position > 0
    with pytest.raises(Behind):  # it has to copy
        await Node(second, name="c").follower.catch_up()


async def test_a_store_which_was_never_part_of_one_stays_as_it_is() -> None:
    node = Node(ScriptedLog())
    before = node.hash
    leave_cluster(node.store)
    assert node.hash == before
