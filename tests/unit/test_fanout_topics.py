"""The subscription by which a vehicle gets its messages, among few filters and among many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuelake.broker.auth.filters import covers
from queuelake.broker.fanout.topics import wider
from tests.harness import packets as p
from tests.unit.fanout_node import FanoutNode

WANTED = [b"agent", b"V", b"request", b"+"]
LEVEL = st.sampled_from([*WANTED, b"#", b"", b"x"])


@given(st.lists(LEVEL, min_size=1, max_size=6))
def test_every_filter_which_covers_another_is_among_the_wider_ones(levels: list[bytes]) -> None:
    if b"#" not in levels[:-1] and covers(levels, WANTED):
        assert b"/".join(levels) in wider(WANTED)


def test_few_filters_are_wider() -> None:
    assert len(wider(WANTED)) < 2 << len(WANTED)


@pytest.mark.parametrize("wide", ["agent/#", "+/V/proxy/+/+", "#", "agent/V/proxy/request/+"])
def test_a_vehicle_with_many_filters_gets_its_messages(wide: str) -> None:
    node = FanoutNode()
    vehicle = node.client("V")
    node.data("d", b"1")
    node.trigger(["V"], "task_a_1", "d")
    items: list[p.Subscription] = [(f"other/{number}", 1) for number in range(200)]
    vehicle.transport.send(p.subscribe(1, items))
    node.work()
    vehicle.take_all()
    vehicle.transport.send(p.subscribe(2, [(wide, 1)]))
    node.work()
    assert [one.type for one in vehicle.take_all()] == [p.SUBACK, p.PUBLISH]
