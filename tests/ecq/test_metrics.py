"""What a scrape tells of mailboxes (E2)."""

from __future__ import annotations

import pytest

from tests.api.queue_rest import Rest
from tests.conftest import BrokerFactory
from tests.ecq.conftest import Connect


@pytest.fixture
def admin_process() -> bool:
    return True


@pytest.mark.rule("E2", "T6")
def test_direct_publishes_are_counted(fresh_broker: BrokerFactory, connect: Connect) -> None:
    broker = fresh_broker()
    client = connect(of=broker)
    for qos in (0, 1, 2):
        client.publish("$ECQ/o/k", "x", qos=qos)
    client.write_each("o", "k=x")
    found = [
        value
        for (name, *_), value in Rest(broker).samples().items()
        if name.endswith("ecq_direct_publish_rejected_total")
    ]
    assert found == [3]
