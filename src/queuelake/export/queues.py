"""Which queues there are in the store, under the names and ids which tables show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from queuelake import names
from queuelake.errors import NotFoundError
from queuelake.flight import Kind
from queuelake.mq_settings import MqSettings
from queuelake.storage.api import QUEUES, ReadTransaction
from queuelake.storage.pipeline_tables import read_deleted
from queuelake.storage.queue_records import MESSAGE, QueueRecord, decode_queue
from queuelake.storage.queue_tables import KEY_BYTES_MAX, queue_key
from queuelake.tables import ECQ_NAME, ECQ_QUEUE_ID, LOG_SHARDS, SDV_NAME, SDV_QUEUE_ID

_STOP: Final = b"\xff" * KEY_BYTES_MAX


class ShownQueue:
    """A queue as tables show it."""

    def __init__(self, number: int, name: str, kind: Kind, shards: int) -> None:
        self.number = number
        self.name = name
        self.kind: Kind = kind
        self.shards = shards


MAILBOXES: Final = ShownQueue(ECQ_QUEUE_ID, ECQ_NAME, "ecq", LOG_SHARDS)
FANOUT: Final = ShownQueue(SDV_QUEUE_ID, SDV_NAME, "fanout", LOG_SHARDS)


def queue_of(view: ReadTransaction, number: int) -> ShownQueue | None:
    """The queue of this number; of one which is deleted, while something of it is kept."""
    if number == ECQ_QUEUE_ID:
        return MAILBOXES
    if number == SDV_QUEUE_ID:
        return FANOUT
    value = view.get(QUEUES, queue_key(number))
    record = read_deleted(view, number) if value is None else decode_queue(value)
    return None if record is None else _shown(number, record)


def exists(view: ReadTransaction, number: int) -> bool:
    return view.get(QUEUES, queue_key(number)) is not None


def shown_name(view: ReadTransaction, number: int) -> str:
    queue = queue_of(view, number)
    return str(number) if queue is None else queue.name


def stored_queues(view: ReadTransaction, number: int) -> Iterator[ShownQueue]:
    """Durable and message queues from this number on."""
    for key, value in view.scan(QUEUES, queue_key(number), _STOP):
        yield _shown(int.from_bytes(key, "big"), decode_queue(value))


def _shown(number: int, record: QueueRecord) -> ShownQueue:
    if record.kind != MESSAGE:
        return ShownQueue(number, names.address(record.name), "durable", record.partitions)
    settings = msgspec.json.decode(record.settings, type=MqSettings)
    kind: Kind = "last_value" if settings.is_lastvalue else "message"
    is_named = not record.name.startswith("/")
    name = names.address(record.name) if is_named else f"$q/{settings.topic_filter}"
    return ShownQueue(number, name, kind, record.partitions)


def shown_id(store_id: str, number: int) -> str:
    return f"{store_id}-{number}"


def number_of(store_id: str, queue_id: str) -> int:
    """The number of a queue in this store.

    Raises:
        NotFoundError: it is an id of another store, or none at all.
    """
    store, _, digits = queue_id.rpartition("-")
    if store != store_id or not digits.isdecimal() or int(digits) >= 1 << 64:
        raise NotFoundError(f"queue id {queue_id!r} is none of this store, {store_id!r}")
    return int(digits)


class Pattern:
    """Names of queues with `*` and `?`; what does not begin with `$` is a durable queue's."""

    def __init__(self, text: str) -> None:
        parts = [{"*": ".*", "?": "."}.get(one) or re.escape(one) for one in text]
        prefix = "" if text.startswith("$") else r"(?:\$queue/)?"
        self._expression = re.compile(prefix + "".join(parts), re.DOTALL)

    def matches(self, name: str) -> bool:
        return self._expression.fullmatch(name) is not None
