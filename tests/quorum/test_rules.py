"""Every rule of the quorum queue contract has a test, as far as it is the machine's."""

from __future__ import annotations

from pathlib import Path

from tests.queues.test_rules import shown

RULES = {f"Q{number}" for number in range(1, 37)}
SECTIONS = {f"section {number}" for number in (2, 6, 9, 12, 16, 18)}
# What is left for the log engine, the cluster and the MQTT surface; the machine's part is shown.
WHOLE = "all of it"
OPEN = {
    "Q4": WHOLE,  # one member or several: the same code behind a log
    "Q9": "dedupe by message id across sessions",
    "Q14": "payloads are read where the consumer is",
    "Q20": "the counts as user properties of a PUBLISH",
    "Q23": "the subscription ends with 0x98 or a notice",
    "Q24": "PUBACK 0x97",
    "Q27": "the worker which publishes with confirms and tries again",
    "Q29": "the history a dead letter carries",
    "Q30": "the socket which is not read",
    "Q33": "the stream is cut behind the slowest replica",
    "section 9": "settings by name, and those of the group",
    "section 12": "membership",
    "section 16": WHOLE,
    "section 18": "ten minutes of killed leaders",
}


def test_every_rule_of_the_machine_has_a_test() -> None:
    here = Path(__file__).parent
    paths = [*here.glob("test_*.py"), here.parent / "simulation" / "test_quorum_world.py"]
    found = set().union(*map(shown, paths))
    missing = (RULES | SECTIONS) - found
    assert missing == {rule for rule, part in OPEN.items() if part == WHOLE}
