"""Which queues a scrape names, what it tells of them, and what it says of all others together."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from queuelake.broker import slices
from queuelake.broker.operations import Operations
from queuelake.broker.queue_census import QueueCensus
from queuelake.broker.queue_operations import QueueOperations
from queuelake.broker.sleepers import Sleepers
from queuelake.broker.slices import in_slices
from queuelake.control_queues import OTHER, QueueMetrics
from queuelake.queue_settings import QueueLimits, QueueSettings
from queuelake.settings import Metrics, Queues, Settings
from tests.harness import packets as p
from tests.simulation.node import Node, Peer


class Scraped:
    """A node, and its queues as scrapes see them."""

    def __init__(self, queues_max: int = 1000, groups_max: int = 20, **defaults: Any) -> None:
        queues = Queues(defaults=QueueSettings(**{"partitions": 1} | defaults))
        self.node = Node(Settings(queues=queues))
        metrics = Metrics(queues_max=queues_max, groups_per_queue_max=groups_max)
        self.census = QueueCensus(self.node.broker.queues, metrics)
        self.publisher = self.node.client("publisher")
        self.left_out = 0

    def publish(self, queue: str, count: int = 1) -> None:
        for _ in range(count):
            self.publisher.publish(f"$queue/{queue}", b"x", 1, 1)
            self.node.work()
        self.publisher.take_all()

    def consumer(self, queue: str, group: str = "workers", client_id: str = "") -> Peer:
        peer = self.node.client(client_id or f"{queue}-{group}")
        properties: p.Properties = {"user_property": [("consumer-group", group)]}
        peer.transport.send(p.subscribe(1, [(f"$queue/{queue}", 1)], properties=properties))
        self.node.work()
        assert peer.take().type == p.SUBACK
        return peer

    async def scrape(self) -> dict[str, QueueMetrics]:
        found = await self.census.take()
        self.left_out = found.left_out
        return {one.queue.removeprefix("$queue/"): one for one in found.queues}


async def test_a_queue_is_told_with_what_waits_in_it_and_since_when() -> None:
    scraped = Scraped(limits=QueueLimits(max_queue_depth=50))
    scraped.consumer("tasks")
    scraped.publish("tasks", 3)
    scraped.node.pass_time(1500)
    tasks = (await scraped.scrape())["tasks"]
    assert (tasks.depth, tasks.in_flight, tasks.ready) == (3, 3, 0)
    assert (tasks.enqueued, tasks.dequeued, tasks.acked) == (3, 3, 0)
    assert (tasks.depth_max, tasks.consumers_by_group) == (50, {"workers": 1})
    assert tasks.oldest_age_s == pytest.approx(1.5, abs=0.3)
    assert scraped.left_out == 0


async def test_an_idle_queue_is_told_without_counting_it_again() -> None:
    scraped = Scraped()
    scraped.consumer("tasks")
    idle = (await scraped.scrape())["tasks"]
    assert (await scraped.scrape())["tasks"] is idle
    scraped.consumer("tasks", "others")
    changed = (await scraped.scrape())["tasks"]
    assert changed.consumers_by_group == {"workers": 1, "others": 1}
    scraped.publish("tasks")
    assert (await scraped.scrape())["tasks"].enqueued == 1


async def test_the_oldest_message_is_found_in_the_store() -> None:
    scraped = Scraped()
    scraped.consumer("tasks")
    scraped.publish("tasks")
    scraped.node.pass_time(2000)
    scraped.publish("tasks")
    host = scraped.node.broker.queues.get("tasks")
    host.machine.partitions[0].window.clear()
    for group in host.machine.groups.values():
        group.lanes[0].held.clear()
    assert (await scraped.scrape())["tasks"].oldest_age_s == pytest.approx(2.0, abs=0.3)


async def test_a_sleeping_queue_has_its_depth_and_age() -> None:
    scraped = Scraped()
    scraped.publish("tasks", 2)
    scraped.node.pass_time(60_000)
    assert not scraped.node.broker.queues.hosts
    tasks = (await scraped.scrape())["tasks"]
    assert tasks.asleep
    assert tasks.depth == 2
    assert tasks.oldest_age_s == pytest.approx(60, abs=1)
    scraped.publish("tasks")
    tasks = (await scraped.scrape())["tasks"]
    assert not tasks.asleep
    assert (tasks.depth, tasks.enqueued) == (3, 1)


async def test_a_queue_which_falls_asleep_is_in_the_next_scrape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scraped = Scraped()
    scraped.publish("tasks", 2)
    assert (await scraped.scrape())["tasks"].depth == 2
    monkeypatch.setattr("queuelake.broker.sleepers.LOOKS", 0)  # its turn has not come
    monkeypatch.setattr("queuelake.broker.sleepers.LOOKS_AT_FIRST", 0)
    scraped.node.pass_time(60_000)
    tasks = (await scraped.scrape())["tasks"]
    assert (tasks.asleep, tasks.depth) == (True, 2)
    assert (await scraped.scrape())["tasks"].depth == 2


async def test_those_above_the_limit_are_one_sum() -> None:
    scraped = Scraped(queues_max=2)
    for number in range(1, 6):
        scraped.publish(f"q{number}", number)
    found = await scraped.scrape()
    assert set(found) == {"q5", "q4", OTHER}
    assert (found[OTHER].depth, found[OTHER].enqueued, scraped.left_out) == (6, 6, 3)
    assert sum(one.depth for one in found.values()) == 15


async def test_the_sum_only_rises_and_counts_nothing_twice_whoever_is_named() -> None:
    scraped = Scraped(queues_max=1)
    scraped.publish("a", 3)
    scraped.publish("b", 1)
    assert (await scraped.scrape())[OTHER].enqueued == 1
    scraped.publish("b", 20)  # b is named now, with all it counted; a is not any more
    found = await scraped.scrape()
    assert (found["b"].enqueued, found[OTHER].enqueued) == (21, 1)
    scraped.publish("a", 2)
    assert (await scraped.scrape())[OTHER].enqueued == 3
    scraped.node.broker.queues.delete("a")
    scraped.node.work()
    found = await scraped.scrape()
    assert (found[OTHER].enqueued, found[OTHER].depth, scraped.left_out) == (3, 0, 0)


async def test_a_named_queue_stays_named_until_another_is_twice_as_large() -> None:
    scraped = Scraped(queues_max=1)
    scraped.publish("a", 5)
    await scraped.scrape()
    await scraped.scrape()  # nothing moves: depth alone counts
    scraped.publish("b", 4)
    assert "a" in await scraped.scrape()
    scraped.publish("b", 10)
    assert "b" in await scraped.scrape()


async def test_groups_above_the_limit_are_one_sum() -> None:
    scraped = Scraped(groups_max=1)
    for group, client_id in (("one", "1"), ("one", "2"), ("two", "3"), ("three", "4")):
        scraped.consumer("tasks", group, client_id)
    found = await scraped.scrape()
    assert found["tasks"].consumers_by_group == {"one": 2, OTHER: 2}


async def test_each_scrape_looks_at_some_sleepers_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuelake.broker.sleepers.LOOKS_AT_FIRST", 2)
    scraped = Scraped()
    for number in range(5):
        scraped.publish(f"q{number}")
    scraped.node.pass_time(60_000)
    queues = scraped.node.broker.queues
    sleepers = Sleepers(queues, queues.names)
    known = []
    for _ in range(3):
        await sleepers.look()
        known.append(len(sleepers.known))
    assert known == [2, 4, 5]


async def test_those_who_ask_at_the_same_time_get_the_same_snapshot() -> None:
    scraped = Scraped()
    ask = Operations(scraped.node.broker, [], {}, {}).table()["metrics"]
    one, two = await asyncio.gather(ask({}), ask({}))  # type: ignore[arg-type]
    assert one is two
    assert await ask({}) is not one  # type: ignore[misc]


async def test_others_have_their_turn_between_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    turns: list[str] = []
    working = asyncio.create_task(in_slices(["a", "b", "c"], turns.append))
    while not working.done():
        turns.append("-")
        await asyncio.sleep(0)
    assert re.sub("-+", "-", "".join(turns)).strip("-") == "a-b-c"


async def test_a_list_remembers_sleepers_until_they_stir() -> None:
    scraped = Scraped()
    operations = QueueOperations(scraped.node.broker.queues)

    async def listed() -> dict[str, int]:
        page = await operations.queues({"limit": 10})
        return {one.name.removeprefix("$queue/"): one.depth for one in page.queues}

    scraped.publish("tasks", 2)
    scraped.publish("gone")
    fall_asleep(scraped.node)
    assert await listed() == {"gone": 1, "tasks": 2}
    scraped.publish("tasks")  # it wakes, and sleeps again before anybody looks
    fall_asleep(scraped.node)
    scraped.node.broker.queues.remove(scraped.node.broker.queues.get("gone"))
    scraped.node.work()
    assert await listed() == {"tasks": 3}
    scraped.publish("gone", 2)
    fall_asleep(scraped.node)
    assert await listed() == {"gone": 2, "tasks": 3}


def fall_asleep(node: Node) -> None:
    for _ in range(30):
        if not node.broker.queues.hosts:
            return
        node.pass_time(10_000)
    raise AssertionError(f"awake: {list(node.broker.queues.hosts)}")
