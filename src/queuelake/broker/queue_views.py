"""Looking into queues without touching them: their messages, and the depth of those asleep.

A place is a partition and an offset, written `partition:offset`; `next` of a page is the place
where the next one begins. A page is bounded by its number of messages, by their bytes, and by how
many it looked at: most of a stream, or of a shared dead-letter queue, may not be wanted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import msgspec

from queuelake.broker.queues.deadletters import dead_properties
from queuelake.broker.queues.host import HostedQueue
from queuelake.control_queues import PAGE_PAYLOAD_BYTES_MAX, DeadLetter, QueueMessage
from queuelake.errors import RefusedError
from queuelake.protocol import properties as p
from queuelake.protocol.wire import Reader, varint
from queuelake.storage import api, queue_records
from queuelake.storage import queue_tables as t
from queuelake.storage.api import ReadTransaction
from queuelake.storage.chunk import Record

RECORDS_PER_PAGE_MAX = 10_000
EVERYBODY = t.EVERYBODY.to_bytes(4, "big")
ALL_PROPERTIES = frozenset(p.TYPES)

_PLACE = re.compile(r"([0-9]{1,4}):([0-9]{1,19})")

T = TypeVar("T")


class Place(NamedTuple):
    partition: int
    offset: int


def parse_place(text: str) -> Place | None:
    found = _PLACE.fullmatch(text)
    return Place(int(found[1]), int(found[2])) if found is not None else None


def begin_of(args: dict[str, object]) -> Place:
    """Where the page begins which somebody asks for."""
    cursor = str(args.get("cursor", ""))
    place = parse_place(cursor) if cursor else Place(0, 0)
    if place is None:
        raise RefusedError(f"cursor is {cursor!r}, may be `next` of the page before")
    return place


def message_place(queue: HostedQueue, message_id: str) -> Place | None:
    """Where the message with this id is, if it is one of the broker's ids, or a bare place."""
    prefix, _, place = message_id.rpartition(":")
    prefix, _, partition = prefix.rpartition(":")
    if prefix not in ("", queue.name, queue.topic.decode()):
        return None
    return parse_place(f"{partition}:{place}")


def find_record(queue: HostedQueue, place: Place, now_ms: int) -> Record | None:
    """The message at a place, if it is still there for anybody."""
    partitions = queue.machine.partitions
    if place.partition >= len(partitions):
        return None
    if not 1 <= place.offset <= partitions[place.partition].last:
        return None
    record = queue.record(place.partition, place.offset)
    if record is None or not _is_there(queue, place.partition, record, now_ms):
        return None
    return record


def read_page(
    queue: HostedQueue,
    begin: Place,
    partitions: list[tuple[int, int]],
    limit: int,
    now_ms: int,
    shown: Callable[[int, Record], T | None],
) -> tuple[list[T], str | None]:
    """Messages in order of partition and offset, and the place of the next page.

    `partitions` are those to look at, each with the offset to begin with; the page begins at
    `begin`. What `shown` returns None for is passed over.
    """
    items: list[T] = []
    size = looked = 0
    with queue.queues.store.view() as view:
        for number, record in _records(queue, view, begin, partitions):
            full = len(items) >= limit or size >= PAGE_PAYLOAD_BYTES_MAX
            if full or looked >= RECORDS_PER_PAGE_MAX:
                return items, f"{number}:{record.seq}"
            looked += 1
            if not _is_there(queue, number, record, now_ms):
                continue
            item = shown(number, record)
            if item is not None:
                items.append(item)
                size += record.size()
    return items, None


def _records(
    queue: HostedQueue, view: ReadTransaction, begin: Place, partitions: list[tuple[int, int]]
) -> Iterator[tuple[int, Record]]:
    for number, first in partitions:
        if number < begin.partition:
            continue
        seq = max(first, queue.machine.partitions[number].gone.upto + 1)
        if number == begin.partition:
            seq = max(seq, begin.offset)
        while records := _chunk(queue, view, number, seq):
            for record in records:
                if record.seq >= seq:
                    yield number, record
            seq = records[-1].seq + 1


def _chunk(queue: HostedQueue, view: ReadTransaction, number: int, seq: int) -> list[Record]:
    if queue.ephemeral:  # it is in no store
        records = queue.tails[number].records
        return [records[one] for one in sorted(records) if one >= seq]
    return t.read_chunk_at(view, queue.id, number, seq)


def _is_there(queue: HostedQueue, number: int, record: Record, now_ms: int) -> bool:
    """Whether some group still needs it, or no group has come yet."""
    machine = queue.machine
    if record.seq in machine.partitions[number].gone or 0 < record.expires_ms <= now_ms:
        return False
    if machine.policy.is_stream or not machine.groups:
        return True
    return any(record.seq not in group.lanes[number].settled for group in machine.groups.values())


# Messages as answers


def message_id(queue: HostedQueue, number: int, record: Record) -> bytes:
    return record.message_id or queue.id_prefixes[number] + b"%d" % record.seq


def shown_message(queue: HostedQueue, number: int, record: Record) -> QueueMessage:
    return shown_record(queue.topic, message_id(queue, number, record), record, number)


