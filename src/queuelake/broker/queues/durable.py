"""A durable queue in the broker: settings of its own over those of the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import msgspec

from queuelake import names
from queuelake.broker.queues import reading, rows
from queuelake.broker.queues.host import HostedQueue
from queuelake.engine import commands as c
from queuelake.engine.kinds.durable import DurableQueue
from queuelake.engine.message import PRIORITY_DEFAULT
from queuelake.engine.partitioning import fnv1a
from queuelake.engine.policy.settings import Policy
from queuelake.engine.publishing import missing_heads
from queuelake.engine.state import QueueState
from queuelake.queue_settings import QueueSettings, dead_letter_target
from queuelake.storage import queue_records
from queuelake.storage.chunk import Record

if TYPE_CHECKING:
    from queuelake.broker.queues.registry import Queues


@final
class DurableHost(HostedQueue):
    """`$queue/{name}`."""

    __slots__ = ("_group_names", "_hash", "_hashed_key", "explicit", "settings")

    def __init__(
        self,
        queues: Queues,
        queue_id: int,
        name: str,
        settings: QueueSettings,
        explicit: dict[str, object],
        policy: Policy,
        created_ms: int,
        ephemeral: bool,
    ) -> None:
        self.settings: QueueSettings = settings
        self.explicit: dict[str, object] = explicit  # what was set for this queue at run time
        self._hashed_key: bytes = b""
        self._hash: int = 0
        self._group_names: dict[bytes, str] = {}
        topic = names.address(name).encode()
        super().__init__(queues, queue_id, name, topic, policy, created_ms, ephemeral)

    def new_machine(self, policy: Policy) -> QueueState:
        return DurableQueue(policy)

    def queue_record(self) -> queue_records.QueueRecord:
        return queue_records.QueueRecord(
            self.name,
            queue_records.DURABLE,
            self.created_ms,
            msgspec.json.encode(self.explicit),
            len(self.machine.partitions),
            self.machine.next_group_id,
            self.machine.uses_priorities,
        )

    def read_settings(self, record: queue_records.QueueRecord) -> Policy:
        queues = self.queues
        self.explicit = queue_records.settings_tree(record)
        settings = queues.stored_settings(self.name, self.explicit)
        if settings != self.settings:
            self.settings = settings
            queues.note(self.name, settings)
        return queues.policy_for(self.name, settings, record.partitions)

    def dead_letter_queue(self) -> str:
        return dead_letter_target(self.settings, self.name)

    def compaction_key(self) -> bytes:
        return self.settings.compaction.key.encode()

    def alert_webhook(self) -> str:
        return self.settings.dlq_config.alert_webhook

    # Messages

    def is_awaited(self) -> bool:
        return self._outbox.is_waiting()

    def enqueue(
        self, record: Record, partition: int, dedupe: bytes, cause: int, now_ms: int
    ) -> int:
        """Store a message; the machine's reply."""
        machine = self.machine
        if machine.policy.drop_head:
            for number, seq in missing_heads(machine):
                reading.load_entries(self, number, seq, now_ms)
        key = self.hash_of(record.key) + 1 if record.key else 0
        entry = rows.entry_with(record, partition, self.topic, key)
        machine.apply(self.meta(now_ms), c.Enqueue(entry, dedupe, cause))
        if machine.reply == 0:
            record.seq = entry.seq
            self.tails[partition].append(record)
            self.queues.runner.pace.published += 1
            if entry.priority != PRIORITY_DEFAULT:
                self.record_dirty = True
            self.changed()
        return machine.reply

    def hash_of(self, key: bytes) -> int:
        """Of a partition key; asked twice in a row for each message."""
        if key is not self._hashed_key:
            self._hashed_key = key
            self._hash = fnv1a(key)
        return self._hash

    def group_named(self, name: bytes) -> str:
        """A group's name as the machine has it: made once, not for each settlement."""
        found = self._group_names.get(name)
        if found is None:
            found = name.decode()
            if found in self.machine.groups:
                self._group_names[name] = found
        return found

    def group_gone(self, group_id: int) -> None:
        super().group_gone(group_id)
        self._group_names.clear()
