"""Three real nodes which share three shards: who owns which, and what operators do about it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from queuelake import control_cluster as ops
from queuelake.cli import main as cli
from queuelake.control_cluster import Drained, Rebalanced, Transferred
from queuelake.errors import QueuelakeError
from tests.api.queue_rest import Rest
from tests.cluster.faults import Load, queue_of
from tests.console.browser import Console, launched
from tests.harness.broker import BrokerError, BrokerProcess
from tests.harness.cluster import Cluster

SHARDS = 3
SOON_S = 5.0  # after the owner's process is gone

Run = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"http.enabled": True, "grpc.enabled": False, "flight.enabled": False}
    directory = tmp_path_factory.mktemp("shards")
    with Cluster(directory, settings | {"cluster.shards": SHARDS}) as running:
        running.wait_for_owners()
        yield running


@pytest.fixture
def run(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """What a command about a node prints; it ends with `code`."""

    def run_command(node: int, *arguments: str, code: int = 0) -> str:
        monkeypatch.setenv("QUEUELAKE__DATA_DIR", str(cluster.nodes[node].data_dir))
        done = cli.run(["cluster", *arguments])
        captured = capsys.readouterr()
        assert done == code, captured
        return captured.out + captured.err

    return run_command


def is_spread(owners: list[int]) -> bool:
    return max(Counter(owners).values()) == 1


def spread(cluster: Cluster) -> list[int]:
    """Each node owns a shard: whose, by shard."""
    for node in cluster.alive():
        cluster.wait_until_met(node)
    cluster.wait_for_owners()
    cluster.ask(0, ops.CLUSTER_REBALANCE, Rebalanced)
    return cluster.wait_for_owners(is_spread)


def epoch(cluster: Cluster, shard: int) -> int:
    """As its owner says, who knows."""
    owner = cluster.wait_for_owners()[shard]
    return cluster.info(owner).shards[shard].epoch


def test_nodes_which_begin_a_cluster_together_share_its_shards(cluster: Cluster) -> None:
    assert is_spread(cluster.wait_for_owners())


def test_every_node_tells_who_owns_what(cluster: Cluster, run: Run) -> None:
    owners = spread(cluster)
    for node in range(3):
        found = cluster.info(node)
        assert {one.node: one.owns for one in found.members} == {
            f"q{owner}": [shard] for shard, owner in enumerate(owners)
        }
        assert cluster.readiness(node).ready
        assert f"asked at q{node}; 3 shards\n" in run(node, "status")
    shards = json.loads(run(0, "shards", "--json"))
    assert [one["owner"] for one in shards] == [f"q{owner}" for owner in owners]
    samples = Rest(cluster.nodes[0]).samples()
    assert [samples[("queuelake_cluster_owner", str(shard))] for shard in range(SHARDS)] == [
        float(owner == 0) for owner in owners
    ]
    assert ("queuelake_cluster_lag", "q2", "1") in samples


def test_one_shard_is_given_to_another_node(cluster: Cluster, run: Run) -> None:
    owners = spread(cluster)
    heir = owners[2]
    before = epoch(cluster, 1)
    told = run(owners[0], "transfer", f"q{heir}", "--shard", "1", "--yes")
    assert told == f"shard 1 is owned by q{heir}\n"
    assert cluster.wait_for_owners(lambda found: found[1] == heir) == [owners[0], heir, heir]
    assert epoch(cluster, 1) > before
    assert "shard is None, may be 0 to 2" in run(0, "transfer", f"q{heir}", "--yes", code=1)
    assert "shard is 3, may be 0 to 2" in run(0, "transfer", "--shard", "3", "--yes", code=1)
    assert run(heir, "rebalance").endswith(f"is owned by q{owners[1]}\n")
    cluster.wait_for_owners(is_spread)
    assert run(0, "rebalance") == "nothing to move\n"


@pytest.fixture
def load(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Load]:
    """On a queue of the first shard; whatever a test does, nothing that was confirmed is lost."""
    load = Load(cluster, queue_of(0, SHARDS, request.node.name)).start()
    yield load
    assert load.finish() == []


def test_the_shards_of_a_lost_node_find_owners_and_others_are_not_disturbed(
    cluster: Cluster, load: Load
) -> None:
    lost, other = spread(cluster)[1:]
    cluster.ask(lost, ops.CLUSTER_TRANSFER, Transferred, shard=0, node=f"q{lost}")
    cluster.wait_for_owners(lambda found: found == [lost, lost, other])
    before = epoch(cluster, 2)
    cluster.kill_node(lost)
    killed_s = time.monotonic()
    after = cluster.wait_for_owners(lambda found: lost not in found)
    assert time.monotonic() - killed_s < SOON_S
    assert after[0] != after[1]  # what it had is spread
    assert (after[2], epoch(cluster, 2)) == (other, before)
    cluster.nodes[lost].start()
    spread(cluster)
    checked = cluster.wait_until_equal()
    assert [one.shard for one in checked.shards] == list(range(SHARDS))
    assert all(one.equal and len(one.hashes) == 3 for one in checked.shards)


def test_a_drained_node_owns_no_shard_until_that_ends(cluster: Cluster) -> None:
    drained = spread(cluster)[0]
    assert cluster.ask(drained, ops.CLUSTER_DRAIN, Drained).draining
    owners = cluster.wait_for_owners(lambda found: drained not in found)
    reasons = cluster.readiness(drained).reasons
    assert reasons == ["cluster: this node is being drained"]
    assert cluster.ask(drained, ops.CLUSTER_REBALANCE, Rebalanced).moved == []
    with pytest.raises(QueuelakeError, match="is draining: it cannot become the owner"):
        cluster.ask(owners[0], ops.CLUSTER_TRANSFER, Transferred, shard=0, node=f"q{drained}")
    assert not cluster.ask(drained, ops.CLUSTER_DRAIN, Drained, draining=False).draining
    cluster.eventually(lambda: cluster.readiness(drained).ready, "it is not ready again")
    spread(cluster)


def test_nodes_are_restarted_one_by_one_and_all_stores_stay_equal(
    cluster: Cluster, load: Load, run: Run
) -> None:
    spread(cluster)
    for node in range(3):
        cluster.nodes[node].stop()
        others = [other for other in range(3) if other != node]
        owners = cluster.wait_for_owners(lambda found, gone=node: gone not in found)  # type: ignore[misc]
        assert {owner in others for owner in owners} == {True}
        cluster.nodes[node].start()
        cluster.wait_until_met(node)
    cluster.wait_until_equal()
    told = run(1, "check")
    assert [f"shard {shard}, at position" in told for shard in range(SHARDS)] == [True] * 3
    assert told.count(": equal\n") == SHARDS


def test_the_console_has_a_row_for_each_shard(cluster: Cluster) -> None:
    owners = spread(cluster)
    with launched() as browsing:
        console = Console(browsing, cluster.nodes[0])
        page = console("admin", "/cluster")
        for shard, owner in enumerate(owners):
            page.get_by_role("row", name=f"{shard} q{owner}").wait_for()
            page.get_by_role("row", name=f"q{owner} owner {shard}").wait_for()
        row = page.get_by_role("row", name=f"1 q{owners[1]}")
        row.get_by_role("button", name="Hand on").click()
        page.get_by_role("dialog").get_by_role("button", name="Hand on").click()
        cluster.wait_for_owners(lambda found: found[1] != owners[1])
        row.wait_for(state="detached")
        page.get_by_role("button", name="Spread shards").click()
        page.get_by_role("dialog").get_by_role("button", name="Spread").click()
        cluster.wait_for_owners(is_spread)
        console.close()


@pytest.mark.parametrize("shards", [1, 4])
def test_a_node_with_another_number_of_shards_is_refused(
    cluster: Cluster, tmp_path: Path, shards: int
) -> None:
    other = BrokerProcess(
        tmp_path / "q7",
        {
            "http.enabled": False,
            "cluster.enabled": True,
            "cluster.node": "q7",
            "cluster.urls": cluster.servers.urls(0),
            "cluster.shards": shards,
        },
    )
    with pytest.raises(BrokerError, match=f"shards = {shards}: the cluster was made with 3"):
        other.start()
    other.close()


def test_stores_of_several_shards_are_not_served_as_one(cluster: Cluster, tmp_path: Path) -> None:
    directory = tmp_path / "alone"
    (directory / "data" / "shards" / "1").mkdir(parents=True)
    alone = BrokerProcess(directory, {"http.enabled": False})
    with pytest.raises(BrokerError, match=r"cluster\.enabled = false: .* has stores for 2 shards"):
        alone.start()
    alone.close()
