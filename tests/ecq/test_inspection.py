"""What operators are told of mailboxes (section 9)."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.conftest import BrokerFactory
from tests.ecq.conftest import BARE, Connect
from tests.ecq.control import Mailboxes
from tests.ecq.tables import row_counts
from tests.queues.client import wait_until

TABLES = ("ecq_seqno", "ecq_state", "ecq_index", "ecq_payload")


@pytest.mark.rule("section 9")
def test_an_empty_broker(fresh_broker: BrokerFactory) -> None:
    broker = fresh_broker(BARE)
    assert row_counts(broker, *TABLES) == [0, 0, 0, 0]
    mailboxes = Mailboxes(broker)
    empty = {"messages": "empty", "consumer_states": "empty", "number_of_queues": 0}
    assert mailboxes.status() == empty
    assert mailboxes.inspect("o") == {"acked": "none", "last_ack_ts": "none", "queue": "empty"}
    assert mailboxes.collect() is True


@pytest.mark.rule("section 9")
def test_the_status_names_the_first_and_the_last(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker(BARE)
    mailboxes, producer = Mailboxes(broker), connect(of=broker)
    producer.write_each("o1", "a=1", "b=2")
    place = {"clientid": "o1", "seqno": 1}
    status = mailboxes.status()
    assert status["messages"] == {"first": place, "last": {"clientid": "o1", "seqno": 2}}
    assert (status["consumer_states"], status["number_of_queues"]) == ("empty", 1)
    for number in range(2, 6):
        producer.write_each(f"o{number}", "a=1")
    device = connect("o1", of=broker)
    device.listen()
    device.drain()
    wait_until(lambda: mailboxes.acked("o1") == 2)
    status = mailboxes.status()
    state = {"clientid": "o1", "seqno": 2}
    assert status["consumer_states"] == {"first": state, "last": state}
    assert status["number_of_queues"] == 5
    assert status["messages"]["first"]["clientid"] != status["messages"]["last"]["clientid"]


@pytest.mark.rule("section 9")
def test_a_mailbox_tells_its_numbers(connect: Connect, mailboxes: Mailboxes, owner: str) -> None:
    producer = connect()
    seen = []
    for number in range(1, 5):
        producer.write_each(owner, f"k{number}=x")
        seen.append(mailboxes.inspect(owner)["queue"])
    assert seen == ["[1]", "[1,2]", "[1,...,3]", "[1,...,4]"]
    producer.write_each(owner, "k1=y")
    assert mailboxes.inspect(owner)["queue"] == "[2,...,5]"


@pytest.mark.rule("section 9", "E23")
def test_a_mailbox_tells_its_position_and_when_it_came_there(
    connect: Connect, mailboxes: Mailboxes, owner: str
) -> None:
    connect().write_each(owner, "a=1", "b=2")
    found = mailboxes.inspect(owner)
    assert (found["acked"], found["last_ack_ts"]) == ("none", "none")
    device = connect(owner)
    device.listen()
    device.drain()
    wait_until(lambda: mailboxes.acked(owner) == 2)
    moment = datetime.fromisoformat(mailboxes.inspect(owner)["last_ack_ts"])
    assert moment.tzinfo is not None
    assert abs((datetime.now(moment.tzinfo) - moment).total_seconds()) < 60


@pytest.mark.rule("section 9", "section 1")
def test_the_tables_have_their_names(fresh_broker: BrokerFactory, connect: Connect) -> None:
    broker = fresh_broker(BARE)
    producer = connect(of=broker)
    producer.write_each("o1", "a=1", "b=2", "a=3")
    producer.write_each("o2", "a=1")
    assert row_counts(broker, *TABLES) == [2, 0, 3, 3]
    device = connect("o1", of=broker)
    device.listen()
    device.drain()
    wait_until(lambda: row_counts(broker, *TABLES) == [2, 1, 3, 3])
