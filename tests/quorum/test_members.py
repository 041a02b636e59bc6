"""A quorum queue has one member or several: the same code commits the same groups.

On one node a group is a transaction of the store. In a cluster the same group is an entry of the
log first, and then the same transaction at each member. So what one node wrote alone, appended to a
log, has to make every member the node it came from.
"""

from __future__ import annotations

import pytest

from queuelake.cluster.replica import POSITION_KEY
from queuelake.engine.quorum.snapshot import state_hash
from queuelake.storage.api import META, Batch
from queuelake.storage.batch_codec import decode_batch, encode_batch
from queuelake.storage.memory import MemoryStore
from tests.cluster.nodes import Node
from tests.cluster.scripted_log import ScriptedLog
from tests.harness import packets as p
from tests.queues.node import QueueNode
from tests.queues.test_quorum_rules import QUORUM, deliveries, settle


class Written(MemoryStore):
    """Remembers the groups which were committed, as a log would have them."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[bytes] = []

    def commit(self, batch: Batch) -> None:
        self.groups.append(encode_batch(batch))
        super().commit(batch)


class Alone(QueueNode):
    """A node without a cluster."""

    groups: list[bytes]

    def _start(self) -> None:
        written = Written()
        written.tables = self.store.tables
        self.store = written
        self.groups = written.groups
        super()._start()


def worked() -> Alone:
    """A queue in which a message of every kind is left."""
    node = Alone()
    node.make("q", **QUORUM, delivery_limit=2)
    consumer = node.consumer("q", None, ack_mode="publish", prefetch="6")
    for number in range(12):
        node.publish("q", str(number), user={"priority": str(number % 3)})
    taken = deliveries(consumer)
    settle(node, consumer, taken[0], "ack")
    settle(node, consumer, taken[1], "nack", **{"delivery-failed": "true"})
    settle(node, consumer, taken[2], "nack", **{"delay-ms": "60000"})
    settle(node, consumer, taken[3], "reject")
    return node


async def member_of(log: ScriptedLog, groups: list[bytes]) -> tuple[Node, Node]:
    """The owner commits these groups to the log; another member follows."""
    owner, follower = Node(log), Node(log, name="b")
    assert await owner.own(1)
    for group in groups:
        assert await owner.submit(decode_batch(group)) == ""
    await follower.follower.catch_up()
    return owner, follower


def queue_hash(node: QueueNode) -> bytes:
    host = node.broker.queues.quorum.find("q")
    assert host is not None
    return state_hash(host.machine)


def woken_from(store: object, like: QueueNode) -> QueueNode:
    """A broker which has taken over this store, at the same time."""
    assert isinstance(store, MemoryStore)
    node = QueueNode()
    node.store.tables = [dict(table) for table in store.tables]
    node.store.tables[META].pop(POSITION_KEY)
    node.loop.now_ns = like.loop.now_ns
    node.crash()
    return node


@pytest.mark.rule("Q4", "Q2")
async def test_what_one_member_committed_makes_several_members_the_same() -> None:
    alone = worked()
    owner, follower = await member_of(ScriptedLog(), alone.groups)
    assert owner.hash == follower.hash
    after_a_crash, after_a_failover = (
        woken_from(owner.store, alone),
        woken_from(follower.store, alone),
    )
    alone.crash()
    assert queue_hash(after_a_crash) == queue_hash(after_a_failover) == queue_hash(alone)
    assert after_a_failover.drain("q") == alone.drain("q")


@pytest.mark.rule("Q4")
async def test_a_group_is_one_entry_of_the_log_and_its_confirmations_wait_for_it() -> None:
    alone = Alone()
    alone.make("q", **QUORUM)
    writer = alone.client("writer")
    alone.work()
    before = len(alone.groups)
    for number in range(1, 21):
        packet = p.publish("$queue/q", b"x", qos=1, packet_id=number)
        writer.transport.send(packet)
    alone.loop.run_until_idle()
    assert not writer.take_all()  # nothing is confirmed which is not committed
    alone.work()
    assert len([one for one in writer.take_all() if one.type == p.PUBACK]) == 20
    groups = len(alone.groups) - before
    assert groups <= 2
    log = ScriptedLog()
    await member_of(log, alone.groups)
    assert log.last == 1 + len(alone.groups)  # behind the beginning of its epoch
