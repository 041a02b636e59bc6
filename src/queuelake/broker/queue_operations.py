"""What the admin process and the CLI may ask about queues: the operations of control_queues.py.

They run on the loop and stay short: what is read is bounded, by pages where it may be long. An
operation which changes something answers when the change is durable, or says that it is not.
A question about one queue wakes it; a list does not.
"""

from __future__ import annotations

import bisect

import msgspec

from queuelake import control_queues as ops
from queuelake import names
from queuelake.broker import queue_views, redrive
from queuelake.broker.operation import Operation, page_limit, stored
from queuelake.broker.queue_census import in_flight, latency_s, retrying
from queuelake.broker.queues.durable import DurableHost
from queuelake.broker.queues.host import HostedQueue
from queuelake.broker.queues.registry import Queues
from queuelake.broker.quorum import views
from queuelake.broker.quorum.host import QuorumHost
from queuelake.broker.slices import in_slices
from queuelake.control_queues import (
    OFFSET_MAX,
    QUEUE_TYPES,
    ConsumerInfo,
    ConsumerPage,
    DeadLetter,
    DeadLetterPage,
    GroupStats,
    MessagePage,
    PartitionStats,
    Purged,
    QueueConfigured,
    QueueDeleted,
    QueueInfo,
    QueuePage,
    QueueStats,
    QueueSummary,
    Rates,
    Redriven,
)
from queuelake.engine import commands as c
from queuelake.engine.groups import Group
from queuelake.errors import NotFoundError, RefusedError
from queuelake.queue_settings import merged, read_changes
from queuelake.storage import queue_records
from queuelake.storage.chunk import Record


class GroupInUseError(RefusedError):
    """The group has consumers: stop them first, they would get nothing any more."""

    http_status = 409
    code = "CONFLICT"


