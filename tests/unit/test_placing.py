"""Where things are in a cluster of several shards: the same for every node, and together what
belongs together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuelake.placing import EVERYWHERE, SPLIT, Placing

names = st.text(st.characters(blacklist_characters="/+#$\0", codec="utf-8"), min_size=1, max_size=8)
placing = Placing(5, ["ecp/{VIN}/online", "{VIN}/beat"])


def test_places_never_change() -> None:
    """They are where the messages of existing clusters are."""
    found = [placing.of(name) for name in (b"", b"a", b"orders", b"VIN-1", "größe".encode())]
    assert found == [0, 2, 2, 2, 3]


@given(names, names)
def test_everything_of_a_queue_is_in_one_place(first: str, second: str) -> None:
    home = placing.of_queue(first)
    for name in (first, f"{first}/{second}", f"dlq/{first}", f"dlq/{first}/{second}"):
        assert placing.of_queue(name) == home
        assert placing.of_topic(f"$queue/{name}".encode()) == home
        assert placing.of_topic(f"$queue/{name}/$ack".encode()) == home
        assert placing.of_filter(f"$queue/{name}".encode()) == home
        assert placing.of_filter(f"$share/g/$queue/{name}".encode()) == home


@given(names, names)
def test_a_mailbox_is_where_its_owner_is(owner: str, key: str) -> None:
    home = placing.of(owner.encode())
    for topic in (f"$ECQ/w/{owner}/{key}", f"$ECQ/w/{owner}/{key}/{key}", f"$ECQ/{owner}/$rewind"):
        if owner != "w":
            assert placing.of_topic(topic.encode()) == home
            assert placing.of_filter(f"$ECQ/{owner}/#".encode()) == home


@given(names)
def test_a_heartbeat_is_heard_where_the_vehicle_is(vin: str) -> None:
    home = placing.of(vin.encode())
    assert placing.of_topic(f"ecp/{vin}/online".encode()) == home
    assert placing.of_topic(f"{vin}/beat".encode()) == home


@given(names)
def test_any_other_topic_has_one_place(name: str) -> None:
    assert 0 <= placing.of_topic(f"a/{name}".encode()) < 5
    assert placing.of_topic(f"a/{name}".encode()) == Placing(5).of_topic(f"a/{name}".encode())


@pytest.mark.parametrize("topic_filter", ["a/b", "a/+", "#", "$share/g/a", "$q/a/b", "$queue//a"])
def test_subscriptions_are_everywhere(topic_filter: str) -> None:
    assert placing.of_filter(topic_filter.encode()) == EVERYWHERE


def test_a_trigger_is_split_and_its_data_are_everywhere() -> None:
    assert placing.of_topic(b"$SDV-FANOUT/trigger") == SPLIT
    assert placing.of_topic(b"$SDV-FANOUT/data/d1") == EVERYWHERE


def test_figures_of_the_broker_come_from_the_first() -> None:
    assert placing.of_filter(b"$SYS/broker/uptime") == 0
