"""All durable queues of the broker: which there are, and which of them are awake.

Of a queue nobody uses only its name is in memory. It wakes when somebody needs it, and sleeps again
when it has been idle for a while and nothing in it waits.
"""

from __future__ import annotations

import logging
from typing import Final, final

from queuelake import names
from queuelake.broker.clock import Clock
from queuelake.broker.queues.binding import Binding
from queuelake.broker.queues.host import HostedQueue
from queuelake.broker.queues.incoming import Incoming
from queuelake.broker.queues.membership import join
from queuelake.broker.queues.publishing import capture
from queuelake.broker.queues.reloading import read_machine, settings_tree
from queuelake.broker.queues.tail import RecordCache
from queuelake.broker.queues.target import Target
from queuelake.broker.router import Router
from queuelake.broker.runner import Runner
from queuelake.broker.webhooks import Webhooks
from queuelake.engine.policy.settings import Policy, policy_of
from queuelake.errors import NotFoundError, RefusedError
from queuelake.protocol import reasons
from queuelake.protocol.message import Message
from queuelake.queue_settings import (
    BadQueueSettingsError,
    QueueSettings,
    changes_allowed,
    merged,
    settings_of,
    settings_without_defaults,
)
from queuelake.settings import Queues as QueuesSection
from queuelake.storage import api, queue_records
from queuelake.storage import queue_tables as t
from queuelake.storage.api import Store

log = logging.getLogger("queuelake.queues")

TARGETS_MAX: Final = 100_000
SWEEP_ROWS: Final = 5_000


