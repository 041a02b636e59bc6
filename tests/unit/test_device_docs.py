"""The pages about mailboxes and fan-out name every setting, command and path there is, truly."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
import typer

from queuelake.admin.app import create_app
from queuelake.admin.services import Services
from queuelake.apikey import KeyFile
from queuelake.cli import ecq, sdv
from queuelake.control_client import ControlClient
from queuelake.ecq_settings import EcqConfig
from queuelake.sdv_settings import SdvConfig

DOCS = Path(__file__).resolve().parents[2] / "docs"
FAMILIES = [("ecq", EcqConfig(), ecq.app), ("sdv", SdvConfig(), sdv.app)]

each_family = pytest.mark.parametrize(
    ("family", "config", "app"), FAMILIES, ids=[name for name, _, _ in FAMILIES]
)


def page(family: str) -> str:
    return (DOCS / family / "README.md").read_text()


@each_family
def test_every_setting_is_there_with_its_default(
    family: str, config: msgspec.Struct, app: typer.Typer
) -> None:
    section = page(family).partition("## Settings")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section, re.M)
    shown = {name: value.strip("` ") for name, value in rows}
    expected = {name: json.dumps(getattr(config, name)) for name in config.__struct_fields__}
    assert shown == expected


@each_family
def test_every_command_is_there(family: str, config: msgspec.Struct, app: typer.Typer) -> None:
    commands = [
        command.name or command.callback.__name__
        for command in app.registered_commands
        if command.callback is not None
    ]
    named = set(re.findall(rf"queuelake {family} ([\w-]+)", page(family)))
    assert named == set(commands)
    for document in ("cli.md", f"{family}/README.md"):
        text = (DOCS / document).read_text()
        assert [name for name in commands if name not in text] == []


@each_family
async def test_every_path_is_there(
    family: str, config: msgspec.Struct, app: typer.Typer, tmp_path: Path
) -> None:
    served = create_app(Services(ControlClient(tmp_path), KeyFile(tmp_path)))
    paths = {
        f"{method} {path.replace(':segment', '')}"
        for route in served.routes
        if (path := getattr(route, "path", "")).startswith(f"/api/v1/{family}/")
        for method in getattr(route, "methods", ())
    }
    pattern = rf"`((?:GET|PUT|POST|DELETE) /api/v1/{family}/[^`?]+)"
    assert len(paths) >= 6
    for document in ("rest.md", f"{family}/README.md"):
        assert set(re.findall(pattern, (DOCS / document).read_text())) == paths, document
