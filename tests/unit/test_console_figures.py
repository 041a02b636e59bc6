"""The sampler, the list of queues, and numbers as people read them: without a browser."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from queuelake.admin.console import human, sampler
from queuelake.admin.console.directory import Directory
from queuelake.admin.console.sampler import Sampler
from queuelake.control import Histogram, MetricsSnapshot, Readiness
from queuelake.control_mq import MqPage, MqPageMeta
from queuelake.control_queues import QueueMetrics, QueuePage, QueueSummary
from queuelake.errors import BrokerDownError


class FakeServices:
    def __init__(self) -> None:
        self.scrapes = 0
        self.lists = 0
        self.is_down = False
        self.scraped = asyncio.Event()

    async def metrics(self) -> MetricsSnapshot:
        self.scrapes += 1
        self.scraped.set()
        if self.is_down:
            raise BrokerDownError("nobody there")
        received = [0, 100 * self.scrapes, 0]
        queue = QueueMetrics("$queue/a", depth=5, enqueued=10 * self.scrapes, oldest_age_s=3.0)
        commits = Histogram([1.0], [self.scrapes, 0], 0.002 * self.scrapes)
        return MetricsSnapshot(
            "1",
            True,
            messages_received_by_qos=received,
            queue_metrics=[queue],
            commit_duration_s=commits,
        )

    async def readiness(self) -> Readiness:
        return Readiness(ready=True)

    async def queues(self, limit: int, cursor: str) -> QueuePage:
        self.lists += 1
        names = ["$queue/a", "$queue/b"] if not cursor else ["$queue/dlq/a"]
        found = [QueueSummary(name, 1, "none", depth=7) for name in names]
        return QueuePage(found, None if cursor else "b")

    async def message_queues(self, limit: int, cursor: str) -> MqPage:
        return MqPage([], MqPageMeta(False))


@pytest.fixture
def services() -> Any:
    return FakeServices()


async def scraped(services: Any, times: int) -> None:
    async with asyncio.timeout(20):
        while services.scrapes < times:
            services.scraped.clear()
            await services.scraped.wait()


async def test_the_broker_is_asked_only_while_a_tab_is_open(
    services: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "INTERVAL_S", 0.001)
    figures = Sampler(services)
    assert services.scrapes == 0
    figures.join("tab 1")
    figures.join("tab 2")
    figures.leave("tab 1")
    await scraped(services, 3)
    figures.leave("tab 2")
    await asyncio.wait_for(figures.idle(), 20)
    seen = services.scrapes
    figures.join("tab 3")
    await scraped(services, seen + 1)
    await figures.close()


async def test_counters_become_rates_and_a_broker_which_is_away_is_said(
    services: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(1000, 2000, 2))
    monkeypatch.setattr(sampler.time, "time", lambda: float(next(clock)))
    figures = Sampler(services)
    await figures.sample()
    await figures.sample()
    [point] = figures.points
    assert (point.received_per_s, point.depth) == (50.0, 5)
    assert point.commit_ms == pytest.approx(2.0)
    assert figures.flows["$queue/a"].in_per_s == 5.0
    services.is_down = True
    await figures.sample()
    assert figures.problem == "nobody there"
    services.is_down = False
    await figures.sample()
    assert figures.problem == ""


async def test_the_list_is_shared_and_knows_dead_letters(services: Any) -> None:
    figures = Sampler(services)
    await figures.sample()
    directory = Directory(services, figures)
    rows = {row.name: row for row in await directory.rows()}
    assert (rows["a"].dead, rows["a"].oldest_s, rows["b"].dead) == (7, 3.0, 0)
    assert rows["dlq/a"].is_background
    await directory.rows()
    assert services.lists == 2
    directory.forget()
    await directory.rows()
    assert services.lists == 4


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (human.count(99_999), "99,999"),
        (human.count(1_234_567), "1.2 M"),
        (human.rate(0.25), "0.2/s"),
        (human.size(1536), "1.5 KiB"),
        (human.duration(0.0123), "12.3 ms"),
        (human.duration(93_784), "1 d 2 h"),
        (human.duration(3600), "1 h"),
        (human.ago(0), ""),
        (human.ago(1_000, now_s=66), "1 min 5 s ago"),
        (human.moment(1_000), "1970-01-01 00:00:01.000 UTC"),
        (human.ranges([3, 1, 2, 7]), "1-3, 7"),
        (human.best_view(b"\xff\x00"), "hex"),
        (human.best_view(b'{"a":1}'), "json"),
        (human.payload(b"A\n", "hex"), "00000000  41 0a" + " " * 44 + "A."),
    ],
)
def test_people_can_read_it(shown: str, text: str) -> None:
    assert shown == text
