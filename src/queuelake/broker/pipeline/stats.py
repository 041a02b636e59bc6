"""What each queue does in a minute: one row, written when the minute is over.

Counters are there already; a row has what they gained. A queue which falls asleep, or is deleted,
writes its part of the minute before, and when the broker stops so do all. What a failed commit
undid is in its minute all the same: it was tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, final

from queuelake.broker.interval import Interval
from queuelake.engine.counters import Counters, Latency, quantile_ms
from queuelake.engine.state import REJECTED
from queuelake.storage import api
from queuelake.storage import pipeline_tables as t
from queuelake.tables import STEPS

if TYPE_CHECKING:
    from queuelake.broker.clock import TimerWheel
    from queuelake.broker.queues.host import HostedQueue
    from queuelake.broker.queues.registry import Queues
    from queuelake.broker.queues.upkeep import QueueUpkeep

MINUTE_MS: Final = 60_000
SIZES_LOOKED_AT_MAX: Final = 100  # of a partition, to tell how large its messages are
ROW_COST: Final = 20  # as much work as so many records of upkeep


class Reading(NamedTuple):
    """Of a queue now: its steps since its counters were made, in the order of `tables.STEPS`."""

    counts: list[int]
    latency: Latency
    depth: int
    size: int


@final
class Account:
    """What is in the rows of one queue already."""

    __slots__ = ("_buckets", "_counts", "queue_id")

    def __init__(self, queue_id: int) -> None:
        self.queue_id: int = queue_id
        self._counts: list[int] = [0] * len(STEPS)
        self._buckets: list[int] = [0] * len(Latency().counts)

    def carry(self, former: Reading) -> None:
        """The counters begin at zero again."""
        self._counts = _minus(self._counts, former.counts)
        self._buckets = _minus(self._buckets, former.latency.counts)

    def take(self, reading: Reading, ts_ms: int, seqno: int) -> t.Minute:
        """What is new; from now on it counts as written."""
        counts = _minus(reading.counts, self._counts)
        buckets = _minus(reading.latency.counts, self._buckets)
        self._counts = list(reading.counts)
        self._buckets = list(reading.latency.counts)
        longest_ms = float(reading.latency.max_ms)
        reading.latency.max_ms = 0
        return t.Minute(
            seqno,
            ts_ms,
            tuple(counts),
            reading.depth,
            reading.size,
            min(longest_ms, quantile_ms(buckets, 0.5)),
            min(longest_ms, quantile_ms(buckets, 0.99)),
            longest_ms,
        )

    def is_news(self, reading: Reading) -> bool:
        return reading.counts != self._counts


def _minus(numbers: list[int], others: list[int]) -> list[int]:
    return [number - other for number, other in zip(numbers, others, strict=True)]


def read_queue(host: HostedQueue) -> Reading:
    machine = host.machine
    counters = machine.counters
    depth = machine.depth()
    size = max(0, machine.bytes) if machine.policy.is_message_queue else depth * _mean_size(host)
    return Reading(
        _counts(counters, machine.policy.is_message_queue), counters.latency, depth, size
    )


def _counts(counters: Counters, is_message_queue: bool) -> list[int]:
    # Who refuses a message of a message queue rejects it; there is no other way to.
    nacked = 0 if is_message_queue else counters.nacked
    rejected = counters.nacked if is_message_queue else counters.dead.get(REJECTED, 0)
    return [
        counters.enqueued,
        counters.delivered,
        counters.acked,
        nacked,
        rejected,
        counters.timed_out,
        sum(counters.dead.values()),
        counters.expired,
        counters.dropped + counters.purged,
    ]


def _mean_size(host: HostedQueue) -> int:
    """Of the payloads which are in memory: nobody counts what comes and goes in the store."""
    count = total = 0
    for partition in host.machine.partitions:
        for entry in islice(partition.window.values(), SIZES_LOOKED_AT_MAX):
            count += 1
            total += entry.size
    return total // count if count else 0


@final
class Minutes:
    """All queues; `services` are those which are no queues of their own but one to a table."""

    def __init__(self, queues: Queues, upkeep: QueueUpkeep, timers: TimerWheel) -> None:
        self._queues = queues
        self._upkeep = upkeep
        self._interval = Interval(queues.clock, timers, self._left_ms, self._minute_over)
        self._began_ms = 0
        # Next sequences, and in which commit the last one is, where the store may not know of it.
        self._sequences: dict[int, tuple[int, int]] = {}
        self.services: list[tuple[Account, Callable[[], Reading]]] = []
        queues.minutes = self

    def start(self) -> None:
        self._began_ms = self._queues.clock.now_ms()
        self._interval.begin(self._left_ms())

    def _left_ms(self) -> int:
        return MINUTE_MS - self._queues.clock.now_ms() % MINUTE_MS

    def serve(self, queue_id: int, read: Callable[[], Reading]) -> None:
        self.services.append((Account(queue_id), read))

    def _minute_over(self, now_ms: int) -> None:
        ts_ms, self._began_ms = self._minute(), now_ms
        durable = self._queues.runner.durable
        self._sequences = {key: one for key, one in self._sequences.items() if one[1] > durable}
        for account, read in self.services:
            self._write_service(account, read(), ts_ms)
        self._upkeep.work_on(self._write_all(ts_ms))

    def _minute(self) -> int:
        return self._began_ms // MINUTE_MS * MINUTE_MS

    def _write_all(self, ts_ms: int) -> Iterator[int]:
        for host in list(self._queues.hosts.values()):
            if not host.ephemeral and not host.is_deleted:
                self._put(host.account, read_queue(host), ts_ms)
                yield ROW_COST

    def _write_service(self, account: Account, reading: Reading, ts_ms: int) -> None:
        if reading.depth or account.is_news(reading):
            self._put(account, reading, ts_ms)

    def finish(self) -> None:
        """The broker stops: what the minute has so far."""
        for account, read in self.services:
            self._write_service(account, read(), self._minute())
        for host in list(self._queues.hosts.values()):
            self.close(host)

    def close(self, host: HostedQueue) -> None:
        """The queue will not be in memory any more."""
        reading = read_queue(host)
        if not host.ephemeral and host.account.is_news(reading):
            self._put(host.account, reading, self._minute())

    def _put(self, account: Account, reading: Reading, ts_ms: int) -> None:
        queue_id = account.queue_id
        minute = account.take(reading, ts_ms, self._next(queue_id))
        self._put_again(queue_id, minute)

    def _put_again(self, queue_id: int, minute: t.Minute) -> None:
        """Until it is in the store."""
        runner = self._queues.runner
        value = minute.encode()
        runner.put(api.STATS, t.record_key(queue_id, minute.seqno), value)
        self._queues.ledger.grow(t.KEY_BYTES + len(value))
        runner.if_failed(lambda: self._put_again(queue_id, minute))

    def _next(self, queue_id: int) -> int:
        """The store does not know of a row which is on its way there."""
        runner = self._queues.runner
        found, group = self._sequences.get(queue_id, (0, 0))
        if group <= runner.durable:
            with self._queues.store.view() as view:
                found = t.record_range(view, api.STATS, queue_id)[1] + 1
        self._sequences[queue_id] = (found + 1, runner.number)
        return found
