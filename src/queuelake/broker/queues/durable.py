"""A durable queue in the broker: settings of its own over those of the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import msgspec

from queuelake import names
from queuelake.broker.queues.host import HostedQueue
from queuelake.engine.kinds.durable import DurableQueue
from queuelake.engine.policy.settings import Policy
from queuelake.engine.state import QueueState
from queuelake.queue_settings import QueueSettings, dead_letter_target
from queuelake.storage import queue_records

if TYPE_CHECKING:
    from queuelake.broker.queues.registry import Queues


@final
class DurableHost(HostedQueue):
    """`$queue/{name}`."""

    __slots__ = ("explicit", "settings")

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
