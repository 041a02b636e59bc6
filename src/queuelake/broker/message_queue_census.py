"""All message queues in figures, for one scrape; in slices, as `queue_census` does it."""

from __future__ import annotations

from typing import Final, Protocol, final

import msgspec

from queuelake.broker.message_queues.metrics import CLASSES, MqMetrics
from queuelake.broker.naming import Naming, Seen
from queuelake.broker.sleepers import Sleepers
from queuelake.broker.slices import in_slices
from queuelake.control_mq import MqClassFigures, MqFigures, MqStats
from queuelake.control_queues import OTHER
from queuelake.mq_settings import MqSettings
from queuelake.settings import Metrics

# The fields of MqStats, by how those of many queues are put together.
COUNTERS: Final = (
    *("received", "inserted", "insert_errors", "key_errors", "delivered"),
    *("redispatched", "rejected", "acked", "expired", "dropped"),
)
GAUGES: Final = ("messages", "ready", "in_flight", "subscribers", "bytes")


class MessageQueueSource(Protocol):
    """What is asked of the message queues of a broker."""

    @property
    def metrics(self) -> MqMetrics: ...
    def names(self) -> list[str]: ...
    def find(self, name: str) -> MqSettings | None: ...
    def stats(self, name: str, sleepers: Sleepers | None = None) -> MqStats: ...


@final
class SeenMessageQueue(Seen):
    __slots__ = ("stats",)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.stats = MqStats()

    def look(self, stats: MqStats) -> None:
        self.stats = stats
        self.count([getattr(stats, field) for field in COUNTERS])


class MessageQueueCensus:
    """Counts the message queues of one broker; one count at a time."""

    def __init__(
        self, source: MessageQueueSource, sleepers: Sleepers | None, settings: Metrics
    ) -> None:
        self._source = source
        self._sleepers = sleepers
        self._naming = Naming(settings.queues_max, len(COUNTERS), SeenMessageQueue)

    async def take(self) -> MqFigures:
        naming = self._naming
        naming.begin()
        if self._sleepers is not None:
            await self._sleepers.look()
        known = self._source.names().copy()
        await in_slices(known, self._look_at)
        named, others = await naming.choose()
        sums = dict.fromkeys(GAUGES, 0)

        def add(seen: SeenMessageQueue) -> None:
            naming.leave_out(seen)
            for field in GAUGES:
                sums[field] += getattr(seen.stats, field)

        await in_slices(others, add)
        shown = {one.name: one.stats for one in named}
        if naming.left_out or any(naming.rest):
            totals = dict(zip(COUNTERS, naming.rest, strict=True))
            shown[OTHER] = msgspec.convert(sums | totals, MqStats)
        return MqFigures(len(known), self._classes(), shown, naming.left_out)

    def _look_at(self, name: str) -> None:
        if self._source.find(name) is not None:  # it may have been deleted meanwhile
            seen = self._naming.see(name)
            seen.look(self._source.stats(name, self._sleepers))
            self._naming.rate(seen, seen.stats.messages + sum(seen.gained))

    def _classes(self) -> dict[str, MqClassFigures]:
        return {
            name: MqClassFigures(
                counted.received_messages,
                counted.inserted_messages,
                counted.insert_errors,
                list(counted.insert_latency.counts),
                counted.insert_latency.total,
            )
            for name, counted in zip(CLASSES, self._source.metrics.classes, strict=True)
        }
