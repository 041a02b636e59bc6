"""Three real nodes with three real NATS servers: clients anywhere, the owner lost and found."""

from __future__ import annotations

import pytest

from queuelake import control_cluster as ops
from queuelake.control_cluster import Transferred
from tests.cluster.conftest import ConnectTo
from tests.harness.cluster import Cluster
from tests.queues.client import SUCCESS

KEPT = {"session_expiry_interval": 300}


def test_a_queue_is_published_to_and_consumed_from_at_any_node(connect_to: ConnectTo) -> None:
    worker = connect_to(2)
    assert worker.subscribe("anywhere") < 0x80
    for node in range(3):
        publisher = connect_to(node)
        assert publisher.publish("anywhere", f"from {node}") == SUCCESS
    received = worker.receive_and_ack(3)
    assert sorted(one.payload for one in received) == ["from 0", "from 1", "from 2"]


def test_plain_messages_and_retained_ones_reach_every_node(connect_to: ConnectTo) -> None:
    subscribers = [connect_to(node) for node in range(3)]
    for one in subscribers:
        one.wire.subscribe("weather/+", qos=1)
    assert connect_to(1).publish_topic("weather/today", "rain") == SUCCESS
    assert [one.wire.expect_publish().payload for one in subscribers] == [b"rain"] * 3
    keeper = connect_to(0)
    keeper.wire.publish("place/of/work", "here", qos=1, retain=True)
    late = connect_to(2)
    late.wire.subscribe("place/#", qos=1)
    assert late.wire.expect_publish().payload == b"here"


def test_a_shared_subscription_has_members_at_several_nodes(connect_to: ConnectTo) -> None:
    members = [connect_to(node) for node in range(3)]
    for one in members:
        one.wire.subscribe("$share/crew/errands/#", qos=1)
    publisher = connect_to(0)
    for number in range(9):
        assert publisher.publish_topic(f"errands/{number}", str(number)) == SUCCESS
    counts = [len(one.drain(0.5)) for one in members]
    assert sum(counts) == 9
    assert all(counts), counts


def test_a_session_is_resumed_at_another_node_and_taken_over(connect_to: ConnectTo) -> None:
    first = connect_to(0, "traveller", clean=False, properties=KEPT)
    first.wire.subscribe("mail/traveller", qos=1)
    first.disconnect()
    assert connect_to(1).publish_topic("mail/traveller", "letter") == SUCCESS
    second = connect_to(1, "traveller", clean=False, properties=KEPT)
    assert second.wire.expect_publish().payload == b"letter"
    connect_to(2, "traveller", clean=False, properties=KEPT)
    second.wire.read_to_close()  # told that its session was taken over


def test_a_will_is_heard_at_another_node(connect_to: ConnectTo) -> None:
    from tests.harness.packets import Will

    mourner = connect_to(1)
    mourner.wire.subscribe("last/words", qos=1)
    dying = connect_to(2, will=Will("last/words", b"farewell", qos=1))
    dying.abort()
    assert mourner.wire.expect_publish(timeout=15).payload == b"farewell"


def test_the_owner_is_handed_on_and_nothing_is_lost(
    cluster: Cluster, connect_to: ConnectTo
) -> None:
    before = cluster.owner()
    publisher = connect_to(0)
    for number in range(20):
        assert publisher.publish("handed", str(number)) == SUCCESS
    heir = (before + 1) % 3
    moved = cluster.ask(before, ops.CLUSTER_TRANSFER, Transferred, node=f"q{heir}")
    assert moved.owner == f"q{heir}"
    assert cluster.wait_for_owner() == heir
    worker = connect_to(before)
    worker.subscribe("handed")
    assert sorted(int(one.payload) for one in worker.receive_and_ack(20)) == list(range(20))
    cluster.wait_until_equal()


