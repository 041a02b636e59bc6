"""What a queue which is awake needs besides its clients: retention, compaction, a look for what has
expired; and when it may sleep, and until when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, final

from queuelake.broker.queues.compaction import Compaction
from queuelake.broker.queues.expiring import NEVER, Sweep
from queuelake.broker.queues.retention import Retention
from queuelake.engine.upkeep import over_ms
from queuelake.storage import api
from queuelake.storage import queue_tables as t

if TYPE_CHECKING:
    from queuelake.broker.queues.host import HostedQueue


@final
class Maintenance:
    """Of one machine: a queue which was loaded again has another."""

    __slots__ = ("_compaction", "_host", "_retention", "_sweep", "machine")

    def __init__(self, host: HostedQueue, now_ms: int) -> None:
        self._host = host
        self.machine = host.machine
        self._sweep = Sweep(host)
        self._retention = Retention(host)
        self._compaction = Compaction(host, now_ms)

    def tend(self, now_ms: int) -> list[Iterator[int]]:
        """Once in a second; returns work which is to be done a slice at a time."""
        if self._host.ephemeral:
            return []
        work: list[Iterator[int]] = []
        hold = self._host.hold
        if hold is not None and not hold.is_counting and not hold.is_counted():
            work.append(hold.count(self._host))
        if self.machine.policy.is_stream:
            self._retention.retain(now_ms)
            if not self._compaction.is_running and self._compaction.is_due(now_ms):
                work.append(self._compact(now_ms))
        if not self._sweep.is_running and self._sweep.is_due(now_ms):
            work.append(self._sweep.run(now_ms))
        return work

    def _compact(self, now_ms: int) -> Iterator[int]:
        yield from self._compaction.run(now_ms)
        self._retention.recount()

    def wake_ms(self) -> int:
        """When a queue which sleeps from now on must wake; 0: it may not sleep yet."""
        machine = self.machine
        if self._sweep.is_running or self._sweep.next_ms == 0 or not self._compaction.is_done():
            return 0
        if self._host.hold is not None and not self._host.hold.is_counted():
            return 0
        times = [self._sweep.due_ms(), self._ids_over_ms()]
        if machine.expiry.soon:
            times.append(machine.expiry.soon[0][0])
        for partition in machine.partitions:
            if partition.last > partition.gone.upto:
                if partition.head_seq != partition.gone.upto + 1:
                    return 0  # nobody knows yet how long its oldest message lives
                times.append(partition.head_expires_ms or NEVER)
        for group in machine.groups.values():
            times.append(over_ms(machine.policy, group) or NEVER)
        if machine.policy.is_stream:
            times.append(self._retention.due_ms() or NEVER)
        return min(times)

    def _ids_over_ms(self) -> int:
        """When the rows of all message ids may go."""
        prefix = t.queue_key(self._host.id)
        with self._host.queues.store.view() as view:
            found = view.last_below(api.DEDUPE, prefix + b"\xff" * t.KEY_BYTES_MAX)
        if found is None or not found[0].startswith(prefix):
            return NEVER
        return int.from_bytes(found[0][8:16], "big") + 1
