"""What queues need as time passes: timeouts and retries, delayed messages, sleep.

A queue which is awake is looked at in every slot of the timer wheel while something in it waits,
and once in a second otherwise, a part of them in each slot. What has to read much of the store is
done in slices: in each slot all queues together get `RECORDS_PER_SLOT`, in turn, which is 12,000
records a second.

A queue sleeps when nobody has used it for a while, and it is known when time will change something
in it: a message expires or is too old for its stream, a group was forgotten by its consumers. At
that time it wakes. After a start nobody knows that yet, so every queue wakes once. At most
`WAKES_PER_SECOND` do so: what expires in one of N queues is gone after N / 20 seconds at the
latest, plus one second for each 12,000 messages which lie in front of it.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Iterator
from typing import Final, final

from queuelake.broker.clock import SLOT_MS, TimerWheel
from queuelake.broker.queues.durable import DurableHost
from queuelake.broker.queues.expiring import NEVER
from queuelake.broker.queues.host import HostedQueue
from queuelake.broker.queues.hosts import SWEEP_ROWS
from queuelake.broker.queues.maintenance import Maintenance
from queuelake.broker.queues.membership import join, leave
from queuelake.broker.queues.reading import forget_settled
from queuelake.broker.queues.registry import Queues
from queuelake.engine import commands as c
from queuelake.storage import api
from queuelake.storage import queue_tables as t
from queuelake.storage.delayed import delete_delayed, read_delayed

log = logging.getLogger("queuelake.queues")

DUE_PER_TICK_MAX: Final = 1_000
FORGET_IDS_EVERY_MS: Final = 10_000
RECORDS_PER_SLOT: Final = 3_000
WAKES_PER_SECOND: Final = 20
SLOTS_PER_SECOND: Final = 1000 // SLOT_MS


@final
class QueueUpkeep:
    """One timer for all queues."""

    def __init__(self, queues: Queues, timers: TimerWheel) -> None:
        self._queues = queues
        self.timers = timers
        self._maintained: dict[int, Maintenance] = {}  # by the id of the queue
        self._work: deque[Iterator[int]] = deque()
        self._unknown: list[str] = []  # queues which have not been awake since the start
        self._wakes: list[tuple[int, str]] = []  # heap: when which queue must wake
        self._ticks = 0

    def start(self) -> None:
        self._unknown = self._queues.all_names()
        self._turn(self._queues.clock.now_ms())

    def work_on(self, work: Iterator[int]) -> None:
        """Something which takes long: done a slice at a time, each yields its cost in records."""
        self._work.append(work)

    def wake_soon(self, name: str) -> None:
        """There is something to do for a queue which may be asleep."""
        heapq.heappush(self._wakes, (0, name))

    def _turn(self, now_ms: int) -> None:
        self._ticks += 1
        for host in list(self._queues.hosts.values()):
            try:
                has_turn = (self._ticks + host.id) % SLOTS_PER_SECOND == 0
                if has_turn or host.machine.is_waiting():
                    self._tend(host, now_ms, has_turn)
            except Exception:  # a bug in one queue must not stop the time of all others
                log.exception("upkeep of %r", host.name)
        try:
            self._work_a_slice()
            if self._ticks % SLOTS_PER_SECOND == 0:
                self._sweep_deleted()
                self._wake(now_ms)
        finally:  # whatever was wrong, time goes on
            self.timers.arm(now_ms + 1, self._turn)

    def _tend(self, host: HostedQueue, now_ms: int, has_turn: bool) -> None:
        if host.machine.delayed and isinstance(host, DurableHost):
            self._release_due(host, now_ms)
        host.tick(now_ms)
        if not has_turn:
            return
        host.rates.sample(now_ms, host.machine.counters)
        host.tidy()
        if host.ephemeral:
            forget_settled(host)
        self._watch_consumers(host, now_ms)
        self._work.extend(self._maintenance(host, now_ms).tend(now_ms))
        if now_ms >= host.next_forget_ms and not host.ephemeral:
            host.next_forget_ms = now_ms + FORGET_IDS_EVERY_MS
            self.forget_ids(host.id, now_ms)
        self._sleep_if_idle(host, now_ms)

    def _release_due(self, host: DurableHost, now_ms: int) -> None:
        """Delayed messages whose time has come join their partition."""
        with self._queues.store.view() as view:
            found = read_delayed(view, host.id, now_ms, DUE_PER_TICK_MAX)
        batch = self._queues.runner.group.batch
        for delayed in found:
            if host.is_released(delayed.due_ms, delayed.number):
                continue  # in a commit which is under way
            record = delayed.record
            record.ts_ms = now_ms  # it is as old as others see it: times of a partition never fall
            host.enqueue(record, delayed.partition, b"", c.DUE, now_ms)
            delete_delayed(batch, host.id, delayed)

    def _watch_consumers(self, host: HostedQueue, now_ms: int) -> None:
        """Who was sent something and is silent for too long is not there any more.

        MQTT's keep-alive ends most of them before. A client without one which does not even
        acknowledge what it gets leaves its group, and joins again with its next sign of life.
        """
        timeout_ms = host.machine.policy.heartbeat_timeout_ms
        if not timeout_ms:
            return
        for subscriber in list(host.subscribers.values()):
            connection = subscriber.session.connection
            deliveries = subscriber.session.deliveries
            if connection is None:
                continue
            silent_ms = now_ms - connection.seen_ms
            if subscriber.lost:
                if silent_ms < timeout_ms:
                    subscriber.lost = False
                    join(host, subscriber, now_ms)
            elif silent_ms >= timeout_ms and deliveries is not None and deliveries.inflight:
                leave(host, subscriber, True, now_ms)
                subscriber.lost = True
                host.subscribers[subscriber.tag] = subscriber

    def forget_ids(self, queue_id: int, now_ms: int) -> None:
        """Rows of message ids whose time is over."""
        prefix = t.queue_key(queue_id)
        with self._queues.store.view() as view:
            stop = t.dedupe_key(queue_id, now_ms, 0)
            for key in view.scan_keys(api.DEDUPE, prefix, stop):
                self._queues.runner.delete(api.DEDUPE, key)

    def _maintenance(self, host: HostedQueue, now_ms: int) -> Maintenance:
        found = self._maintained.get(host.id)
        if found is None or found.machine is not host.machine:
            found = self._maintained[host.id] = Maintenance(host, now_ms)
        return found

    def _work_a_slice(self) -> None:
        left = RECORDS_PER_SLOT
        waiting: list[Iterator[int]] = []
        while self._work and left > 0:
            work = self._work.popleft()
            try:
                done = next(work, -1)
            except Exception:
                log.exception("looking through a queue")
                continue
            if done == 0:
                waiting.append(work)
            elif done > 0:
                left -= done
                self._work.append(work)
        self._work.extend(waiting)

    # Sleep

    def _sleep_if_idle(self, host: HostedQueue, now_ms: int) -> None:
        is_answered = host.ephemeral and host.machine.counters.acked > 0
        if host.subscribers and not is_answered:
            host.active_ms = now_ms
            return
        if host.group > self._queues.runner.durable:
            return
        section = self._queues.settings
        if host.ephemeral:
            if now_ms - host.active_ms >= section.response_ttl_s * 1000:
                self._forget(host)
                self._queues.delete(host.name)
        elif now_ms - host.active_ms >= section.idle_unload_s * 1000:
            if host.machine.is_waiting() or host.waiting:
                return
            if any([group.dirty for group in host.machine.groups.values()]):
                host.changed()
                return
            wake_ms = self._maintained[host.id].wake_ms()
            if wake_ms > now_ms:
                self._forget(host)
                self._queues.unload(host)
                if wake_ms < NEVER:
                    heapq.heappush(self._wakes, (wake_ms, host.name))

    def _forget(self, host: HostedQueue) -> None:
        self._maintained.pop(host.id, None)

    def _wake(self, now_ms: int) -> None:
        """Queues in which something is due, and after a start every one in turn."""
        for _ in range(WAKES_PER_SECOND):
            if self._wakes and self._wakes[0][0] <= now_ms:
                name = heapq.heappop(self._wakes)[1]
            elif self._unknown:
                name = self._unknown.pop()
            else:
                return
            if self._queues.sleeping_id(name):
                try:
                    self._queues.wake(name)
                except Exception:  # nor may one which cannot wake keep others asleep
                    log.exception("waking %r", name)

    def _sweep_deleted(self) -> None:
        """What is left of queues which were deleted goes a part at a time."""
        if len(self._maintained) > len(self._queues.hosts):
            awake = {host.id for host in self._queues.hosts.values()}
            for queue_id in self._maintained.keys() - awake:
                del self._maintained[queue_id]
        with self._queues.store.view() as view:
            if not t.doomed_queues(view):
                return
        self._queues.runner.group.batch.sweep(SWEEP_ROWS)
        self._queues.runner.wake()
