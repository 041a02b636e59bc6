"""Message queues: CPU per message as a multiple of M (see loads.py).

`regular`: a publish which matches one regular queue, and its delivery to one of ten subscribers.
`lastvalue`: a publish which overwrites one of 1,000 values which nobody has taken.
`overlapping`: as `regular`, while there are 1,000 other queues whose filters do not match.
"""

from __future__ import annotations

import sys

from loads import Load, compare
from peers import Running
from rest import ask

CONFIG = """
[mq]
max_queue_count = 0
"""
OTHERS = 1_000
TEN_TO_TEN = ("-P", "10", "-S", "10", "--size", "256", "--qos", "1")
TEN_WRITERS = ("-P", "10", "-S", "0", "--size", "256", "--qos", "1")


def make_queue(running: Running, body: dict[str, object]) -> None:
    ask(running, "POST", "/api/v5/message_queues/queues", body)


def make_regular(running: Running) -> None:
    make_queue(running, {"topic_filter": "one/#", "is_lastvalue": False})


def make_last_value(running: Running) -> None:
    body = {"topic_filter": "values/#", "key_expression": "message.topic"}
    make_queue(running, {**body, "is_lastvalue": True})


def make_others(running: Running) -> None:
    make_queue(running, {"topic_filter": "among/#", "is_lastvalue": False})
    for number in range(OTHERS):
        body = {"name": f"other-{number}", "topic_filter": f"among/+/{number}/#"}
        make_queue(running, {**body, "is_lastvalue": False})


LOADS = (
    Load(
        "regular",
        "10/10, one regular queue",
        "queuelake",
        (*TEN_TO_TEN, "--topic", "one/%d", "--filter", "$q/one/#"),
        100_000,
        0.45,
        prepare=make_regular,
    ),
    Load(
        "lastvalue",
        "10 publishers overwrite 1,000 values",
        "queuelake",
        (*TEN_WRITERS, "--topic", "values/%k", "--keys", "1000"),
        100_000,
        0.6,
        prepare=make_last_value,
    ),
    Load(
        "overlapping",
        f"10/10, one of {OTHERS + 1:,} queues matches",
        "queuelake",
        (*TEN_TO_TEN, "--topic", "among/%d", "--filter", "$q/among/#"),
        100_000,
        prepare=make_others,
    ),
)


if __name__ == "__main__":
    sys.exit(compare("message_queues", __doc__, CONFIG, LOADS))
