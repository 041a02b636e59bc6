"""Mailboxes keep their promises over SIGKILL: the short form of `tests.ecq.crash` (T8).

QUEUELAKE_TEST_KILLS=200 makes it long.
"""

from __future__ import annotations

import os

import pytest

from tests.conftest import BrokerFactory
from tests.ecq.conftest import BARE
from tests.ecq.crash import Crashes

KILLS = int(os.environ.get("QUEUELAKE_TEST_KILLS", "4"))


@pytest.mark.timeout(60 + 20 * KILLS)
@pytest.mark.rule("T8", "E5", "E12", "E13", "E23", "E24", "E25")
@pytest.mark.parametrize("batch", [1, 5])
def test_promises_are_kept_when_the_broker_is_killed(
    fresh_broker: BrokerFactory, batch: int
) -> None:
    broker = fresh_broker(BARE | {"ecq.reader_batch_size": batch})
    crashes = Crashes(broker, seed=batch, one_at_a_time=batch == 1)
    crashes.run(KILLS)
    delivered = sum(story.delivered for story in crashes.stories)
    assert delivered > 10, "too little happened to mean anything"
