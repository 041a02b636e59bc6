"""Nodes and servers of a cluster under load are killed and stopped: nothing confirmed is lost.

After each fault the same must be true: every confirmed message was delivered, in order, and the
stores of all nodes are equal.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.cluster.faults import CONFIG, Load, broken
from tests.crash.queue_clients import SERVER_UNAVAILABLE
from tests.crash.test_store_failures import writes_fail
from tests.harness.cluster import Cluster
from tests.harness.packets import connect

LEASE_S = 2.0
STREAM = "QL_queuelake_0"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"cluster.lease": f"{LEASE_S:g}s"}
    with Cluster(tmp_path_factory.mktemp("faults"), settings, config=CONFIG) as running:
        yield running


@pytest.fixture
def load(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Load]:
    """Whatever a test does to the cluster, in the end everything is accounted for."""
    load = Load(cluster, request.node.name.removeprefix("test_")).start()
    yield load
    cluster.mend()
    assert load.finish() == []
    cluster.wait_until_equal()


def report(outage_s: float) -> None:
    print(f"{outage_s:.1f} s without service")


def test_the_process_of_the_owner_is_killed(cluster: Cluster, load: Load) -> None:
    owner = cluster.wait_for_owner()
    report(broken(load, lambda: cluster.kill_node(owner)))
    assert cluster.wait_for_owner() != owner


def test_a_follower_stands_still_and_goes_on(cluster: Cluster, load: Load) -> None:
    follower = (cluster.wait_for_owner() + 1) % 3
    report(broken(load, lambda: cluster.pause_node(follower)))


def test_the_owner_stands_still_longer_than_its_lease(cluster: Cluster, load: Load) -> None:
    owner = cluster.wait_for_owner()
    report(broken(load, lambda: cluster.pause_node(owner)))
    cluster.wait_for_owner(other_than=owner)
    before = time.monotonic()
    cluster.resume_node(owner)
    load.wait_until_confirmed(before)
    assert cluster.wait_for_owner() != owner
    assert roles(cluster)[f"q{owner}"] == "replica"


def test_the_server_which_leads_the_log_is_killed(cluster: Cluster, load: Load) -> None:
    leader = cluster.servers.leader(STREAM)
    report(broken(load, lambda: cluster.servers.kill(leader)))


def test_the_machine_of_the_owner_is_lost(cluster: Cluster, load: Load) -> None:
    owner = cluster.wait_for_owner()
    report(broken(load, lambda: cluster.kill_machine(owner)))


def test_everything_is_killed_and_started_again(cluster: Cluster, load: Load) -> None:
    def restart() -> None:
        for index in range(3):
            cluster.kill_machine(index)
        cluster.mend()

    report(broken(load, restart))


def test_without_a_majority_nothing_is_confirmed_and_clients_are_told(
    cluster: Cluster, load: Load
) -> None:
    lost = [index for index in range(3) if index != cluster.wait_for_owner()]
    for index in lost:
        cluster.servers.kill(index)
    since = time.monotonic()
    node = lost[0]
    no_owner = "cluster: there is no owner at the moment"
    cluster.eventually(lambda: no_owner in cluster.readiness(node).reasons, "it is ready")
    client = cluster.nodes[node].client()
    client.send(connect("nobody"))
    assert client.receive(timeout=20).reason_code == SERVER_UNAVAILABLE
    client.close()
    assert all(one.sent_at < since + LEASE_S for one in load.confirmed)
    cluster.mend()
    load.wait_until_confirmed(since + LEASE_S)
    report(load.outage_s(since))


def test_the_disk_of_the_owner_fails(cluster: Cluster, load: Load) -> None:
    owner = cluster.wait_for_owner()
    with writes_fail(cluster.nodes[owner]):
        report(broken(load, lambda: cluster.wait_for_owner(other_than=owner)))
        cluster.eventually(lambda: roles(cluster)[f"q{owner}"] == "stuck", "it is not stuck")
    cluster.eventually(lambda: roles(cluster)[f"q{owner}"] == "replica", "it does not go on")


def roles(cluster: Cluster) -> dict[str, str]:
    """As the owner hears of them."""
    owner = cluster.wait_for_owner()
    return {member.node: member.role for member in cluster.info(owner).members}