@final
class Queues:
    """The service; `publishing`, `subscribing` and `upkeep` beside this file work on it."""

    __slots__ = (
        "_dice",
        "_ids",
        "_last_id",
        "_last_number",
        "_replies",
        "_sorted",
        "_targets",
        "alerts",
        "bindings",
        "cache",
        "clock",
        "durable",
        "hosts",
        "incoming",
        "problem",
        "router",
        "runner",
        "settings",
        "store",
        "sublevels",
    )

    def __init__(
        self, store: Store, runner: Runner, router: Router, clock: Clock, settings: QueuesSection
    ) -> None:
        self.store: Store = store
        self.runner: Runner = runner
        self.router: Router = router
        self.clock: Clock = clock
        self.settings: QueuesSection = settings
        self.cache: RecordCache = RecordCache(settings.cache_bytes_max)
        self.hosts: dict[str, HostedQueue] = {}  # those which are awake
        self.sublevels: set[str] = set()  # names of queues which have them
        self.bindings: dict[str, list[Binding]] = {}
        self.alerts: Webhooks | None = None
        self.incoming: Incoming = Incoming()  # the properties of the last publish
        self._ids: dict[str, int] = {}  # of all queues in the store
        self._last_id: int = 0
        self._last_number: int = 0
        self._replies: int = 0  # queues which live in memory only
        self.durable: bool = False  # whether what the last publish did is part of a commit
        self.problem: str = ""  # in words, why the last publish was refused
        self._sorted: list[str] | None = None  # all names, when somebody asked for them
        self._targets: dict[bytes, Target] = {}
        self._dice: int = 1

    def load(self, first_id: int) -> None:
        """Learn which queues there are; ids from `first_id` on were never used."""
        self._last_id = first_id
        # Of 64 bits, 24 for the start and 40 for what comes after it.
        self._last_number = first_id >> 32 << 40
        with self.store.view() as view:
            for key, value in view.scan(api.QUEUES, b"", b"\xff" * 9):
                record = queue_records.decode_queue(value)
                self._ids[record.name] = int.from_bytes(key, "big")
                own = b"topics" in record.settings or b"sublevels" in record.settings
                if own or self.settings.defaults.sublevels:
                    self.note(record.name, self.stored_settings(record.name, settings_tree(record)))
        for name in self.settings.named:
            if name in self._ids:
                host = self.find(name)
                assert host is not None
                self.note(name, host.settings)
            else:
                self.create(name, {})
        self._wake_delayed()

    def _wake_delayed(self) -> None:
        """Queues in which something becomes due may not sleep."""
        by_id = {queue_id: name for name, queue_id in self._ids.items()}
        at = b""
        while True:
            with self.store.view() as view:
                key = next(view.scan_keys(api.DELAYED, at, b"\xff" * t.KEY_BYTES_MAX), None)
            if key is None:
                return
            queue_id = int.from_bytes(key[:8], "big")
            if queue_id in by_id:
                self.find(by_id[queue_id])
            at = t.queue_key(queue_id + 1)

    # Finding queues

    def sleeping_id(self, name: str) -> int:
        """The id of a queue which sleeps; 0: it does not, or is not there."""
        return 0 if name in self.hosts else self._ids.get(name, 0)

    def names(self) -> list[str]:
        """Of all queues, sorted; the list is kept, so it is not the caller's to change."""
        if self._sorted is None:
            self._sorted = sorted(set(self._ids) | set(self.hosts))
        return self._sorted

    def exists(self, name: str) -> bool:
        return name in self.hosts or name in self._ids

    def find(self, name: str) -> HostedQueue | None:
        """The queue of this name, woken if need be."""
        host = self.hosts.get(name)
        if host is None and name in self._ids:
            host = self._wake(name)
        return host

    def get(self, name: str) -> HostedQueue:
        """The queue of this name, which the caller believes to be there.

        Raises:
            NotFoundError: it is not.
        """
        host = self.find(name)
        if host is None:
            raise NotFoundError(f"there is no queue {names.address(name)!r}")
        return host

    def find_or_create(self, name: str) -> HostedQueue:
        """For somebody who publishes or subscribes.

        Raises:
            RefusedError: it is not there, and may not be made.
        """
        host = self.find(name)
        if host is not None:
            return host
        if not self.settings.auto_create and not names.is_response(name):
            problem = f"there is no queue {names.address(name)!r} and queues.auto_create is off"
            raise RefusedError.because(reasons.NOT_AUTHORIZED, problem)
        return self.create(name, {})

    def above_with_sublevels(self, name: str) -> str:
        """The longest prefix of a name which is a queue with sublevels; empty: there is none."""
        if not self.sublevels:
            return ""
        while "/" in name:
            name = name.rpartition("/")[0]
            if name in self.sublevels:
                return name
        return ""

    def known_target(self, topic: bytes) -> Target | None:
        """What a topic means which was published to lately."""
        return self._targets.get(topic)

    def target(self, topic: bytes) -> Target:
        """What a publish to this topic means; queues are made for it.

        Raises:
            RefusedError: it means nothing, or the queue may not be made.
        """
        found = self._targets.get(topic)
        if found is None:
            found = self._resolve(topic)
            if len(self._targets) >= TARGETS_MAX:
                self._targets.clear()
            self._targets[topic] = found
        return found

    def _resolve(self, topic: bytes) -> Target:
        address = names.parse_publish(topic)
        name = address.name
        if not self.exists(name):
            above = self.above_with_sublevels(name)
            if above:
                host = self.find(above)
                assert host is not None
                enqueues = address.operation == names.ENQUEUE
                return Target(host, address.operation, topic if enqueues else b"")
            if address.operation != names.ENQUEUE:
                problem = f"there is no queue {names.address(name)!r}"
                raise RefusedError.because(reasons.NO_MATCHING_SUBSCRIBERS, problem)
        return Target(self.find_or_create(name), address.operation, b"")

    # Making and changing them

    def create(self, name: str, explicit: dict[str, object], needed: bool = False) -> HostedQueue:
        """Make a queue. `needed`: messages which are here already have no other place to go.

        Raises:
            RefusedError: there are too many, or it cannot have these settings.
        """
        ephemeral = names.is_response(name)
        count = self._replies if ephemeral else len(self._ids)
        if count >= self.settings.queues_max and not needed:
            limit = self.settings.queues_max
            problem = f"there are {limit} of {limit} queues; {names.address(name)!r} is refused"
            raise RefusedError.because(reasons.QUOTA_EXCEEDED, problem)
        settings = self.settings_for(name, explicit)
        if settings.type == "stream":
            explicit = merged(explicit, {"type": "stream"})  # other defaults must not cut it short
        self._last_id += 1
        host = HostedQueue(
            self,
            self._last_id,
            name,
            settings,
            explicit,
            self.policy_for(name, settings, 0),
            self.clock.now_ms(),
            ephemeral,
        )
        self.hosts[name] = host
        self._sorted = None
        if self.sublevels:
            self._targets.clear()  # its name may have belonged to one above it
        if ephemeral:
            self._replies += 1
        else:
            self._ids[name] = host.id
            host.changed()
        self.note(name, settings)
        return host

    def _wake(self, name: str) -> HostedQueue:
        queue_id = self._ids[name]
        with self.store.view() as view:
            value = view.get(api.QUEUES, t.queue_key(queue_id))
        assert value is not None, f"{name!r} is known and not stored"
        record = queue_records.decode_queue(value)
        explicit = settings_tree(record)
        settings = self.stored_settings(name, explicit)
        policy = self.policy_for(name, settings, record.partitions)
        host = HostedQueue(
            self, queue_id, name, settings, explicit, policy, record.created_ms, False
        )
        host.record_dirty = False
        host.restore(read_machine(host, policy, record))
        host.active_ms = self.clock.now_ms()
        self.hosts[name] = host
        return host

    def configure(self, name: str, changes: dict[str, object]) -> HostedQueue:
        """Change a queue's own settings, or make it with them.

        Raises:
            BadQueueSettingsError: one entry for each mistake; nothing was changed.
        """
        changes = {key: value for key, value in changes.items() if key != "name"}
        host = self.find(name)
        if host is None:
            self.settings_for(name, changes)  # refuse before anything is made
            return self.create(name, changes)
        explicit = merged(host.explicit, changes)
        settings = self.settings_for(name, explicit)
        changes_allowed(host.settings, settings)
        host.explicit = explicit
        policy = self.policy_for(name, settings, len(host.machine.partitions))
        now_ms = self.clock.now_ms()
        host.configure(settings, policy, now_ms)
        for subscriber in list(host.subscribers.values()):
            if subscriber.joined and not subscriber.prefetch:
                join(host, subscriber, now_ms)  # with the queue's prefetch, as it is now
        self._targets.clear()
        self.note(name, settings)
        return host

    def delete(self, name: str) -> None:
        """A queue, its messages and its groups are gone; its consumers get nothing any more."""
        host = self.get(name)
        host.is_deleted = True
        for subscriber in list(host.subscribers.values()):
            subscriber.joined = False
            if subscriber in subscriber.session.consumers:
                subscriber.session.consumers.remove(subscriber)
        for tail in host.tails:
            self.cache.forget(tail)
        del self.hosts[name]
        self._sorted = None
        self._targets.clear()
        self._unbind(name)
        self.sublevels.discard(name)
        if host.ephemeral:
            self._replies -= 1
        if self._ids.pop(name, 0):
            self._drop(host.id)

    def _drop(self, queue_id: int) -> None:
        batch = self.runner.group.batch
        batch.drop_queue(queue_id)
        batch.sweep(SWEEP_ROWS)
        self.runner.wake()
        self.runner.if_failed(lambda: self._drop(queue_id))

    def unload(self, host: HostedQueue) -> None:
        """Nobody uses it: only its name stays in memory."""
        host.is_deleted = True  # whoever still has a hand on it changes nothing
        for tail in host.tails:
            self.cache.forget(tail)
        del self.hosts[host.name]
        self._targets.clear()

    def settings_for(self, name: str, explicit: dict[str, object]) -> QueueSettings:
        named = self.settings.named.get(name, {})
        return settings_of(name, self.settings.defaults, merged(named, explicit))

    def stored_settings(self, name: str, explicit: dict[str, object]) -> QueueSettings:
        """As `settings_for`, of a queue which is there: it is too late to refuse them."""
        try:
            return self.settings_for(name, explicit)
        except BadQueueSettingsError as error:
            address = names.address(name)
            log.error("%s does not fit the configuration, its defaults are off: %s", address, error)
            own = merged(self.settings.named.get(name, {}), explicit)
            return settings_without_defaults(name, own)

    def policy_for(self, name: str, settings: QueueSettings, partitions: int) -> Policy:
        policy = policy_of(settings, names.is_dead_letter(name))
        policy.partitions = max(policy.partitions, partitions)
        return policy

    def note(self, name: str, settings: QueueSettings) -> None:
        """Remember what concerns topics which are not the queue's own."""
        if settings.sublevels:
            self.sublevels.add(name)
        else:
            self.sublevels.discard(name)
        self._unbind(name)
        if settings.topics:
            found = [Binding(self, name, one.encode()) for one in settings.topics]
            self.bindings[name] = found
            for binding in found:
                self.router.bind(binding)

    def _unbind(self, name: str) -> None:
        for binding in self.bindings.pop(name, []):
            self.router.unbind(binding)

    # Messages

    def partition_for(self, host: HostedQueue, key: bytes) -> int:
        count = len(host.machine.partitions)
        if key:
            return host.hash_of(key) % count
        self._dice = (self._dice * 1103515245 + 12345) & 0x7FFFFFFF
        return (self._dice >> 16) % count

    def new_tag(self) -> int:
        self._last_number += 1
        return self._last_number

    def new_number(self) -> int:
        """Tells delayed messages of one moment apart, over restarts too."""
        self._last_number += 1
        return self._last_number

    def capture(self, name: str, message: Message) -> int:
        return capture(self, name, message)

    def report(self, client_id: str, topic_filter: bytes, problem: str) -> None:
        log.warning("%r cannot resume %s: %s", client_id, topic_filter.decode(), problem)
