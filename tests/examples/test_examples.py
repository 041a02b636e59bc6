"""Every example runs as its first lines say, against a real broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.harness.broker import BrokerProcess

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run_example(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_hello_gets_what_was_published_while_it_was_away(broker: BrokerProcess) -> None:
    output = run_example("hello.py", str(broker.mqtt_port))
    assert "['20 C', '21 C', '22 C', '23 C', '24 C']" in output
