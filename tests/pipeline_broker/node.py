"""A simulated broker whose queues are archived: what its store has, and what the lake tells it."""

from __future__ import annotations

from typing import Any

from queuelake.broker.pipeline.archive import Archive
from queuelake.flight import ArchivedTold, Mark
from queuelake.settings import Lake
from queuelake.storage import api
from queuelake.storage import archive_tables as a
from queuelake.storage import queue_tables as t
from queuelake.storage.chunk import decode_chunk
from tests.queues.node import QueueNode

LAKE = "delta-1"
PAYLOAD = "x" * 30_000  # so that no chunk has room for two messages


class ArchiveNode(QueueNode):
    """Its queue `q` has one partition and `archive = true`, unless told otherwise."""

    def __init__(
        self, *, hold_bytes_max: int = 1 << 30, hold: Any = "reject", **queues: Any
    ) -> None:
        lake = Lake(archive_hold_bytes_max=hold_bytes_max, hold=hold)
        super().__init__(lake=lake, **queues)

    def archived(self, queue: str = "q", **settings: object) -> str:
        return self.make(queue, **{"archive": True, "partitions": 1, **settings})

    @property
    def archive(self) -> Archive:
        return self.broker.queues.archive

    def fill(self, count: int, queue: str = "q", **fields: Any) -> None:
        """Each message is a chunk of its own."""
        for number in range(count):
            self.publish(queue, f"{number}:{PAYLOAD}", **fields)

    def tell(
        self, upto: int, queue: str = "q", *, shard: int = 0, lake: str = LAKE, adopt: bool = False
    ) -> None:
        """The lake has this much of a queue."""
        number = self.broker.queues._ids[queue]
        mark = Mark(self.archive.queue_id(number), shard, upto)
        self.archive.told(ArchivedTold("messages", lake, [mark], adopt))
        self.work()

    # The store

    def stored(self, queue: str = "q", partition: int = 0) -> list[int]:
        """The sequences which are physically there."""
        number = self.broker.queues._ids[queue]
        prefix = t.partition_key(number, partition)
        rows = sorted(self.store.tables[api.CHUNKS].items())
        values = [value for key, value in rows if key.startswith(prefix)]
        return [record.seq for value in values for record in decode_chunk(value)]

    def held_in_store(self, queue: str = "q") -> int:
        """Bytes of the chunks which nobody but the archive needs."""
        host = self.host(queue)
        assert host.hold is not None
        size = 0
        for partition in host.machine.partitions:
            prefix = t.partition_key(host.id, partition.number)
            for key, value in self.store.tables[api.CHUNKS].items():
                if key.startswith(prefix):
                    last = decode_chunk(value)[-1].seq
                    if host.hold.floor(partition.number) < last <= partition.gone.upto:
                        size += len(value)
        return size

    def row(self, queue: str = "q", partition: int = 0) -> a.Archived:
        with self.store.view() as view:
            number = self.broker.queues._ids[queue]
            return a.read_archived(view, "messages", number, partition)
