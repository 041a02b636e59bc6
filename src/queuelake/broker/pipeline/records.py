"""What queues keep of what they did: minutes as they pass, and when all of it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from queuelake.broker.pipeline.retention import RecordRetention
from queuelake.broker.pipeline.stats import Minutes
from queuelake.tables import ECQ_QUEUE_ID, SDV_QUEUE_ID, Table

if TYPE_CHECKING:
    from queuelake.broker.core import Broker


@final
class Records:
    """Of one broker; its queues write events by themselves."""

    def __init__(self, broker: Broker) -> None:
        lake = broker.settings.lake
        self.minutes = Minutes(broker.queues, broker.queue_upkeep, broker.timers)
        self.minutes.serve(ECQ_QUEUE_ID, broker.mailboxes.reading)
        self.minutes.serve(SDV_QUEUE_ID, broker.fanout.reading)
        self.retention = RecordRetention(broker.queues, broker.timers, broker.loop, lake)

    def start(self) -> None:
        self.minutes.start()
        self.retention.start()

    def finish(self) -> None:
        """The broker stops."""
        self.minutes.finish()

    def archived(self, table: Table, queue_id: int, upto: int) -> None:
        """The lake has the rows of `events` or `stats` of a queue up to here."""
        self.retention.archived(table, queue_id, upto)
