"""The `[cluster]` section: a line for each mistake, and no secret in any of them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from queuelake.broker.serving import of_shard
from queuelake.cluster_settings import ClusterConfig
from queuelake.errors import ConfigError
from queuelake.placing import Placing
from queuelake.queue_settings import BadQueueSettingsError
from queuelake.settings import load_settings, shown_table
from tests.interop.certificates import Authority
from tests.simulation.node import Node


def mistakes(*assignments: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_settings(None, {}, [f"cluster.{one}" for one in assignments])
    return caught.value.mistakes


def config(*assignments: str) -> ClusterConfig:
    return load_settings(None, {}, [f"cluster.{one}" for one in assignments]).cluster


def test_what_a_cluster_needs_can_be_said() -> None:
    said = config("enabled=true", "node=a", 'urls=["nats://10.0.0.1:4222","tls://n2"]', "lease=3s")
    assert said.enabled
    assert said.node_name == "a"
    assert said.lease_ms == 3_000
    assert config("log_bytes_max=128MiB").log_bytes_max == 128 * 1024**2


def test_the_queues_of_a_cluster_are_replicated_and_those_of_one_node_are_not() -> None:
    on = "cluster.enabled=true"
    key = "queues.defaults.replication"
    assert load_settings(None, {}, []).queues.defaults.replication == "none"
    assert load_settings(None, {}, [on]).queues.defaults.replication == "quorum"
    assert load_settings(None, {}, [on, f"{key}=quorum"]).queues.defaults.replication == "quorum"
    for assignments in ([on, f"{key}=none"], [on, "queues.tasks.replication=none"]):
        with pytest.raises(ConfigError, match="a cluster replicates everything"):
            load_settings(None, {}, assignments)
    for assignments in ([f"{key}=quorum"], ["queues.tasks.replication=quorum"]):
        with pytest.raises(ConfigError, match="needs a cluster"):
            load_settings(None, {}, assignments)


def test_a_node_is_called_as_its_host_without_what_splits_a_subject(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "node.7 example*>" + "x" * 100)
    name = config().node_name
    assert name == "node-7-example--" + "x" * 48
    assert config(f"node={name}").node_name == name


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        ("shards=65", "cluster.shards = 65: allowed: an integer from 1 to 64"),
        ("replicas=0", "cluster.replicas = 0: allowed: an integer from 1 to 5"),
        ("replicas=6", "cluster.replicas = 6: allowed: an integer from 1 to 5"),
        ("lease=999ms", 'cluster.lease = "999ms": allowed: 1s to 60s'),
        ("lease=61s", 'cluster.lease = "61s": allowed: 1s to 60s'),
        ("log_bytes_max=1MiB", "cluster.log_bytes_max = 1048576: allowed: at least 67108864"),
        ("node=a.b", 'cluster.node = "a.b": allowed: 1 to 64 of A-Z'),
        ("node=" + "n" * 65, 'cluster.node = "nnnn'),
        ("name=", 'cluster.name = "": allowed: 1 to 64 of A-Z'),
        ("urls=[]", "cluster.urls = []: allowed: at least one URL of a NATS server"),
        ('urls=["http://a:1"]', 'cluster.urls holds "http://a:1": allowed: such as'),
        ('urls=["nats://a:x"]', 'cluster.urls holds "nats://a:x": Port could not be cast'),
        ('urls=["nats://a/b"]', 'cluster.urls holds "nats://a/b": allowed: such as'),
        ('urls=["10.0.0.1:4222"]', 'cluster.urls holds "10.0.0.1:4222": allowed: such as'),
        ("credentials_file=/none", 'cluster.credentials_file = "/none": cannot be read'),
        ("nkey_seed_file=/none", 'cluster.nkey_seed_file = "/none": cannot be read'),
        ("ca_file=/none", 'cluster.ca_file = "/none": cannot be read'),
        ("ca_file=/dev/null", 'cluster.ca_file = "/dev/null": holds no usable certificate'),
        ("certificate=/dev/null", 'cluster.certificate = "/dev/null": needs cluster.key'),
        ("user=u", "cluster.user: needs cluster.password"),
        ("password=geheim", "cluster.password: needs cluster.user"),
    ],
)
def test_a_mistake_is_one_line(assignment: str, reason: str) -> None:
    (line,) = mistakes(assignment)
    assert line.startswith(f"--set: {reason}")


def test_there_is_one_way_to_log_in() -> None:
    (line,) = mistakes("user=u", "password=geheim", "token=geheim")
    assert "cluster.user: cannot be used together with cluster.token" in line


def test_no_line_and_no_table_shows_a_secret() -> None:
    (line,) = mistakes('urls=["nats://user:geheim@a:1"]')
    assert "no user in a URL" in line
    (unknown,) = mistakes("passwort=geheim")
    assert "cluster.password" in unknown
    assert "geheim" not in line + unknown
    said = load_settings(None, {"QUEUELAKE__CLUSTER__TOKEN": "geheim"}, [])
    assert said.cluster.token == "geheim"
    assert "geheim" not in str(shown_table(said))


def test_a_certificate_and_its_key_are_accepted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    client = authority.client("a")
    files = (f"certificate={client.certificate}", f"key={client.key}")
    assert config(f"ca_file={authority.certificate}", *files).key == str(client.key)


def test_the_missing_package_is_named_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "nats" else found(name)
    )
    (line,) = mistakes("enabled=true")
    assert line.endswith("pip install 'queuelake[cluster]'")
    assert not config().enabled


def elsewhere(name: str, shards: int = 3) -> str:
    """Another name, in another shard."""
    placing = Placing(shards)
    names = [f"dead{number}" for number in range(100)]
    return next(one for one in names if placing.of_queue(one) != placing.of_queue(name))


def test_dead_letters_are_in_the_shard_of_their_queue() -> None:
    shards = ["cluster.enabled=true", "cluster.shards=3"]
    other = elsewhere("tasks")
    target = f"queues.tasks/a.dlq_config.topic=$queue/{other}"
    with pytest.raises(ConfigError) as caught:
        load_settings(None, {}, [*shards, target])
    (mistake,) = caught.value.mistakes
    assert f'dlq_config.topic = "$queue/{other}"' in mistake
    assert 'in another shard than "$queue/tasks/a"' in mistake
    assert 'one which begins with "$queue/tasks/" is in the same' in mistake
    load_settings(None, {}, [*shards, "queues.tasks/a.dlq_config.topic=$queue/tasks/dead"])
    load_settings(None, {}, [*shards, target, "queues.tasks/a.dlq_config.enabled=false"])
    load_settings(None, {}, [target])
    load_settings(None, {}, [shards[0], target])


@pytest.mark.parametrize("key", ["dlq_config.topic", "dead_letter_queue"])
def test_by_default_dead_letters_have_the_name_of_their_queue_in_front(key: str) -> None:
    shards = ["cluster.enabled=true", "cluster.shards=3"]
    for topic in ("$queue/dead", "$queue/dead/{name}", "$queue/dlq/dead-{name}"):
        with pytest.raises(ConfigError, match=f"queues.defaults.{key}.*as the first level"):
            load_settings(None, {}, [*shards, f"queues.defaults.{key}={topic}"])
        load_settings(None, {}, [f"queues.defaults.{key}={topic}"])
    for topic in ("$queue/dlq/{name}", "$queue/{name}/dead", "$queue/dlq/{name}/old"):
        load_settings(None, {}, [*shards, f"queues.defaults.{key}={topic}"])


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_queue_cannot_be_given_dead_letters_in_another_shard(kind: str) -> None:
    node = Node(load_settings(None, {}, ["cluster.enabled=true", "cluster.shards=3"]))
    queues = node.broker.queues
    queues.placing = Placing(3)
    queues.configure("tasks", {"type": kind})
    for target, is_refused in ((elsewhere("tasks"), True), ("tasks/dead", False)):
        topic = f"$queue/{target}"
        changes: dict[str, object] = {"dead_letter_queue": topic}
        if kind == "classic":
            changes = {"dlq_config": {"topic": topic}}
        if is_refused:
            for name in ("tasks", "tasks/new"):
                with pytest.raises(BadQueueSettingsError, match=f'"{re.escape(topic)}"'):
                    queues.configure(name, {"type": kind, **changes})
        else:
            queues.configure("tasks", changes)
    assert not queues.exists("tasks/new")


def test_a_queue_of_one_shard_takes_no_topics_of_all() -> None:
    bound = 'queues.tasks.topics=["jobs/#"]'
    with pytest.raises(ConfigError, match='topics holds "jobs/#": a queue is in one shard'):
        load_settings(None, {}, ["cluster.enabled=true", "cluster.shards=3", bound])
    load_settings(None, {}, ["cluster.enabled=true", bound])


def test_a_shard_makes_the_queues_of_the_configuration_which_belong_to_it() -> None:
    names = [f"q{number}" for number in range(9)] + ["dlq/q1"]
    queues = load_settings(None, {}, [f"queues.{name}.partitions=2" for name in names]).queues
    placing = Placing(3)
    made = [sorted(of_shard(queues, placing, shard).named) for shard in range(3)]
    for shard, found in enumerate(made):
        mine = [name for name in names if placing.of_queue(name) == shard]
        assert found == sorted({*mine, "dlq/q1"})
