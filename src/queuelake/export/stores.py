"""The stores of a node, and the brokers which own them: one, or one for each shard of a cluster.

Here they are only called stores: a shard is what Spark reads (`shards.py`). The id of a queue
begins with that of its store, which no other has; so it says where its rows are and whose broker to
tell about them. Whom to ask is said in the arguments of an operation: the node passes it on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Self

from msgspec.structs import replace

from queuelake import control_client, names
from queuelake.errors import StorageError
from queuelake.flight import ArchivedTold
from queuelake.placing import Placing
from queuelake.storage.reader import StoreReader
from queuelake.storage.shards import directory_of


class Stores:
    """All of them in the order of their numbers; methods may be called by any thread."""

    def __init__(
        self, data_dir: Path, readers: Sequence[StoreReader], heartbeats: Iterable[str] = ()
    ) -> None:
        self.data_dir: Final = data_dir
        self.readers: Final = readers
        self.placing: Final = Placing(len(readers), heartbeats)

    @classmethod
    def open(cls, data_dir: Path, count: int, heartbeats: Iterable[str]) -> Self:
        readers = [StoreReader(directory_of(data_dir, number)) for number in range(count)]
        return cls(data_dir, readers, heartbeats)

    def __len__(self) -> int:
        return len(self.readers)

    def number_of(self, queue_id: str) -> int:
        """Which store the queue is in. The first for an id of none of them: it is refused there."""
        return place([reader.id for reader in self.readers], queue_id)

    def of_queue(self, queue_id: str) -> StoreReader:
        return self.readers[self.number_of(queue_id)]

    def home(self, target: str) -> int:
        """Where the rows for a target go; of those which go everywhere, where it is said last that
        a batch is committed."""
        topic = (target if target.startswith("$") else names.address(target)).encode()
        return max(0, self.placing.of_filter(topic)) if topic.startswith(names.PREFIX) else 0

    def ask(self, number: int, operation: str, args: dict[str, object], timeout_s: float) -> object:
        """Of the broker which owns this store, wherever it is."""
        if len(self.readers) > 1:
            args = {**args, "shard": number}
        return control_client.call(self.data_dir, operation, args, timeout_s)

    def divide(self, told: ArchivedTold) -> list[ArchivedTold]:
        """What is told to the owner of each store: its own marks, and in any case which lake."""
        return divide([reader.id for reader in self.readers], told)


def place(ids: Sequence[str], queue_id: str) -> int:
    """Pure: `Stores.number_of`."""
    if len(set(ids)) < len(ids):
        raise StorageError(f"two stores have the same id: {', '.join(ids)}")
    store_id = queue_id.rpartition("-")[0]
    return ids.index(store_id) if store_id in ids else 0


def divide(ids: Sequence[str], told: ArchivedTold) -> list[ArchivedTold]:
    """Pure: `Stores.divide`."""
    places = [place(ids, mark.queue_id) for mark in told.marks]
    return [
        replace(told, marks=[mark for mark, at in zip(told.marks, places, strict=True) if at == n])
        for n in range(len(ids))
    ]