def test_the_owner_is_killed_and_nothing_confirmed_is_lost(
    cluster: Cluster, connect_to: ConnectTo
) -> None:
    owner = cluster.wait_for_owner()
    publisher = connect_to((owner + 1) % 3)
    for number in range(50):
        assert publisher.publish("killed", str(number)) == SUCCESS
    cluster.kill_node(owner)
    after = cluster.wait_for_owner(other_than=owner)
    worker = connect_to(after)
    worker.subscribe("killed")
    assert sorted(int(one.payload) for one in worker.receive_and_ack(50)) == list(range(50))
    cluster.nodes[owner].start()
    cluster.wait_until_equal()


@pytest.mark.rule("Q14")
def test_the_first_client_reaches_an_owner_which_was_started_again(
    cluster: Cluster, connect_to: ConnectTo
) -> None:
    owner = cluster.wait_for_owner()
    others = [(owner + step) % 3 for step in (1, 2)]
    for node in others:
        connect_to(node)  # so it knows the process which is killed
    cluster.kill_node(owner)
    heir = cluster.wait_for_owner(other_than=owner)
    cluster.start_nodes([owner])
    cluster.wait_until_met(owner)  # it has greeted them
    cluster.wait_until_met(heir)
    cluster.ask(heir, ops.CLUSTER_TRANSFER, Transferred, node=f"q{owner}")
    cluster.wait_for_owner(other_than=heir)
    for node in others:
        assert connect_to(node).publish("first", "x") == SUCCESS


def test_payloads_reach_consumers_at_every_node_however_large(connect_to: ConnectTo) -> None:
    workers = [connect_to(node) for node in range(3)]
    assert workers[0].configure("large", type="quorum") == SUCCESS
    for worker in workers:
        assert worker.subscribe("large", prefetch="2") < 0x80
    payloads = [str(number) * 300_000 for number in range(6)]  # each more than a chunk
    workers[0].publish_each("large", *payloads)
    received = [[one.payload for one in worker.receive_and_ack(2)] for worker in workers]
    assert all(pair == sorted(pair) for pair in received)
    assert sorted(one for pair in received for one in pair) == payloads


@pytest.mark.rule("Q8", "Q18", "section 18")
def test_a_quorum_queue_outlives_its_owner(cluster: Cluster, connect_to: ConnectTo) -> None:
    owner = cluster.wait_for_owner()
    publisher = connect_to((owner + 1) % 3)
    assert publisher.configure("strict", type="quorum") == SUCCESS
    for number in range(20):
        assert publisher.publish("strict", str(number)) == SUCCESS
    cluster.kill_node(owner)
    after = cluster.wait_for_owner(other_than=owner)
    worker = connect_to(after)
    assert worker.subscribe("strict") < 0x80
    assert [int(one.payload) for one in worker.receive_and_ack(20)] == list(range(20))
    cluster.nodes[owner].start()
    cluster.wait_until_equal()


def test_a_node_which_lost_its_disk_copies_the_store(
    cluster: Cluster, connect_to: ConnectTo
) -> None:
    assert connect_to(0).publish("copied", "there") == SUCCESS
    owner = cluster.wait_for_owner()
    empty = cluster.nodes[(owner + 1) % 3]
    empty.stop()
    for path in (empty.data_dir / "store").iterdir():
        path.unlink()
    empty.start()
    cluster.wait_until_equal()


@pytest.mark.rule("section 12")
def test_a_fourth_node_joins_follows_and_can_be_the_owner(
    cluster: Cluster, connect_to: ConnectTo
) -> None:
    publisher = connect_to(0)
    assert publisher.configure("grown", type="quorum") == SUCCESS
    assert publisher.publish("grown", "before") == SUCCESS
    fourth = cluster.add_node()
    cluster.wait_until_equal()
    assert publisher.publish("grown", "after") == SUCCESS
    owner = cluster.wait_for_owner()
    cluster.ask(owner, ops.CLUSTER_TRANSFER, Transferred, node=f"q{fourth}")
    assert cluster.wait_for_owner() == fourth
    worker = connect_to(fourth)
    assert worker.subscribe("grown") < 0x80
    assert [one.payload for one in worker.receive_and_ack(2)] == ["before", "after"]
    cluster.eventually(
        lambda: {one.lag for one in cluster.info(0).members} == {0}, "a node stays behind"
    )
