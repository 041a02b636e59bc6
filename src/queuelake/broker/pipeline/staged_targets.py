"""What a staged batch is for: durable queues, message queues; and dead letters which leave theirs.

The rules are those of a publish: the same queues are made, the same names refused, and whoever is
refused hears the same words.
"""

from __future__ import annotations

from typing import Final, final

from queuelake import names, tables
from queuelake.broker.message_queues.host import MessageQueueHost
from queuelake.broker.message_queues.service import MessageQueues
from queuelake.broker.queues.durable import DurableHost
from queuelake.broker.queues.host import HostedQueue
from queuelake.broker.queues.publishing import refuse_if_held, words
from queuelake.broker.queues.registry import Queues
from queuelake.control_pipeline import StageTarget
from queuelake.engine import commands as c
from queuelake.engine.extending import refusal
from queuelake.errors import NotFoundError, RefusedError
from queuelake.protocol import reasons
from queuelake.storage.prepared import Letters

_QUEUE: Final = names.PREFIX.decode()


@final
class StageTargets:
    """Finds the queues of batches."""

    def __init__(self, queues: Queues, message_queues: MessageQueues) -> None:
        self._queues = queues
        self._message_queues = message_queues

    def describe(self, target: str) -> StageTarget:
        """
        Raises:
            RefusedError: nothing can be written there.
        """
        if target == tables.SDV_NAME:
            return StageTarget("fanout", target)
        host = self.find(target)
        policy = host.machine.policy
        described = StageTarget(
            "durable",
            host.topic.decode(),
            host.id,
            len(host.machine.partitions),
            policy.ttl_ms,
            policy.message_bytes_max,
        )
        if isinstance(host, MessageQueueHost):
            settings = host.known.settings
            return StageTarget(
                "last_value" if settings.is_lastvalue else "message",
                described.address,
                described.number,
                message_bytes_max=policy.message_bytes_max,
                topic_filter=settings.topic_filter,
                key_expression=settings.key_expression if settings.is_lastvalue else "",
            )
        return described

    def find(self, target: str) -> HostedQueue:
        """The queue, awake; made as a publish would make it.

        Raises:
            RefusedError: nothing can be written there.
        """
        if target.startswith("$") and not target.startswith((_QUEUE, names.MQ_PREFIX.decode())):
            allowed = f"$queue/{{name}}, $q/{{filter}}, {tables.SDV_NAME}"
            raise RefusedError(f"rows cannot be written to {target!r}; allowed: {allowed}")
        topic = target if target.startswith("$") else names.address(target)
        known = self._message_queues.known.get(names.parse_message_queue(topic.encode())[0])
        if topic.encode().startswith(names.MQ_PREFIXES) and known is None:
            raise NotFoundError(f"there is no message queue {target!r}")
        if known is not None and topic in (known.address, names.address(known.name)):
            return self._message_queues.awake(known)
        name = topic.removeprefix(_QUEUE)
        if names.is_response(name):
            raise RefusedError(f"rows cannot be written to {topic!r}: replies live in memory only")
        found = self._queues.target(topic.encode())
        if found.operation != names.ENQUEUE or found.topic:
            raise RefusedError(f"rows cannot be written to {topic!r}; name a queue itself")
        if found.host is None:
            raise RefusedError(f"rows cannot be written to {topic!r}: it is a quorum queue")
        return found.host

    def wake(self, queue_id: int) -> HostedQueue | None:
        """The queue with this number, awake."""
        name = self._queues.name_of(queue_id)
        return self._queues.wake(name) if name else None

    def refuse_without_room(self, host: HostedQueue, command: c.Extend) -> None:
        """
        Raises:
            RefusedError: the queue does not take these messages now.
        """
        if isinstance(host, DurableHost):
            refuse_if_held(self._queues, host)
        reply = refusal(host.machine, command)
        if not reply:
            return
        host.machine.counters.refused += 1
        if isinstance(host, DurableHost):
            problem = words(host, reply, command.largest)
            if reply == reasons.QUOTA_EXCEEDED:
                problem += f"; this batch has {sum(command.counts) + command.delayed}"
            raise RefusedError.because(reply, problem)
        policy = host.machine.policy
        limit = min(policy.message_bytes_max, policy.bytes_max or policy.message_bytes_max)
        address = host.topic.decode()
        problem = f"message of {command.largest} bytes; queue {address!r} takes {limit}"
        raise RefusedError.because(reasons.PACKET_TOO_LARGE, problem)

    def count(self, host: HostedQueue, rows: int) -> None:
        """So many messages came, for whoever counts them by kind."""
        if isinstance(host, MessageQueueHost):
            known = host.known
            known.received += rows
            known.inserted += rows
            known.metrics.received_messages += rows
            known.metrics.inserted_messages += rows

    # Dead letters

    def gone_letters(self, letters: Letters) -> Letters:
        """Those which are not there any more."""
        host = self.wake(letters.queue_id)
        if not isinstance(host, DurableHost):
            return letters
        gone = [seq for seq in letters.seqs if not _is_there(host, letters.partition, seq)]
        return Letters(letters.queue_id, letters.partition, gone)

    def remove_letters(self, letters: Letters, now_ms: int) -> None:
        """Take them out of their queue, with the group being collected."""
        host = self.wake(letters.queue_id)
        assert isinstance(host, DurableHost)
        for seq in letters.seqs:
            host.machine.apply(host.meta(now_ms), c.Remove(letters.partition, seq))
        host.active_ms = now_ms
        host.changed()


def _is_there(host: DurableHost, number: int, seq: int) -> bool:
    machine = host.machine
    if not 0 <= number < len(machine.partitions):
        return False
    partition = machine.partitions[number]
    return 0 < seq <= partition.last and not machine.is_deleted(partition, seq)
