"""Messages of a queue which are read back from the store, a chunk at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from queuelake.engine import commands as c
from queuelake.engine.message import PRIORITY_DEFAULT, Entry
from queuelake.storage import api
from queuelake.storage import queue_tables as t
from queuelake.storage.chunk import Record
from queuelake.storage.delayed import due_and_number
from queuelake.storage.stage_records import all_delays, delays_key
from queuelake.storage.stage_tables import OPEN, pointed_records, stage_key

if TYPE_CHECKING:
    from queuelake.broker.queues.host import HostedQueue
    from queuelake.engine.partition import Partition

AHEAD_BYTES: Final = 32 * 1024


def find_record(host: HostedQueue, number: int, seq: int) -> Record | None:
    """One message; its neighbours are likely to be wanted next."""
    if host.ephemeral:
        return None
    pointer = host.tails[number].pointer_at(seq) if host.extended else None
    with host.queues.store.view() as view:
        if pointer is not None:
            records = pointed_records(view, pointer)
        else:
            records = t.read_chunk_at(view, host.id, number, seq)
    for record in records:
        if record.seq == seq:
            host.tails[number].cached(records)
            return record
    return None


def load_entries(host: HostedQueue, number: int, first: int, now_ms: int) -> None:
    """What the machine asked for."""
    pointer = host.tails[number].pointer_at(first) if host.extended else None
    try:
        with host.queues.store.view() as view:
            if pointer is not None:
                records = pointed_records(view, pointer)
            else:
                records = t.read_ahead(view, host.id, number, first, AHEAD_BYTES)
    except Exception:
        host.machine.apply(host.meta(now_ms), c.Loaded(number, first, []))  # it may ask again
        raise
    tail = host.tails[number]
    if records:
        tail.cached(records)
    else:
        # The newest ones are still on their way to the store.
        records = [one for one in tail.storing + tail.pending if one.seq >= first]
    entries = [host.entry_of(one, number) for one in records if one.seq >= first]
    host.machine.apply(host.meta(now_ms), c.Loaded(number, first, entries))
    host.queues.runner.want_turn(host)


def deleted_upto(host: HostedQueue, partition: Partition) -> int:
    """Up to where the chunks of a partition which was loaded are deleted."""
    upto = partition.gone.upto
    if host.hold is None or not upto:
        return upto
    with host.queues.store.view() as view:
        first = t.first_sequence(view, host.id, partition.number)
    return min(upto, first - 1) if first else upto


def rank_stored(host: HostedQueue, group: str, now_ms: int) -> None:
    """A new group finds the messages with a priority of their own."""
    for partition in host.machine.partitions:
        number = partition.number
        entries: list[Entry] = []
        seq = partition.gone.upto + 1
        with host.queues.store.view() as view:
            while True:
                records = t.read_chunk_at(view, host.id, number, seq)
                if not records:
                    break
                seq = records[-1].seq + 1
                for record in records:
                    if record.priority != PRIORITY_DEFAULT:
                        entries.append(host.entry_of(record, number))
            tail = host.tails[number]
            for pointer in tail.pointers:
                if pointer.first >= seq:
                    for record in pointed_records(view, pointer):
                        if record.priority != PRIORITY_DEFAULT:
                            entries.append(host.entry_of(record, number))
        for record in tail.storing + tail.pending:
            if record.seq >= seq and record.priority != PRIORITY_DEFAULT:
                entries.append(host.entry_of(record, number))
        host.machine.apply(host.meta(now_ms), c.Ranked(group, number, entries))


def forget_settled(host: HostedQueue) -> None:
    """Nothing is trimmed of a queue which lives in memory only: what nobody needs goes here."""
    host.machine.ids.added.clear()
    for partition in host.machine.partitions:
        upto, tail = partition.gone.upto, host.tails[partition.number]
        if tail.pending and tail.pending[0].seq <= upto:
            tail.pending = [one for one in tail.pending if one.seq > upto]
            tail.records = {one.seq: one for one in tail.pending}


def delete_delayed_rows(host: HostedQueue) -> None:
    """Messages which were to come later will not."""
    runner = host.queues.runner
    batch = runner.group.batch
    prefix = t.queue_key(host.id)
    with host.queues.store.view() as view:
        stored = list(view.scan_keys(api.DELAYED, prefix, prefix + b"\xff" * t.KEY_BYTES_MAX))
    for key in stored + list(runner.committing(api.DELAYED) | batch.tables[api.DELAYED]):
        if key.startswith(prefix):
            batch.delete(api.DELAYED, key)
            host.withhold(*due_and_number(key))  # it may be due before that is durable
    with host.queues.store.view() as view:
        staged = all_delays(view, runner.committing(api.BATCHES) | batch.tables[api.BATCHES])
    for stage, delays in staged.items():
        if delays.queue_id == host.id:
            runner.delete(api.BATCHES, delays_key(stage))
            batch.put(api.STAGED, stage_key(stage) + OPEN, b"")  # nobody wants it any more
