"""Garbage collection of message queues: what nobody told the index of last values about.

Age and limits are kept by the queues themselves, as time passes and at each write. What is left to
do is to bring queues to mind which sleep, to find messages which expire before older ones, and to
delete rows of keys whose message is gone. It is done a slice at a time, so that it never holds up a
delivery.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from queuelake.broker.interval import Interval
from queuelake.broker.queues.expiring import Sweep
from queuelake.engine.groups import GROUP
from queuelake.storage import api
from queuelake.storage import queue_tables as t

if TYPE_CHECKING:
    from queuelake.broker.message_queues.host import MessageQueueHost
    from queuelake.broker.message_queues.service import MessageQueues
    from queuelake.broker.queues.upkeep import QueueUpkeep

ROWS_PER_SLICE: Final = 500


@final
class Garbage:
    """Runs every `gc_interval`, the first time at a random moment of it."""

    def __init__(self, service: MessageQueues, upkeep: QueueUpkeep) -> None:
        self._service = service
        self._upkeep = upkeep
        self._interval = Interval(
            service.queues.clock,
            upkeep.timers,
            lambda: service.config.gc_interval_ms,
            self.collect,
        )

    def start(self) -> None:
        self._interval.begin(random.randrange(self._service.config.gc_interval_ms) + 1)

    def reschedule(self) -> None:
        self._interval.begin_anew()

    def collect(self, now_ms: int) -> None:
        """Look through all queues, from now on."""
        self._upkeep.work_on(self._look_through(now_ms))

    def _look_through(self, now_ms: int) -> Iterator[int]:
        for name in list(self._service.names()):
            known = self._service.known.get(name)
            if known is None:
                continue
            host = self._service.awake(known)
            yield from _drop_old(host)
            if host.has_expiring:
                yield from Sweep(host).run(now_ms)
            if known.settings.is_lastvalue:
                yield from _forget_gone_keys(host)


def _drop_old(host: MessageQueueHost) -> Iterator[int]:
    """What is too old, or too much, leaves some at a time."""
    counters = host.machine.counters
    idle = 0
    while not host.is_deleted and idle < 2:  # a turn may only load what the next one drops
        before = counters.expired + counters.dropped
        host.tick(host.queues.clock.now_ms())
        idle = idle + 1 if counters.expired + counters.dropped == before else 0
        yield ROWS_PER_SLICE


def _forget_gone_keys(host: MessageQueueHost) -> Iterator[int]:
    """Delete rows of LATEST whose message has left."""
    prefix = t.queue_key(host.id)
    start, stop = prefix, prefix + b"\xff" * t.KEY_BYTES_MAX
    while not host.is_deleted:
        rows: list[tuple[bytes, bytes]] = []
        with host.queues.store.view() as view:
            for row in view.scan(api.LATEST, start, stop):
                rows.append(row)
                if len(rows) == ROWS_PER_SLICE:
                    break
        settled = host.machine.groups[GROUP].lanes[0].settled
        for key, value in rows:
            if t.read_latest(value)[0] in settled:
                host.forget_key(int.from_bytes(key[8:], "big"), t.read_latest(value)[0])
        if len(rows) < ROWS_PER_SLICE:
            return
        start = rows[-1][0] + b"\0"
        yield len(rows)
