"""What queues need as time passes: timeouts and retries, delayed messages, sleep.

A queue which is awake is looked at in every slot of the timer wheel while something in it waits,
and once in a second otherwise.
"""

from __future__ import annotations

import logging
from typing import Final, final

from queuelake.broker.clock import SLOT_MS, TimerWheel
from queuelake.broker.queues.host import HostedQueue
from queuelake.broker.queues.membership import join, leave
from queuelake.broker.queues.registry import SWEEP_ROWS, Queues
from queuelake.broker.queues.retention import retain
from queuelake.engine import commands as c
from queuelake.storage import api
from queuelake.storage import queue_tables as t
from queuelake.storage.delayed import delete_delayed, next_due_ms, read_delayed

log = logging.getLogger("queuelake.queues")

DUE_PER_TICK_MAX: Final = 1_000
FORGET_IDS_EVERY_MS: Final = 10_000
SLEEPERS_PER_TICK: Final = 20  # looked at, in turn, whether they must wake


@final
class QueueUpkeep:
    """One timer for all queues."""

    def __init__(self, queues: Queues, timers: TimerWheel) -> None:
        self._queues = queues
        self._timers = timers
        self._next_forget_ms = 0
        self._sleepers: list[str] = []
        self._ticks = 0

    def start(self) -> None:
        self._turn(self._queues.clock.now_ms())

    def _turn(self, now_ms: int) -> None:
        self._ticks += 1
        whole_second = self._ticks % (1000 // SLOT_MS) == 0
        for host in list(self._queues.hosts.values()):
            try:
                if whole_second or host.machine.is_waiting():
                    self._tend(host, now_ms, whole_second)
            except Exception:  # a bug in one queue must not stop the time of all others
                log.exception("upkeep of %r", host.name)
        if whole_second:
            self._look_after_sleepers(now_ms)
        self._timers.arm(now_ms + 1, self._turn)

    def _tend(self, host: HostedQueue, now_ms: int, whole_second: bool) -> None:
        if host.machine.delayed:
            self._release_due(host, now_ms)
        host.tick(now_ms)
        if not whole_second:
            return
        host.rates.sample(now_ms, host.machine.counters)
        host.tidy()
        self._watch_consumers(host, now_ms)
        if host.machine.policy.is_stream:
            retain(host, now_ms)
        if now_ms >= host.next_forget_ms:
            host.next_forget_ms = now_ms + FORGET_IDS_EVERY_MS
            self._forget_ids(host, now_ms)
        self._sleep_if_idle(host, now_ms)

    def _release_due(self, host: HostedQueue, now_ms: int) -> None:
        """Delayed messages whose time has come join their partition."""
        with self._queues.store.view() as view:
            found = read_delayed(view, host.id, now_ms, DUE_PER_TICK_MAX)
        batch = self._queues.runner.group.batch
        for delayed in found:
            if host.is_released(delayed.due_ms, delayed.number):
                continue  # in a commit which is under way
            record = delayed.record
            host.enqueue(record, delayed.partition, b"", c.DUE, now_ms)
            delete_delayed(batch, host.id, delayed)

    def _watch_consumers(self, host: HostedQueue, now_ms: int) -> None:
        """Who was sent something and is silent for too long is not there any more.

        MQTT's keep-alive ends most of them before. A client without one which does not even
        acknowledge what it gets leaves its group, and joins again with its next sign of life.
        """
        timeout_ms = host.machine.policy.heartbeat_timeout_ms
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

    def _forget_ids(self, host: HostedQueue, now_ms: int) -> None:
        """Rows of message ids whose time is over."""
        if host.ephemeral:
            return
        prefix = t.queue_key(host.id)
        batch = self._queues.runner.group.batch
        with self._queues.store.view() as view:
            stop = t.dedupe_key(host.id, now_ms, 0)
            for key in view.scan_keys(api.DEDUPE, prefix, stop):
                batch.delete(api.DEDUPE, key)

    def _sleep_if_idle(self, host: HostedQueue, now_ms: int) -> None:
        if host.subscribers or host.group > self._queues.runner.durable:
            return
        section = self._queues.settings
        if host.ephemeral:
            if now_ms - host.active_ms >= section.response_ttl_s * 1000:
                self._queues.delete(host.name)
        elif now_ms - host.active_ms >= section.idle_unload_s * 1000:
            if not host.machine.is_waiting() and not host.waiting:
                self._queues.unload(host)

    def _look_after_sleepers(self, now_ms: int) -> None:
        """Wake queues in which something is due; what is left of deleted ones goes."""
        if not self._sleepers:
            self._sleepers = self._queues.names().copy()
            with self._queues.store.view() as view:
                if t.doomed_queues(view):
                    self._queues.runner.group.batch.sweep(SWEEP_ROWS)
                    self._queues.runner.wake()
        for _ in range(min(SLEEPERS_PER_TICK, len(self._sleepers))):
            name = self._sleepers.pop()
            queue_id = self._queues.sleeping_id(name)
            if queue_id and self._must_wake(queue_id, now_ms):
                self._queues.find(name)

    def _must_wake(self, queue_id: int, now_ms: int) -> bool:
        with self._queues.store.view() as view:
            due_ms = next_due_ms(view, queue_id)
            if 0 < due_ms <= now_ms + 60_000:
                return True
            prefix = t.queue_key(queue_id)
            for key in view.scan_keys(api.PARTITIONS, prefix, prefix + b"\xff" * t.KEY_BYTES_MAX):
                number = int.from_bytes(key[8:10], "big")
                records = t.read_chunk_at(view, queue_id, number, 1)
                if records and 0 < records[0].expires_ms <= now_ms:
                    return True
        return False
