"""The dashboard and the alert rules: they parse, and ask only for what a real broker tells."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families as parse

from tests.api.queue_rest import Connect, Rest, reject_one
from tests.api.test_metrics import DOCS, DOCUMENTED

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "queuelake.json").read_text())
ALERTS_PATH = ROOT / "deploy" / "prometheus" / "alerts.yml"
ALERTS = [
    rule for group in yaml.safe_load(ALERTS_PATH.read_text())["groups"] for rule in group["rules"]
]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
# Prometheus gives these to every series, and its own metric says whether a scrape succeeded.
OF_PROMETHEUS = {"instance", "job"}
UP = "up"
OF_CLUSTERS = "queuelake_cluster_"

Selector = tuple[str, frozenset[str]]


def expressions() -> list[str]:
    shown = [target["expr"] for panel in PANELS for target in panel["targets"]]
    return shown + [rule["expr"] for rule in ALERTS]


def parsed(expression: str) -> promql.Expr:
    return promql.parse(expression.replace("$__rate_interval", "5m"))


def selectors(expression: promql.Expr) -> list[Selector]:
    """Each metric with the labels it is asked to have: by matchers, and by what sums it up."""
    found: list[Selector] = []
    grouping: list[set[str]] = []

    def before(node: promql.Expr) -> None:
        if isinstance(node, promql.AggregateExpr):
            grouping.append(set(node.modifier.labels) if node.modifier else set())
        elif isinstance(node, promql.VectorSelector):
            labels = {matcher.name for matcher in node.matchers.matchers}
            found.append((node.name, frozenset(labels.union(*grouping))))

    def after(node: promql.Expr) -> None:
        if isinstance(node, promql.AggregateExpr):
            grouping.pop()

    promql.walk(expression, before, after)
    return found


@pytest.fixture
def told(rest: Rest, connect: Connect, name: str) -> dict[str, set[str]]:
    """What a broker with something to tell says: the names of its samples, with their labels."""
    rest.put(name, partitions=1, dlq_config={"enabled": True})
    reject_one(connect, name)
    # tests/cluster looks whether a node of a cluster tells these.
    found = {name: set(labels) for name, (_, labels) in DOCUMENTED.items() if OF_CLUSTERS in name}
    for family in parse(rest.fetch("/metrics").body.decode()):
        # One without samples says what it is, at least.
        kind, labels = DOCUMENTED[_documented(family.name)]
        endings = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        for ending in endings:
            found[_documented(family.name) + ending] = {*labels, *(["le"] * bool(ending))}
        for sample in family.samples:
            assert found[sample.name] >= set(sample.labels), sample.name
    return found


def _documented(family: str) -> str:
    return family if family in DOCUMENTED else f"{family}_total"


def test_every_expression_asks_for_metrics_and_labels_which_are_there(
    told: dict[str, set[str]],
) -> None:
    asked = set()
    for expression in expressions():
        for metric, labels in selectors(parsed(expression)):
            if metric != UP:
                assert metric in told, expression
                assert labels <= told[metric] | OF_PROMETHEUS, expression
                asked.add(re.sub("_(bucket|sum|count)$", "", metric))
    assert len(asked) > 80, "most of what is told is shown or watched"


def test_the_extractor_finds_what_is_asked_for() -> None:
    expression = 'sum by (queue) (rate(a_total{reason="x"}[5m])) / on (queue) b > 0 unless c{d="1"}'
    assert selectors(parsed(expression)) == [
        ("a_total", frozenset({"queue", "reason"})),
        ("b", frozenset()),
        ("c", frozenset({"d"})),
    ]


def test_every_panel_has_its_place_a_title_and_a_unit() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    titles = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert titles == [
        *("Overview", "Queues", "Dead letters", "Mailboxes and fan-out", "Pipeline", "Process"),
        "Cluster",
    ]
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        for place in _places(panel["gridPos"]):
            assert place not in taken, panel["title"]
            taken.add(place)
    for panel in PANELS:
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
    names = [one["name"] for one in DASHBOARD["templating"]["list"]]
    assert names == ["datasource", "instance", "queue"]
    queries = [one["definition"] for one in DASHBOARD["templating"]["list"][1:]]
    for query in queries:
        metric = re.fullmatch(r"label_values\((\w+).*, (\w+)\)", query)
        assert metric is not None
        assert metric[2] in {*DOCUMENTED[metric[1]][1], "instance"}


def _places(grid: dict[str, int]) -> Iterator[tuple[int, int]]:
    assert grid["x"] + grid["w"] <= 24
    for x in range(grid["x"], grid["x"] + grid["w"]):
        for y in range(grid["y"], grid["y"] + grid["h"]):
            yield x, y


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_every_alert_says_what_happened_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"]["summary"]
    page, _, heading = rule["annotations"]["runbook"].partition("#")
    assert (ROOT / page).name == "metrics.md"
    assert heading == rule["alert"].lower()
    assert f"### {rule['alert']}\n" in DOCS


def test_every_alert_is_explained_once_and_no_other() -> None:
    explained = re.findall(r"^### (Queuelake\w+)$", DOCS, re.M)
    assert explained == [rule["alert"] for rule in ALERTS]


def test_prometheus_itself_takes_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    subprocess.run([promtool, "check", "rules", str(ALERTS_PATH)], check=True, timeout=60)


@pytest.mark.parametrize(
    ("samples", "fires"),
    [
        ("_x20 25x20", True),  # the first ones: there was no series before
        ("0x20 1x20", True),
        ("25x60", False),  # long ago
        ("0x60", False),
    ],
)
def test_the_first_dead_letters_are_an_alert_too(tmp_path: Path, samples: str, fires: bool) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    labels = {"instance": "broker", "queue": "$queue/tasks", "reason": "rejected"}
    series = ",".join(f'{name}="{value}"' for name, value in labels.items())
    (rule,) = (rule for rule in ALERTS if rule["alert"] == "QueuelakeDeadLetters")
    expression = {
        "expr": f'count(ALERTS{{alertname="{rule["alert"]}", alertstate="firing"}}) or vector(0)',
        "eval_time": "30m",
        "exp_samples": [{"labels": "{}", "value": int(fires)}],
    }
    asked = {
        "interval": "1m",
        "input_series": [{"series": f"mqtt_queue_dlq_total{{{series}}}", "values": samples}],
        "promql_expr_test": [expression],
    }
    file = tmp_path / "test.yml"
    document = {"rule_files": [str(ALERTS_PATH)], "evaluation_interval": "1m", "tests": [asked]}
    file.write_text(yaml.safe_dump(document))
    subprocess.run([promtool, "test", "rules", str(file)], check=True, timeout=60)