class QueueOperations:
    """Each method answers one named request about `queues`."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._asleep: dict[str, QueueSummary] = {}  # by name, of those which were listed

    def table(self) -> dict[str, Operation]:
        return {
            ops.QUEUES: self.queues,
            ops.QUEUE: self.queue,
            ops.QUEUE_CONFIGURE: self.configure,
            ops.QUEUE_DELETE: self.delete,
            ops.QUEUE_STATS: self.stats,
            ops.QUEUE_CONSUMERS: self.consumers,
            ops.QUEUE_MESSAGES: self.messages,
            ops.QUEUE_PURGE: self.purge,
            ops.QUEUE_DLQ: self.dead_letters,
            ops.QUEUE_DLQ_RETRY: self.retry_dead_letter,
            ops.QUEUE_GROUP_DELETE: self.delete_group,
        }

    # Settings

    async def queues(self, args: dict[str, object]) -> QueuePage:
        limit, cursor = page_limit(args), str(args.get("cursor", ""))
        prefix, kind = str(args.get("prefix", "")).removeprefix("$queue/"), args.get("type", "")
        if kind not in ("", *QUEUE_TYPES):
            raise RefusedError(f"type is {kind!r}, may be {' or '.join(QUEUE_TYPES)}")
        known = self._queues.names()
        first = bisect.bisect_left(known, prefix)
        start = max(first, bisect.bisect_right(known, cursor) if cursor else 0)
        # Only this far: a page of a type may be short, and `next` says whether there is more.
        page = [name for name in known[start : start + limit] if name.startswith(prefix)]
        following = start + len(page)
        more = following < len(known) and known[following].startswith(prefix)
        queues: list[QueueSummary] = []
        for name in self._queues.stirred:
            self._asleep.pop(name, None)
        self._queues.stirred.clear()

        def summarize(name: str) -> None:
            one = self._summary(name)
            if one is not None and kind in ("", one.type):
                queues.append(one)

        await in_slices(page, summarize)
        return QueuePage(queues, page[-1] if more else None)

    def _summary(self, name: str) -> QueueSummary | None:
        quorum = self._queues.quorum.hosts.get(name)
        if quorum is not None:
            return views.summary(quorum)
        host = self._queues.hosts.get(name)
        if not isinstance(host, DurableHost):
            return self._sleeping_summary(name)
        groups = host.machine.groups.values()
        return QueueSummary(
            names.address(name),
            len(host.machine.partitions),
            host.settings.ordering,
            host.settings.type,
            depth=host.machine.depth(),
            in_flight=sum(in_flight(group) for group in groups),
            groups=len(groups),
            consumers=sum(len(group.consumers) for group in groups),
        )

    def _sleeping_summary(self, name: str) -> QueueSummary | None:
        """Nothing of it changes while it sleeps, so it is worked out once."""
        known = self._asleep.get(name)
        if known is not None:
            return known
        with self._queues.store.view() as view:
            sleeper = queue_views.read_sleeper(view, self._queues.sleeping_id(name))
        if sleeper is None:
            return None
        explicit = msgspec.json.decode(sleeper.record.settings, type=dict[str, object])
        settings = self._queues.stored_settings(name, explicit)
        found = QueueSummary(
            names.address(name),
            sleeper.record.partitions,
            settings.ordering,
            settings.type,
            depth=sleeper.depth,
            groups=sleeper.groups,
        )
        if self._queues.kind_of(name) == queue_records.DURABLE:
            self._asleep[name] = found
        return found

    def _configured(self, name: str, explicit: dict[str, object]) -> dict[str, object]:
        """What the configuration file and requests said about this queue."""
        return merged(self._queues.settings.named.get(name, {}), explicit)

    def queue(self, args: dict[str, object]) -> QueueInfo:
        host = self._quorum(args) or self._queue(args)
        return QueueInfo(
            names.address(host.name),
            host.settings,
            self._configured(host.name, host.explicit),
            host.created_ms,
        )

    async def configure(self, args: dict[str, object]) -> QueueConfigured:
        changes = args.get("changes")
        assert isinstance(changes, bytes)
        name = names.bare_name(str(args.get("name", "")))
        is_new = not self._queues.exists(name)
        self._queues.configure(name, read_changes(changes))
        await self.durable()
        return QueueConfigured(is_new, self.queue(args))

    async def delete(self, args: dict[str, object]) -> QueueDeleted:
        quorum, unarchived = self._quorum(args), 0
        if quorum is None:
            unarchived = self._queues.archive.unarchived(self._queue(args))
        self._queues.delete(str(args.get("name", "")))
        await self.durable()
        return QueueDeleted(unarchived)

    # State

    def stats(self, args: dict[str, object]) -> QueueStats:
        quorum = self._quorum(args)
        if quorum is not None:
            return views.stats(quorum, redrive.letters_count(quorum))
        host = self._queue(args)
        machine, counters = host.machine, host.machine.counters
        groups = [_group_stats(group) for group in machine.groups.values()]
        return QueueStats(
            names.address(host.name),
            depth=machine.depth(),
            partitions=[
                PartitionStats(one.number, machine.stored(one), one.gone.upto + 1, one.last + 1)
                for one in machine.partitions
            ],
            groups=groups,
            rates=Rates(*host.rates.per_second()),
            in_flight=sum(group.in_flight for group in groups),
            retrying=sum(group.retrying for group in groups),
            delayed=machine.delayed,
            dlq=redrive.letters_count(host),
            enqueued_total=counters.enqueued,
            dequeued_total=counters.delivered,
            acked_total=counters.acked,
            nacked_total=counters.nacked,
            redelivered_total=counters.redelivered,
            expired_total=counters.expired,
            dropped_total=counters.dropped,
            dead_lettered_by_reason=dict(counters.dead),
            latency_p50_s=latency_s(counters, 0.5),
            latency_p99_s=latency_s(counters, 0.99),
        )

    def consumers(self, args: dict[str, object]) -> ConsumerPage:
        """The cursor is group and client id of the last one, with a null character between."""
        quorum = self._quorum(args)
        if quorum is not None:
            return views.consumers(quorum, page_limit(args), str(args.get("cursor", "")))
        host, limit, cursor = (
            self._queue(args),
            page_limit(args),
            str(args.get("cursor", "")),
        )
        after_group, _, after_client = cursor.partition("\0")
        known = sorted(
            (group.name, client_id)
            for group in host.machine.groups.values()
            for client_id in group.consumers
        )
        start = bisect.bisect_right(known, (after_group, after_client)) if cursor else 0
        page = known[start : start + limit]
        more = start + limit < len(known)
        found = [_consumer(host, host.machine.groups[group], client) for group, client in page]
        return ConsumerPage(found, "\0".join(page[-1]) if more else None)

    async def delete_group(self, args: dict[str, object]) -> None:
        name, quorum = str(args.get("group", "")), self._quorum(args)
        if quorum is not None:
            raise NotFoundError(f"quorum queue {names.address(quorum.name)!r} has no groups")
        host = self._queue(args)
        group = host.machine.groups.get(name)
        if group is None:
            raise NotFoundError(f"queue {names.address(host.name)!r} has no group {name!r}")
        if group.consumers:
            count = len(group.consumers)
            raise GroupInUseError(f"group {name!r} has {count} consumers; it may have none")
        host.apply(c.ForgetGroup(name), self._queues.clock.now_ms())
        await self.durable()

    # Messages

    def messages(self, args: dict[str, object]) -> MessagePage:
        limit, start = page_limit(args), args.get("from", 0)
        assert isinstance(start, int)
        if not 0 <= start <= OFFSET_MAX:
            raise RefusedError(f"from is {start}, may be 0 to {OFFSET_MAX}")
        now_ms = self._queues.clock.now_ms()
        quorum, partition = self._quorum(args), args.get("partition")
        begin = queue_views.begin_of(args)
        if quorum is not None:
            if partition not in (None, 0):
                raise RefusedError(f"partition is {partition!r}, may be 0")
            return views.messages(quorum, max(start, begin.offset), limit, now_ms)
        host = self._queue(args)
        count = len(host.machine.partitions)
        wanted = range(count) if partition is None else [partition]
        if partition not in (None, *range(count)):
            raise RefusedError(f"partition is {partition!r}, may be 0 to {count - 1}")
        places = [(number, start) for number in wanted if isinstance(number, int)]

        def shown(number: int, record: Record) -> ops.QueueMessage:
            return queue_views.shown_message(host, number, record)

        found = queue_views.read_page(host, begin, places, limit, now_ms, shown)
        return MessagePage(*found)

    async def purge(self, args: dict[str, object]) -> Purged:
        quorum, now_ms = self._quorum(args), self._queues.clock.now_ms()
        if quorum is not None:
            purged = self._queues.quorum.purge(quorum, now_ms)
        else:
            purged = self._queue(args).purge(now_ms)
        await self.durable()
        return Purged(purged)

    # Dead letters

    def dead_letters(self, args: dict[str, object]) -> DeadLetterPage:
        host = self._quorum(args) or self._queue(args)
        limit, begin = page_limit(args), queue_views.begin_of(args)
        letters = redrive.letters_of(host)
        if letters is None:
            return DeadLetterPage([])
        places = [(number, 0) for number in range(len(letters.machine.partitions))]

        def shown(number: int, record: Record) -> DeadLetter | None:
            return queue_views.shown_dead_letter(letters, number, record, host.topic)

        now_ms = self._queues.clock.now_ms()
        found = queue_views.read_page(letters, begin, places, limit, now_ms, shown)
        return DeadLetterPage(*found)

    async def retry_dead_letter(self, args: dict[str, object]) -> Redriven:
        host, message_id = self._quorum(args) or self._queue(args), str(args.get("id", ""))
        done = redrive.redrive(host, message_id, self._queues.clock.now_ms())
        await self.durable()
        return done

    # Shared

    def _quorum(self, args: dict[str, object]) -> QuorumHost | None:
        """The queue which is meant, if it is a quorum queue."""
        return self._queues.quorum.find(str(args.get("name", "")))

    def _queue(self, args: dict[str, object]) -> DurableHost:
        host = self._queues.get(str(args.get("name", "")))
        host.active_ms = self._queues.clock.now_ms()
        return host

    async def durable(self) -> None:
        """Wait until everything done so far is stored.

        Raises:
            StorageError: it could not be.
        """
        await stored(self._queues.runner)


def _group_stats(group: Group) -> GroupStats:
    return GroupStats(
        group.name,
        lag=group.unsettled,
        consumers=len(group.consumers),
        in_flight=in_flight(group),
        retrying=retrying(group),
    )


def _consumer(host: HostedQueue, group: Group, client_id: str) -> ConsumerInfo:
    consumer = group.consumers[client_id]
    subscriber = host.subscribers.get(consumer.tag)
    connection = subscriber.session.connection if subscriber is not None else None
    return ConsumerInfo(
        group.name,
        client_id,
        [lane.number for lane in group.lanes if lane.owner is consumer],
        consumer.held,
        connection.seen_ms if connection is not None else 0,
    )
