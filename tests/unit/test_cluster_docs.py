"""The pages about a cluster name every command and path there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from queuelake.admin.app import create_app
from queuelake.admin.services import Services
from queuelake.apikey import KeyFile
from queuelake.cli import cluster
from queuelake.control_client import ControlClient

DOCS = Path(__file__).resolve().parents[2] / "docs"
PATH = re.compile(r"`((?:GET|PUT|POST|DELETE) /api/v1/cluster[^`? ]*)")


def test_every_command_is_there() -> None:
    commands = {
        command.callback.__name__
        for command in cluster.app.registered_commands
        if command.callback is not None
    }
    page = (DOCS / "cluster.md").read_text()
    assert set(re.findall(r"`queuelake cluster (\w+)", page)) == commands
    (line,) = re.findall(r"`queuelake cluster ([^`]+)`", (DOCS / "cli.md").read_text())
    assert set(line.split("\\|")) == commands


@pytest.mark.parametrize("document", ["cluster.md", "rest.md"])
async def test_every_path_is_there(document: str, tmp_path: Path) -> None:
    served = create_app(Services(ControlClient(tmp_path), KeyFile(tmp_path)))
    paths = {
        f"{method} {path.replace(':segment', '')}"
        for route in served.routes
        if (path := getattr(route, "path", "")).startswith("/api/v1/cluster")
        for method in getattr(route, "methods", ())
    }
    assert len(paths) == 8
    assert set(PATH.findall((DOCS / document).read_text())) == paths


def test_every_link_leads_somewhere() -> None:
    text = (DOCS / "cluster.md").read_text()
    for target in re.findall(r"\]\(([^)]+)\)", text):
        page, _, heading = target.partition("#")
        if "://" in target:
            continue
        path = DOCS / page if page else DOCS / "cluster.md"
        assert path.is_file(), target
        found = re.findall(r"^#+ (.+)$", path.read_text(), re.M)
        anchors = {re.sub(r"[^\w -]", "", one).strip().lower().replace(" ", "-") for one in found}
        assert not heading or heading in anchors, target
