"""All queues of a broker in one list, for tabs which show it: names, figures, rates.

The list is asked for page by page and shared by all tabs; the more queues, the less often. Rates
and ages come from the sampler, which knows the largest queues. Nothing here wakes a queue.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, Literal, NamedTuple

from msgspec import UNSET

from queuelake import names
from queuelake.admin.console.sampler import Sampler
from queuelake.admin.services import Services
from queuelake.control_mq import QUEUES_PER_PAGE_MAX, MqInfo
from queuelake.control_queues import ITEMS_PER_PAGE_MAX, QueueSummary

AGE_S_MIN: Final = 2.0
QUEUES_PER_S: Final = 1000  # how many are listed for each second between two lists

Kind = Literal["queue", "stream", "quorum", "message queue", "last value"]


class Row(NamedTuple):
    """One queue; `name` is bare. What is not known is None."""

    kind: Kind
    name: str
    depth: int = 0
    in_flight: int = 0
    consumers: int = 0
    in_per_s: float = 0.0
    out_per_s: float = 0.0
    oldest_s: float | None = None
    dead: int = 0
    topic_filter: str = ""

    @property
    def is_background(self) -> bool:
        """Made for other queues: dead letters and replies."""
        is_own = self.kind in ("queue", "stream")
        return is_own and (names.is_dead_letter(self.name) or names.is_response(self.name))


class Directory:
    """The queues of one broker, at most a few seconds old."""

    def __init__(self, services: Services, sampler: Sampler) -> None:
        self._services = services
        self._sampler = sampler
        self._listing = asyncio.Lock()
        self._listed_at = float("-inf")
        self._durable: list[QueueSummary] = []
        self._message: list[MqInfo] = []

    async def rows(self) -> list[Row]:
        """Every queue, by name.

        Raises:
            QueuelakeError: the broker does not answer.
        """
        async with self._listing:
            age_s = max(AGE_S_MIN, len(self._durable) / QUEUES_PER_S)
            if time.monotonic() - self._listed_at > age_s:
                self._durable = await self._list_durable()
                self._message = await self._list_message()
                self._listed_at = time.monotonic()
        depths = {one.name: one.depth for one in self._durable}
        rows = [self._durable_row(one, depths) for one in self._durable]
        rows += [self._message_row(one, depths) for one in self._message]
        return rows

    def forget(self) -> None:
        """Something was changed: the next list is a new one."""
        self._listed_at = float("-inf")

    async def _list_durable(self) -> list[QueueSummary]:
        found: list[QueueSummary] = []
        cursor: str | None = ""
        while cursor is not None:
            page = await self._services.queues(ITEMS_PER_PAGE_MAX, cursor)
            found += page.queues
            cursor = page.next
        return found

    async def _list_message(self) -> list[MqInfo]:
        found: list[MqInfo] = []
        cursor, more = "", True
        while more:
            page = await self._services.message_queues(QUEUES_PER_PAGE_MAX, cursor)
            found += page.data
            cursor = "" if page.meta.cursor is UNSET else page.meta.cursor
            more = page.meta.hasnext and bool(cursor)
        return found

    def _durable_row(self, one: QueueSummary, depths: dict[str, int]) -> Row:
        name = names.bare_name(one.name)
        flow, known = self._sampler.flows.get(one.name), self._sampler.queues.get(one.name)
        return Row(
            "queue" if one.type == "classic" else one.type,
            name,
            one.depth,
            one.in_flight,
            one.consumers,
            in_per_s=0.0 if flow is None else flow.in_per_s,
            out_per_s=0.0 if flow is None else flow.out_per_s,
            oldest_s=None if known is None else known.oldest_age_s,
            dead=depths.get(names.address(names.dead_letter_name(name)), 0),
        )

    def _message_row(self, one: MqInfo, depths: dict[str, int]) -> Row:
        metrics = self._sampler.metrics
        stats = None if metrics is None else metrics.mq.named.get(one.name)
        flow = self._sampler.message_flows.get(one.name)
        letters = names.address(names.dead_letter_name_of_filter(one.name))
        row = Row(
            "last value" if one.is_lastvalue else "message queue",
            one.name,
            dead=depths.get(letters, 0),
            topic_filter=one.topic_filter,
            in_per_s=0.0 if flow is None else flow.in_per_s,
            out_per_s=0.0 if flow is None else flow.out_per_s,
        )
        if stats is None:
            return row
        return row._replace(
            depth=stats.messages,
            in_flight=stats.in_flight,
            consumers=stats.subscribers,
            oldest_s=stats.oldest_age_ms / 1000 if stats.messages else None,
        )
