"""`queuelake cluster recover`: the log is lost while stores survive, or a backup is wanted back.

One NATS server is enough to lose a log.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from queuelake.cli import main as cli
from tests.cluster.conftest import ConnectTo
from tests.cluster.faults import queue_of
from tests.harness.cluster import Cluster
from tests.queues.client import SUCCESS, QueueClient

Recover = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("recovered")
    with Cluster(directory, {"cluster.replicas": 1}, count=1) as running:
        running.add_node()
        running.wait_until_equal()
        yield running


@pytest.fixture
def recover(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Recover:
    """The exit code, and what is said; of node 0, which nobody confirms unless told to."""
    answers = {"QUEUELAKE__CLUSTER__ENABLED": "true", "QUEUELAKE__CLUSTER__REPLICAS": "1"}
    for name, value in answers.items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str) -> tuple[int, str]:
        urls = ",".join(f'"{url}"' for url in cluster.servers.urls())
        where = ["--data-dir", str(cluster.nodes[0].data_dir), "--set", f"cluster.urls=[{urls}]"]
        code = cli.run(["cluster", "recover", *where, "--set", "cluster.node=q0", *arguments])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


def begin_again(cluster: Cluster) -> None:
    """As the command says: the recovered node first, then the other one without a store."""
    cluster.nodes[0].start()
    cluster.eventually(lambda: cluster.owner([0]) == 0, "it is not the owner")
    shutil.rmtree(cluster.nodes[1].data_dir / "store")
    cluster.nodes[1].start()
    cluster.wait_until_equal()


def test_a_backup_is_restored_into_its_cluster(
    cluster: Cluster, connect_to: ConnectTo, recover: Recover, tmp_path: Path
) -> None:
    assert connect_to(1).publish("kept", "before") == SUCCESS
    cluster.wait_until_equal()
    assert cli.run(["backup", str(tmp_path), "--data-dir", str(cluster.nodes[1].data_dir)]) == 0
    assert connect_to(0).publish("kept", "after") == SUCCESS
    code, told = recover("--yes")
    assert code == 1, told  # it runs
    for node in cluster.nodes:
        node.stop()
    shutil.rmtree(cluster.nodes[0].data_dir / "store")
    shutil.move(tmp_path / "store", cluster.nodes[0].data_dir / "store")
    code, told = recover("--yes")
    assert code == 1
    assert "the log is there, up to position" in told
    code, told = recover("--discard-log", "--yes")
    assert code == 0, told
    begin_again(cluster)
    worker = connect_to(1)
    worker.subscribe("kept")
    assert [one.payload for one in worker.receive_and_ack(1)] == ["before"]
    worker.expect_silence()


def test_a_log_is_lost_and_the_cluster_begins_again_with_a_store(
    cluster: Cluster, connect_to: ConnectTo, recover: Recover
) -> None:
    assert connect_to(0).publish("survives", "x") == SUCCESS
    cluster.wait_until_equal()
    for node in cluster.nodes:
        node.stop()
    cluster.servers.kill(0)
    shutil.rmtree(cluster.servers.directory / "n0")
    cluster.servers.mend()
    code, told = recover()
    assert code != 0  # nobody said yes
    assert "the log of cluster queuelake does not exist" in told
    code, told = recover("--yes")
    assert code == 0, told
    cluster.nodes[0].start()
    cluster.eventually(lambda: cluster.owner([0]) == 0, "it is not the owner")
    worker = connect_to(0)
    worker.subscribe("survives")
    assert [one.payload for one in worker.receive_and_ack(1)] == ["x"]


def test_all_shards_of_a_node_begin_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"cluster.replicas": 1, "cluster.shards": 2}
    with Cluster(tmp_path, settings, count=1) as cluster:
        queues = [queue_of(shard, 2, "kept") for shard in range(2)]
        client = QueueClient(cluster.nodes[0].client(), "publisher")
        client.wire.connect("publisher")
        assert [client.publish(queue, "x") for queue in queues] == [SUCCESS] * 2
        client.wire.close()
        cluster.nodes[0].stop()
        cluster.servers.kill(0)
        shutil.rmtree(cluster.servers.directory / "n0")
        cluster.servers.mend()
        url = cluster.servers.urls(0)[0]
        wanted = ["enabled=true", "replicas=1", "shards=2", "node=q0", f'urls=["{url}"]']
        arguments = [word for one in wanted for word in ("--set", f"cluster.{one}")]
        arguments += ["--data-dir", str(cluster.nodes[0].data_dir), "--yes"]
        assert cli.run(["cluster", "recover", *arguments]) == 0
        told = capsys.readouterr().out
        assert "Shard 1: the store of this node is at position" in told
        assert told.count("the log in cluster queuelake does not exist") == 2
        cluster.nodes[0].start()
        cluster.wait_for_owners()
        worker = QueueClient(cluster.nodes[0].client(), "worker")
        worker.wire.connect("worker")
        for queue in queues:
            worker.subscribe(queue)
        assert [one.payload for one in worker.receive_and_ack(2)] == ["x", "x"]
        worker.wire.close()
