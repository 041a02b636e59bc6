"""The queues of the fake broker: enough state to see which operation was called with what."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from queuelake.control_queues import (
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
    QueueMessage,
    QueuePage,
    QueueStats,
    QueueSummary,
    Rates,
    Redriven,
)
from queuelake.errors import NotFoundError
from queuelake.queue_settings import QueueSettings, merged, read_changes, settings_of

QUEUE_NAMES = ["tasks/image", "tasks", "a%2Fb", "50%", "ünïcode", "with space", "q1", "q2"]
PAYLOAD = b"\x00\xff\xfe binary"

T = TypeVar("T")


class FakeQueues:
    """Queues by bare name, each with the settings it was given; every call is noted."""

    def __init__(self) -> None:
        self.settings: dict[str, dict[str, object]] = {name: {} for name in QUEUE_NAMES}
        self.groups = {"workers"}
        self.dead_letters = {"dlq/tasks/image:0:1", "0:1"}
        self.calls: list[tuple[str, dict[str, object]]] = []
        table: dict[str, Callable[[dict[str, object]], object]] = {
            "queues": self._queues,
            "queue": self._queue,
            "queue_configure": self._configure,
            "queue_delete": self._delete,
            "queue_stats": self._stats,
            "queue_consumers": self._consumers,
            "queue_messages": self._messages,
            "queue_purge": self._purge,
            "queue_dlq": self._dlq,
            "queue_dlq_retry": self._retry,
            "queue_group_delete": self._delete_group,
        }
        self.operations = {op: self._noted(op, work) for op, work in table.items()}

    def restore(self) -> None:
        """Everything is there again which a test may have deleted."""
        self.groups = {"workers"}
        for name in QUEUE_NAMES:
            self.settings.setdefault(name, {})

    def _noted(
        self, op: str, work: Callable[[dict[str, object]], T]
    ) -> Callable[[dict[str, object]], T]:
        def noted(args: dict[str, object]) -> T:
            self.calls.append((op, args))
            return work(args)

        return noted

    def _name(self, args: dict[str, object]) -> str:
        name = str(args["name"])
        if name not in self.settings:
            raise NotFoundError(f"there is no queue '$queue/{name}'")
        return name

    def _queues(self, args: dict[str, object]) -> QueuePage:
        limit, cursor = args["limit"], args["cursor"]
        assert isinstance(limit, int)
        assert isinstance(cursor, str)
        names = sorted(name for name in self.settings if name > cursor)
        page = [QueueSummary(f"$queue/{name}", 10, "partition") for name in names[:limit]]
        return QueuePage(page, names[limit - 1] if len(names) > limit else None)

    def _queue(self, args: dict[str, object]) -> QueueInfo:
        name = self._name(args)
        explicit = self.settings[name]
        return QueueInfo(
            f"$queue/{name}", settings_of(name, QueueSettings(), explicit), explicit, 1
        )

    def _configure(self, args: dict[str, object]) -> QueueConfigured:
        changes = args["changes"]
        assert isinstance(changes, bytes)
        name = str(args["name"])
        explicit = merged(self.settings.get(name, {}), read_changes(changes))
        settings_of(name, QueueSettings(), explicit)
        created = name not in self.settings
        self.settings[name] = explicit
        return QueueConfigured(created, self._queue(args))

    def _delete(self, args: dict[str, object]) -> QueueDeleted:
        del self.settings[self._name(args)]
        return QueueDeleted()

    def _stats(self, args: dict[str, object]) -> QueueStats:
        return QueueStats(
            f"$queue/{self._name(args)}",
            depth=7,
            partitions=[PartitionStats(0, 3, 5, 8), PartitionStats(1, 4, 1, 5)],
            groups=[GroupStats("workers", 7, 2, 1, 1)],
            rates=Rates(1.5, 1.0, 0.5),
            in_flight=1,
            retrying=1,
            dlq=1,
            dead_lettered_by_reason={"rejected": 1},
            latency_p50_s=0.001,
            latency_p99_s=0.5,
        )

    def _consumers(self, args: dict[str, object]) -> ConsumerPage:
        self._name(args)
        return ConsumerPage([ConsumerInfo("workers", "w-1", [0, 1], 1, 1_790_000_000_000)])

    def _messages(self, args: dict[str, object]) -> MessagePage:
        name = self._name(args)
        found = QueueMessage(
            id=f"{name}:0:5",
            partition=0,
            offset=5,
            payload=PAYLOAD,
            payload_bytes=len(PAYLOAD),
            properties=[("k", "1"), ("k", "2")],
        )
        return MessagePage([found], "0:6")

    def _purge(self, args: dict[str, object]) -> Purged:
        self._name(args)
        return Purged(7)

    def _dlq(self, args: dict[str, object]) -> DeadLetterPage:
        name = self._name(args)
        letter = DeadLetter(
            id=f"dlq/{name}:0:1",
            partition=0,
            offset=1,
            payload=PAYLOAD,
            payload_bytes=len(PAYLOAD),
            dlq_original_queue=f"$queue/{name}",
            dlq_original_topic=f"$queue/{name}",
            dlq_original_id=f"{name}:3:17",
            dlq_group="workers",
            dlq_reason="rejected",
            dlq_delivery_count=2,
            dlq_first_attempt="2026-11-16T01:02:03.004Z",
            dlq_moved_at="2026-11-16T01:02:04.004Z",
        )
        return DeadLetterPage([letter])

    def _retry(self, args: dict[str, object]) -> Redriven:
        name = self._name(args)
        if args["id"] not in self.dead_letters:
            raise NotFoundError(f"there is no dead letter {args['id']!r}")
        return Redriven(f"$queue/{name}", f"{name}:3:18", 3)

    def _delete_group(self, args: dict[str, object]) -> None:
        self._name(args)
        if args["group"] not in self.groups:
            raise NotFoundError(f"there is no group {args['group']!r}")
        self.groups.remove(str(args["group"]))
