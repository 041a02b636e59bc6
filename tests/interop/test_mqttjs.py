"""MQTT.js over TCP and WebSocket; npm installs the package into the virtual environment."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.broker import Broker

FOLDER = Path(__file__).parent / "mqttjs"
SCENARIOS = ["qos", "retained", "will", "shared", "resume", "large"]
INSTALL_TIMEOUT_S = 180


@pytest.fixture(scope="session")
def modules() -> Path:
    """A node_modules folder with MQTT.js; kept for the next run."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("npm and node are not installed")
    folder = Path(sys.prefix) / "mqttjs"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        # Several processes of one test run come here at the same time.
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = (FOLDER / "package.json").read_text()
        manifest = folder / "package.json"
        if not (folder / "node_modules" / "mqtt").exists() or manifest.read_text() != wanted:
            manifest.write_text(wanted)
            _install(folder)
    return folder / "node_modules"


def _install(folder: Path) -> None:
    line = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(
        line, cwd=folder, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        shutil.rmtree(folder / "node_modules", ignore_errors=True)
        pytest.skip(f"npm could not install MQTT.js: {done.stderr.strip().splitlines()[-1:]}")


def _play(modules: Path, url: str, level: int, scenario: str, prefix: str) -> None:
    done = subprocess.run(
        ["node", str(FOLDER / "scenario.cjs"), url, str(level), scenario, prefix],
        env=os.environ | {"NODE_PATH": str(modules)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_mqttjs_over_tcp(
    broker: Broker, modules: Path, prefix: str, scenario: str, level: int
) -> None:
    _play(modules, f"mqtt://{broker.host}:{broker.mqtt_port}", level, scenario, prefix)


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_mqttjs_over_websocket(
    broker: Broker, modules: Path, prefix: str, scenario: str, level: int
) -> None:
    if not broker.ws_port:
        pytest.skip("this broker has no WebSocket listener")
    _play(modules, f"ws://{broker.host}:{broker.ws_port}/mqtt", level, scenario, prefix)
