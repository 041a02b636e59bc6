"""The machine of an owner is cut off from the others, with its NATS server and its clients.

The others go on without it. It confirms nothing any more, tells its clients that there is no owner,
and is a replica again when it is back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.cluster.faults import CONFIG, Load
from tests.crash.queue_clients import SERVER_UNAVAILABLE
from tests.harness.cluster import Cluster
from tests.harness.machines import Machines, why_not
from tests.harness.packets import connect

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

SETTINGS = {"cluster.lease": "2s", "auth.allow_anonymous": True}


@pytest.fixture
def machines() -> Iterator[Machines]:
    with Machines(3) as made:
        yield made


@pytest.fixture
def cluster(machines: Machines, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("partitions")
    with Cluster(directory, SETTINGS, config=CONFIG, machines=machines) as running:
        yield running


def test_the_machine_of_the_owner_is_cut_off_and_comes_back(
    machines: Machines, cluster: Cluster
) -> None:
    owner = cluster.wait_for_owner()
    load = Load(cluster, "cut").start()
    since = time.monotonic()
    machines.cut(owner)
    others = [index for index in range(3) if index != owner]
    cluster.eventually(lambda: cluster.owner(others) in others, "the others have no owner")
    no_owner = "cluster: there is no owner at the moment"
    cluster.eventually(lambda: no_owner in cluster.readiness(owner).reasons, "it is ready")
    load.wait_until_confirmed(time.monotonic())
    print(f"{load.outage_s(since):.1f} s without service")
    client = cluster.nodes[owner].client()
    client.send(connect("nobody"))
    assert client.receive(timeout=20).reason_code == SERVER_UNAVAILABLE
    client.close()
    cluster.mend()
    assert cluster.wait_for_owner() != owner
    assert load.finish() == []
    cluster.wait_until_equal()
