"""Quorum queues as others may see them; nothing here changes anything."""

from __future__ import annotations

from queuelake import names
from queuelake.broker import queue_views
from queuelake.broker.queue_census import latency_s
from queuelake.broker.quorum.host import QuorumHost
from queuelake.broker.quorum.rows import PARTITION
from queuelake.control_queues import (
    PAGE_PAYLOAD_BYTES_MAX,
    ConsumerInfo,
    ConsumerPage,
    MessagePage,
    PartitionStats,
    QueueMessage,
    QueueStats,
    QueueSummary,
    Rates,
)
from queuelake.engine.quorum.sessions import Consumer
from queuelake.storage import queue_tables as t


def summary(host: QuorumHost) -> QueueSummary:
    machine = host.machine
    return QueueSummary(
        names.address(host.name),
        1,
        "none",
        "quorum",
        depth=machine.total,
        in_flight=machine.held_count,
        consumers=len(machine.consumers),
    )


def stats(host: QuorumHost, dead_letters: int) -> QueueStats:
    machine, counters = host.machine, host.counters
    return QueueStats(
        names.address(host.name),
        depth=machine.total,
        partitions=[PartitionStats(PARTITION, machine.total, host.gone.upto + 1, host.last + 1)],
        rates=Rates(*host.rates.per_second()),
        in_flight=machine.held_count,
        retrying=len(machine.lines.returns),
        delayed=len(machine.delayed),
        dlq=dead_letters,
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


def consumers(host: QuorumHost, limit: int, cursor: str) -> ConsumerPage:
    """By client id; the cursor is that of the last one."""
    found = [(_client_id(one), one) for one in host.machine.consumers.values()]
    found = sorted([pair for pair in found if pair[0] > cursor], key=_first)
    page = [_consumer(host, client_id, one) for client_id, one in found[:limit]]
    return ConsumerPage(page, page[-1].client_id if len(found) > limit else None)


def _first(pair: tuple[str, Consumer]) -> str:
    return pair[0]


def _client_id(consumer: Consumer) -> str:
    return consumer.pid.partition("/")[2]


def _consumer(host: QuorumHost, client_id: str, consumer: Consumer) -> ConsumerInfo:
    subscriber = host.subscribers.get(consumer.key)
    connection = subscriber.session.connection if subscriber is not None else None
    return ConsumerInfo(
        "",
        client_id,
        [PARTITION],
        len(consumer.held),
        connection.seen_ms if connection is not None else 0,
        consumer.status(),
    )


def messages(host: QuorumHost, first: int, limit: int, now_ms: int) -> MessagePage:
    """Those in the store, by offset, whoever holds them."""
    found: list[QueueMessage] = []
    size = looked = 0
    seq = max(first, host.gone.upto + 1)
    with host.queues.store.view() as view:
        while records := t.read_chunk_at(view, host.id, PARTITION, seq):
            for record in records:
                full = len(found) >= limit or size >= PAGE_PAYLOAD_BYTES_MAX
                if full or looked >= queue_views.RECORDS_PER_PAGE_MAX:
                    return MessagePage(found, f"{PARTITION}:{record.seq}")
                if record.seq < seq:
                    continue
                looked += 1
                if record.seq not in host.gone and not 0 < record.expires_ms <= now_ms:
                    message_id = host.message_id(record)
                    found.append(queue_views.shown_record(host.topic, message_id, record))
                    size += record.size()
            seq = records[-1].seq + 1
    return MessagePage(found, None)
