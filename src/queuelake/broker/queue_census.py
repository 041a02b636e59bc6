"""All durable queues in figures, for one scrape: those awake from memory, those asleep from the
store. Of one which sleeps only its depth is told, and how old its oldest message is.

It is done in slices, so that a scrape of very many queues holds nobody up.
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

import msgspec

from queuelake import names
from queuelake.broker.naming import Naming, Seen
from queuelake.broker.oldest import Oldest
from queuelake.broker.queues.durable import DurableHost
from queuelake.broker.queues.host import HostedQueue
from queuelake.broker.queues.registry import Queues
from queuelake.broker.quorum.host import QuorumHost
from queuelake.broker.sleepers import Asleep, Sleepers
from queuelake.broker.slices import in_slices
from queuelake.control_queues import OTHER, QueueMetrics
from queuelake.engine.counters import Counters, quantile_ms
from queuelake.engine.groups import Group
from queuelake.engine.policy.settings import UNLIMITED
from queuelake.engine.state import QueueState
from queuelake.settings import Metrics

REASONS: Final = ("max_retries", "timeout", "rejected", "expired")


class Census(NamedTuple):
    """`left_out` queues are in the sum of the others only."""

    queues: list[QueueMetrics]
    left_out: int


class Gauges(NamedTuple):
    ready: int  # for the group furthest behind
    in_flight: int
    retrying: int
    delayed: int
    consumers: int


NOTHING: Final = Gauges(0, 0, 0, 0, 0)


@final
class SeenQueue(Seen):
    """`host` or `asleep`. `row` is how it was shown last, if nothing has happened since: of very
    many queues most are idle."""

    __slots__ = ("_signs", "asleep", "depth", "gauges", "host", "row")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.host: DurableHost | QuorumHost | None = None
        self.asleep: Asleep | None = None
        self.depth = 0
        self.gauges = NOTHING
        self.row: QueueMetrics | None = None
        self._signs = -1

    def look(self, host: DurableHost) -> None:
        machine = host.machine
        signs, depth = machine.signs(), machine.depth()
        if host is self.host and signs == self._signs and depth == self.depth:
            self.gained = []
            return
        self.host, self.asleep, self.depth, self._signs = host, None, depth, signs
        self.count(_counts(machine.counters))
        self.gauges = _gauges(machine)
        self.row = None

    def look_at_quorum(self, host: QuorumHost) -> None:
        machine = host.machine
        self.host, self.asleep, self.depth, self._signs = host, None, machine.total, -1
        self.count(_counts(host.counters))
        ready, again = machine.lines.count, len(machine.lines.returns)
        self.gauges = Gauges(
            ready - again,
            machine.held_count,
            again,
            len(machine.delayed),
            len(machine.consumers),
        )

    def fell_asleep(self, asleep: Asleep) -> None:
        self.host, self.asleep, self.depth = None, asleep, asleep.depth
        self.counts, self.gained, self.gauges = [], [], NOTHING


class QueueCensus:
    """Counts the queues of one broker; one count at a time."""

    def __init__(self, queues: Queues, settings: Metrics) -> None:
        self._queues = queues
        self._groups_max = settings.groups_per_queue_max
        self._sleepers = Sleepers(queues, queues.names)
        self._naming = Naming(settings.queues_max, len(_counts(Counters())), SeenQueue)
        self._oldest = Oldest(queues.store)

    def count(self) -> int:
        return len(self._queues.names())

    async def take(self) -> Census:
        naming = self._naming
        naming.begin()
        await self._sleepers.look()
        await in_slices(list(self._queues.hosts.values()), self._look_at)
        await in_slices(list(self._queues.quorum.hosts.values()), self._look_at_quorum)
        fell_asleep = [one.name for one in naming.missing() if one.host is not None]
        await in_slices(fell_asleep, self._sleepers.look_at)
        for name, asleep in self._sleepers.known.items():
            if not self._queues.is_awake(name):
                seen = naming.see(name)
                seen.fell_asleep(asleep)
                naming.rate(seen, asleep.depth)
        named, others = await naming.choose()
        rows = await self._rows(named)
        depth, gauges = await self._sums(others)
        if naming.left_out or any(naming.rest):
            rows.append(_row(OTHER, depth, gauges, naming.rest))
        return Census(rows, naming.left_out)

    def _look_at(self, host: HostedQueue) -> None:
        if isinstance(host, DurableHost) and not host.is_deleted:
            seen = self._naming.see(host.name)
            seen.look(host)
            self._rate(seen)

    def _look_at_quorum(self, host: QuorumHost) -> None:
        if not host.is_deleted:
            seen = self._naming.see(host.name)
            seen.look_at_quorum(host)
            self._rate(seen)

    def _rate(self, seen: SeenQueue) -> None:
        moved = seen.gained[0] + seen.gained[1] if seen.gained else 0
        self._naming.rate(seen, seen.depth + moved)

    async def _rows(self, named: list[SeenQueue]) -> list[QueueMetrics]:
        hosts: list[HostedQueue | QuorumHost] = []
        for one in named:
            if one.host is not None and one.depth:
                hosts.append(one.host)
        now_ms = self._queues.clock.now_ms()
        ages_s = await self._oldest.ages_s(hosts, now_ms)
        rows: list[QueueMetrics] = []

        def show(seen: SeenQueue) -> None:
            age_s = ages_s.get(seen.name) if seen.depth else 0.0
            if isinstance(seen.host, QuorumHost):
                rows.append(_quorum(seen, seen.host, age_s))
            elif seen.host is not None:
                row = seen.row
                if row is None or row.oldest_age_s != age_s:
                    row = seen.row = self._awake(seen, seen.host.machine, age_s)
                rows.append(row)
            elif seen.asleep is not None:
                rows.append(_asleep(seen.name, seen.asleep, now_ms))

        await in_slices(named, show)
        return rows

    def _awake(self, seen: SeenQueue, machine: QueueState, age_s: float | None) -> QueueMetrics:
        counters, depth_max = machine.counters, machine.policy.depth_max
        return msgspec.structs.replace(
            _row(names.address(seen.name), seen.depth, seen.gauges, seen.counts),
            dead_lettered_by_reason=dict(counters.dead),
            latency_p50_s=latency_s(counters, 0.5),
            latency_p99_s=latency_s(counters, 0.99),
            consumers_by_group=_consumers(machine, self._groups_max),
            depth_max=0 if depth_max == UNLIMITED else depth_max,
            oldest_age_s=age_s,
        )

    async def _sums(self, others: list[SeenQueue]) -> tuple[int, Gauges]:
        depth, sums = 0, list(NOTHING)

        def add(seen: SeenQueue) -> None:
            nonlocal depth
            depth += seen.depth
            self._naming.leave_out(seen)
            if seen.gauges is not NOTHING:
                for number, value in enumerate(seen.gauges):
                    sums[number] += value

        await in_slices(others, add)
        return depth, Gauges(*sums)


def _quorum(seen: SeenQueue, host: QuorumHost, age_s: float | None) -> QueueMetrics:
    return msgspec.structs.replace(
        _row(names.address(seen.name), seen.depth, seen.gauges, seen.counts),
        dead_lettered_by_reason=dict(host.counters.dead),
        latency_p50_s=latency_s(host.counters, 0.5),
        latency_p99_s=latency_s(host.counters, 0.99),
        consumers_by_group={"": seen.gauges.consumers},
        depth_max=host.machine.policy.length_max,
        oldest_age_s=age_s,
    )


def _asleep(name: str, asleep: Asleep, now_ms: int) -> QueueMetrics:
    age_s = max(0, now_ms - asleep.oldest_ms) / 1000 if asleep.oldest_ms else None
    return QueueMetrics(names.address(name), asleep.depth, oldest_age_s=age_s, asleep=True)


def _row(name: str, depth: int, gauges: Gauges, counts: list[int]) -> QueueMetrics:
    dead = zip(REASONS, counts[-len(REASONS) :], strict=True)
    return QueueMetrics(
        queue=name,
        depth=depth,
        ready=gauges.ready,
        in_flight=gauges.in_flight,
        retrying=gauges.retrying,
        delayed=gauges.delayed,
        consumers_by_group={OTHER: gauges.consumers},
        enqueued=counts[0],
        dequeued=counts[1],
        acked=counts[2],
        nacked=counts[3],
        redelivered=counts[4],
        timed_out=counts[5],
        expired=counts[6],
        dropped=counts[7],
        purged=counts[8],
        refused=counts[9],
        duplicates=counts[10],
        dead_lettered_by_reason={reason: count for reason, count in dead if count},
    )


def _counts(counters: Counters) -> list[int]:
    """In the order of `_row`; at the end dead letters, in that of REASONS."""
    dead = counters.dead
    return [
        counters.enqueued,
        counters.delivered,
        counters.acked,
        counters.nacked,
        counters.redelivered,
        counters.timed_out,
        counters.expired,
        counters.dropped,
        counters.purged,
        counters.refused,
        counters.duplicates,
        *[dead.get(reason, 0) for reason in REASONS],
    ]


def _gauges(machine: QueueState) -> Gauges:
    ready, flying, waiting, consumers = machine.loose, 0, 0, 0
    for group in machine.groups.values():
        held, again = in_flight(group), retrying(group)
        ready = max(ready, group.unsettled - held - again)
        flying += held
        waiting += again
        consumers += len(group.consumers)
    return Gauges(ready, flying, waiting, machine.delayed, consumers)


def _consumers(machine: QueueState, groups_max: int) -> dict[str, int]:
    """Of the groups which have most of them; the others together."""
    found = {group.name: len(group.consumers) for group in machine.groups.values()}
    if len(found) <= groups_max:
        return found
    named = sorted(found, key=lambda name: (-found[name], name))[:groups_max]
    shown = {name: found[name] for name in named}
    return shown | {OTHER: sum(found.values()) - sum(shown.values())}


def in_flight(group: Group) -> int:
    return sum([len(lane.held) for lane in group.lanes])


def retrying(group: Group) -> int:
    return sum([len(lane.waiting) + len(lane.returns) for lane in group.lanes])


def latency_s(counters: Counters, share: float) -> float | None:
    """None: nothing was delivered yet."""
    counts = counters.latency.counts
    return quantile_ms(counts, share) / 1000 if any(counts) else None
