"""Every rule of the quorum queue contract has a test, as far as it is the machine's."""

from __future__ import annotations

from pathlib import Path

from tests.queues.test_rules import shown

RULES = {f"Q{number}" for number in range(1, 37)}
SECTIONS = {f"section {number}" for number in (2, 6, 9, 12, 16, 18)}
# What is left for the cluster; the machine's part and the broker's are shown.
WHOLE = "all of it"
OPEN = {
    "Q4": WHOLE,  # one member or several: the same code behind a log
    "Q14": "payloads are read where the consumer is",
    "Q30": "the socket which is not read",
    "Q33": "the stream is cut behind the slowest replica",
    "section 9": "settings of the group",
    "section 12": "membership",
    "section 18": "ten minutes of killed leaders",
}


def test_every_rule_of_the_machine_has_a_test() -> None:
    here = Path(__file__).parent
    paths = [*here.glob("test_*.py"), here.parent / "simulation" / "test_quorum_world.py"]
    paths += (here.parent / "queues").glob("test_quorum_*.py")
    found = set().union(*map(shown, paths))
    missing = (RULES | SECTIONS) - found
    assert missing == {rule for rule, part in OPEN.items() if part == WHOLE}
