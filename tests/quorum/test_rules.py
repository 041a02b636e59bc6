"""Every rule of the quorum queue contract which is the machine's has a test."""

from __future__ import annotations

from pathlib import Path

from tests.queues.test_rules import shown

RULES = {f"Q{number}" for number in range(1, 37)}
SECTIONS = {f"section {number}" for number in (2, 6, 9, 12, 18)}
# Still open: what the log engine, the cluster and the MQTT surface do.
OPEN = {"Q4"}


def test_every_rule_of_the_machine_has_a_test() -> None:
    here = Path(__file__).parent
    paths = [*here.glob("test_*.py"), here.parent / "simulation" / "test_quorum_world.py"]
    found = set().union(*map(shown, paths))
    assert sorted((RULES | SECTIONS) - OPEN - found) == []
    assert sorted(found & OPEN) == [], "no longer open"
