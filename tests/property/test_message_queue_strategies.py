"""Who gets the messages of a message queue: each strategy does what it says, for any consumers."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from queuelake.engine import commands as c
from queuelake.engine.dispatch import ASIDE_MAX
from queuelake.engine.effects import Deliver
from queuelake.engine.groups import GROUP, Consumer
from queuelake.engine.kinds.message_queue import MessageQueue
from queuelake.engine.machine import Effect, Meta
from queuelake.engine.message import Entry
from queuelake.engine.policy.settings import (
    LEAST_INFLIGHT,
    RANDOM,
    ROUND_ROBIN,
    STICKY_KEY,
)
from queuelake.engine.policy.strategy import home_of
from tests.unit.engine_message_queue import DrivenMessageQueue, mq_policy_with

names = st.lists(st.text("abcdef", min_size=1, max_size=4), min_size=1, max_size=6, unique=True)


@settings(max_examples=30, deadline=None)
@given(names, st.integers(0, 2**40))
def test_random_is_uniform(consumers: list[str], moment: int) -> None:
    queue = DrivenMessageQueue(strategy=RANDOM, prefetch=10**6)
    queue.now_ms += moment
    queue.join(*consumers)
    queue.publish_many(600)
    count = Counter(who for who, _ in queue.given())
    assert sum(count.values()) == 600
    share = 600 / len(consumers)
    deviation = sum((count[who] - share) ** 2 / share for who in consumers)
    assert deviation < 35, count  # chi square, 5 degrees of freedom: once in a million


def test_random_differs_from_queue_to_queue() -> None:
    orders = set()
    for moment in range(20):
        queue = DrivenMessageQueue(strategy=RANDOM)
        queue.now_ms += moment
        queue.join("x", "y", "z")
        queue.publish_many(5)
        orders.add(tuple(queue.given()))
    assert len(orders) > 10


@settings(max_examples=40, deadline=None)
@given(names, st.data())
def test_round_robin_asks_each_in_turn(consumers: list[str], data: st.DataObject) -> None:
    queue = DrivenMessageQueue(strategy=ROUND_ROBIN, prefetch=1000)
    queue.join(*consumers)
    order = sorted(consumers)
    at = 0
    for size in data.draw(st.lists(st.integers(1, 9), max_size=10)):
        queue.publish_many(size)
        for who, seq in queue.given():
            assert who == order[at % len(order)]
            at += 1
            if data.draw(st.booleans()):
                queue.ack(seq, who)


def test_round_robin_begins_anew_when_somebody_comes_or_goes() -> None:
    queue = DrivenMessageQueue(strategy=ROUND_ROBIN, prefetch=100)
    queue.join("a", "b", "c")
    queue.publish_many(4)
    assert [who for who, _ in queue.given()] == ["a", "b", "c", "a"]
    queue.join("d")
    queue.publish_many(2)
    assert [who for who, _ in queue.given()] == ["a", "b"]
    queue.join("d")  # as it was
    queue.publish_many(1)
    assert [who for who, _ in queue.given()] == ["c"]
    queue.leave("d")
    queue.publish_many(2)
    assert [who for who, _ in queue.given()] == ["a", "b"]


def test_round_robin_passes_over_who_is_full_or_refused_and_asks_it_first_then() -> None:
    queue = DrivenMessageQueue(strategy=ROUND_ROBIN, prefetch=2)
    queue.join("a", "b", "c")
    queue.publish_many(6)
    assert [who for who, _ in queue.given()] == ["a", "b", "c", "a", "b", "c"]
    for seq, who in ((2, "b"), (3, "c"), (5, "b"), (6, "c")):
        queue.ack(seq, who)
    queue.publish_many(2)
    assert [who for who, _ in queue.given()] == ["b", "c"]
    queue.ack(1, "a")
    queue.publish_many(3)
    assert [who for who, _ in queue.given()] == ["a", "b", "c"]

    queue = DrivenMessageQueue(strategy=ROUND_ROBIN, prefetch=9)
    queue.join("a", "b", "c")
    queue.publish_many(3)
    queue.dispatch()
    queue.reject(1, "a")
    queue.publish_many(3)
    assert queue.given() == [("b", 1), ("a", 4), ("c", 5), ("b", 6)]


@settings(max_examples=60, deadline=None)
@given(names, st.integers(1, 5), st.data())
def test_least_inflight_asks_whoever_holds_least(
    consumers: list[str], prefetch: int, data: st.DataObject
) -> None:
    queue = DrivenMessageQueue(strategy=LEAST_INFLIGHT, prefetch=prefetch)
    queue.join(*consumers)
    held = dict.fromkeys(sorted(consumers), 0)
    out: list[tuple[str, int]] = []
    for size in data.draw(st.lists(st.integers(1, 9), max_size=10)):
        queue.publish_many(size)
        for who, seq in queue.given():
            assert who == min(held, key=lambda name: (held[name], name))
            held[who] += 1
            out.append((who, seq))
        for _ in range(data.draw(st.integers(0, len(out)))):
            who, seq = out.pop(data.draw(st.integers(0, len(out) - 1)))
            queue.ack(seq, who)
            held[who] -= 1


@settings(max_examples=60, deadline=None)
@given(
    names,
    st.integers(1, 3),
    st.lists(st.integers(0, 2**64), min_size=1, max_size=4),
    st.data(),
)
def test_sticky_key_keeps_a_key_with_one_consumer_and_in_order(
    consumers: list[str], prefetch: int, keys: list[int], data: st.DataObject
) -> None:
    queue = DrivenMessageQueue(strategy=STICKY_KEY, prefetch=prefetch)
    queue.join(*consumers)
    homes: dict[int, str] = {}
    newest: dict[int, int] = {}
    out: list[tuple[str, int]] = []
    for _ in range(data.draw(st.integers(1, 12))):
        for key in data.draw(st.lists(st.sampled_from(keys), max_size=6)):
            queue.publish(key)
        for who, seq in queue.given():
            key = queue.stored[seq].key
            assert homes.setdefault(key, who) == who
            assert newest.get(key, 0) < seq
            newest[key] = seq
            out.append((who, seq))
        full = {name for name in consumers if [who for who, _ in out].count(name) >= prefetch}
        left = [seq for seq in queue.live() if seq not in queue.lane.held]
        assert full or not left
        if len(full) < len(consumers):  # then all were looked at
            assert all(homes.get(queue.stored[seq].key, "?") in {*full, "?"} for seq in left)
        while out and data.draw(st.booleans()):
            who, seq = out.pop(data.draw(st.integers(0, len(out) - 1)))
            queue.ack(seq, who)


def test_sticky_key_lets_others_pass_a_full_consumer() -> None:
    queue = DrivenMessageQueue(strategy=STICKY_KEY, prefetch=1)
    queue.join("x", "y")
    order = queue.group.order
    of_x = [key for key in range(100) if order[home_of(key, order, "")].name == "x"]
    of_y = [key for key in range(100) if order[home_of(key, order, "")].name == "y"]
    for key in (of_x[0], of_x[0], of_x[1], of_y[0]):
        queue.publish(key)
    assert queue.given() == [("x", 1), ("y", 4)]
    queue.leave("x")
    assert queue.given() == []
    queue.ack(4, "y")
    for seq in (1, 2, 3):  # what it had, and what waited for it
        assert queue.given() == [("y", seq)]
        queue.ack(seq, "y")


def test_sticky_key_sets_aside_a_limited_number() -> None:
    machine = MessageQueue(mq_policy_with(strategy=STICKY_KEY, prefetch=1))
    meta = Meta(0, 1_000_000)
    for name in ("x", "y"):
        machine.apply(meta, c.Join(GROUP, name, 0))
    for _ in range(ASIDE_MAX + 100):
        machine.apply(meta, c.Enqueue(Entry(0, 1, 7, meta.now_ms, 0)))
    effects: list[Effect] = []
    while not effects or machine.more:
        effects += machine.apply(meta, c.Dispatch())
    assert [type(effect) for effect in effects] == [Deliver]
    assert machine.groups[GROUP].lanes[0].aside_count == ASIDE_MAX


def test_a_strategy_changed_while_messages_are_set_aside() -> None:
    queue = DrivenMessageQueue(strategy=STICKY_KEY, prefetch=1)
    queue.join("x", "y")
    for key in (*[7] * 5, *range(20)):
        queue.publish(key)
    first = queue.given()
    assert queue.lane.aside_count
    queue.configure(strategy=ROUND_ROBIN)
    expected = [seq for seq in queue.live() if seq not in queue.lane.held]
    found = []
    while first:
        for who, seq in first:
            queue.ack(seq, who)
        first = queue.given()
        found += [seq for _, seq in first]
    assert found == expected


@settings(max_examples=40, deadline=None)
@given(names, st.text("ghi", min_size=1, max_size=3))
def test_a_new_consumer_takes_keys_from_others_and_moves_none_between_them(
    consumers: list[str], newcomer: str
) -> None:
    before = [Consumer(name, 1, 0) for name in sorted(consumers)]
    after = [Consumer(name, 1, 0) for name in sorted([*consumers, newcomer])]
    moved = 0
    for key in range(0, 2**32, 2**22):
        was, now = before[home_of(key, before, "")].name, after[home_of(key, after, "")].name
        assert now in (was, newcomer)
        assert after[home_of(key, after, newcomer)].name == was
        moved += now != was
    assert moved < 1024 * 2 / len(after)
