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
from queuelake.storage.queue_records import MESSAGE, QueueRecord, decode_queue
from queuelake.storage.queue_tables import KEY_BYTES_MAX, queue_key

_STOP: Final = b"\xff" * KEY_BYTES_MAX


class StoredQueue:
    """A queue which is stored as chunks: durable, message and last-value queues."""

    def __init__(self, number: int, record: QueueRecord) -> None:
        self.number = number
        self.shards = record.partitions
        self.name = names.address(record.name)
        self.kind: Kind = "durable"
        if record.kind == MESSAGE:
            settings = msgspec.json.decode(record.settings, type=MqSettings)
            self.kind = "last_value" if settings.is_lastvalue else "message"
            if record.name.startswith("/"):
                self.name = f"$q/{settings.topic_filter}"


def queue_of(view: ReadTransaction, number: int) -> StoredQueue | None:
    value = view.get(QUEUES, queue_key(number))
    return None if value is None else StoredQueue(number, decode_queue(value))


def queues_from(view: ReadTransaction, number: int) -> Iterator[StoredQueue]:
    """The queues whose number is this or greater."""
    for key, value in view.scan(QUEUES, queue_key(number), _STOP):
        yield StoredQueue(int.from_bytes(key, "big"), decode_queue(value))


def shown_id(store_id: str, number: int) -> str:
    return f"{store_id}-{number}"


def number_of(store_id: str, queue_id: str) -> int:
    """The number of a queue in this store.

    Raises:
        NotFoundError: it is an id of another store, or none at all.
    """
    store, _, number = queue_id.rpartition("-")
    if store != store_id or not number.isdecimal():
        raise NotFoundError(f"queue id {queue_id!r} is none of this store, {store_id!r}")
    return int(number)


class Pattern:
    """Names of queues with `*` and `?`; what does not begin with `$` is a durable queue's."""

    def __init__(self, text: str) -> None:
        parts = [{"*": ".*", "?": "."}.get(one) or re.escape(one) for one in text]
        prefix = "" if text.startswith("$") else r"(?:\$queue/)?"
        self._expression = re.compile(prefix + "".join(parts), re.DOTALL)

    def matches(self, name: str) -> bool:
        return self._expression.fullmatch(name) is not None