def shown_record(topic: bytes, shown_id: bytes, record: Record, number: int = 0) -> QueueMessage:
    """A message of the queue at `topic`."""
    fields = _fields(topic, shown_id, number, record, record.properties)
    return msgspec.convert(fields, QueueMessage)


def shown_dead_letter(
    letters: HostedQueue, number: int, record: Record, origin: bytes
) -> DeadLetter | None:
    """A message of a dead-letter queue, if it came from the queue at `origin`."""
    story, own = dead_properties(record.properties)
    if story.get("dlq-original-queue", "").encode() != origin:
        return None
    shown_id = letters.id_prefixes[number] + b"%d" % record.seq
    fields = _fields(letters.topic, shown_id, number, record, own)
    known: dict[str, object] = {name: value for name, value in story.items() if name in _STORY}
    # Who publishes to a dead-letter queue may write what he likes.
    count = story.get("dlq-delivery-count", "")
    known["dlq-delivery-count"] = int(count) if re.fullmatch("[0-9]{1,9}", count) else 0
    return msgspec.convert(fields | known, DeadLetter)


def _fields(
    topic: bytes, shown_id: bytes, number: int, record: Record, properties: bytes
) -> dict[str, object]:
    found = p.read_properties(_reader(properties), ALL_PROPERTIES)
    return {
        "id": shown_id.decode(),
        "partition": number,
        "offset": record.seq,
        "topic": (record.topic or topic).decode(),
        "key": record.key.decode(errors="replace"),  # an expression may cut a character
        "payload": record.payload[:PAGE_PAYLOAD_BYTES_MAX],
        "payload_bytes": len(record.payload),
        "properties": [(key.decode(), value.decode()) for key, value in found.user],
        "content_type": _text(found, p.CONTENT_TYPE),
        "response_topic": _text(found, p.RESPONSE_TOPIC),
        "correlation_data": found.values.get(p.CORRELATION_DATA),
        "priority": record.priority,
        "publisher": record.publisher.decode(),
        "published_at_ms": record.ts_ms,
        "expires_at_ms": record.expires_ms,
    }


def _reader(properties: bytes) -> Reader:
    data = varint(len(properties)) + properties
    return Reader(data, 0, len(data))


def _text(found: p.Properties, number: int) -> str | None:
    value = found.values.get(number)
    return None if value is None else value.decode()


_STORY = {
    field.encode_name
    for field in msgspec.structs.fields(DeadLetter)
    if field.encode_name.startswith("dlq-")
}


# Queues which are asleep


class Sleeper(NamedTuple):
    """What the store says about a queue of which only the name is in memory."""

    record: queue_records.QueueRecord
    groups: int
    depth: int
    heads: list[tuple[int, int]]  # of each partition which holds something: its first message


def read_sleeper(view: ReadTransaction, queue_id: int) -> Sleeper | None:
    value = view.get(api.QUEUES, t.queue_key(queue_id))
    if value is None:
        return None
    record = queue_records.decode_queue(value)
    lows, lasts = _reach(view, queue_id, record.partitions)
    prefix = t.queue_key(queue_id)
    above = _settled_above(view, prefix)
    groups = [key[8:12] for key, _ in t.scan_prefix(view, api.GROUPS, prefix)]
    # A group without a row for a partition has settled there what everybody has.
    settled = {group: list(lows) for group in groups}
    for key, state in t.scan_prefix(view, api.LANES, prefix):
        number = int.from_bytes(key[12:14], "big")
        if key[8:12] in settled and number < len(lows):
            settled[key[8:12]][number] = max(lows[number], t.read_lane_state(state)[0])
    depths = [sum(lasts) - sum(upto) - above.get(group, 0) for group, upto in settled.items()]
    depth = max(depths) if depths else sum(lasts) - sum(lows) - above.get(EVERYBODY, 0)
    furthest = [min(upto) for upto in zip(*(settled.values() or [lows]), strict=True)]
    reach = enumerate(zip(furthest, lasts, strict=True))
    heads = [(number, upto + 1) for number, (upto, last) in reach if upto < last]
    return Sleeper(record, len(groups), depth + _delayed(view, prefix), heads)


def _reach(view: ReadTransaction, queue_id: int, partitions: int) -> tuple[list[int], list[int]]:
    """For each partition: up to where everything is gone, and the last sequence."""
    lows, lasts = [], []
    for number in range(partitions):
        value = view.get(api.PARTITIONS, t.partition_key(queue_id, number))
        low, last, _ = t.read_partition_state(value) if value is not None else (0, 0, 0)
        lows.append(low)
        lasts.append(max(last, t.last_sequence(view, queue_id, number)))
    return lows, lasts


def _settled_above(view: ReadTransaction, prefix: bytes) -> dict[bytes, int]:
    """By group: how many messages it settled out of order."""
    above: dict[bytes, int] = {}
    for key, bits in t.scan_prefix(view, api.SETTLED, prefix):
        count = int.from_bytes(bits, "little").bit_count()
        above[key[8:12]] = above.get(key[8:12], 0) + count
    return above


def _delayed(view: ReadTransaction, prefix: bytes) -> int:
    keys = view.scan_keys(api.DELAYED, prefix, prefix + b"\xff" * t.KEY_BYTES_MAX)
    return sum(1 for key in keys if key.endswith(b"\0\0"))  # first pieces
