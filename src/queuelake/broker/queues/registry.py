"""Durable queues by their names: finding, making and changing them, and what a topic means.

`Hosts` knows which queues there are; here they are the durable ones among them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

from queuelake import names
from queuelake.broker.clock import Clock
from queuelake.broker.pipeline.archive import Archive
from queuelake.broker.queues.binding import Binding
from queuelake.broker.queues.durable import DurableHost
from queuelake.broker.queues.host import HostedQueue
from queuelake.broker.queues.hosts import Hosts
from queuelake.broker.queues.incoming import Incoming
from queuelake.broker.queues.membership import join
from queuelake.broker.queues.publishing import capture
from queuelake.broker.queues.reloading import read_machine
from queuelake.broker.queues.target import Target
from queuelake.broker.quorum.service import QuorumQueues
from queuelake.broker.router import Router
from queuelake.broker.runner import Runner
from queuelake.broker.webhooks import Webhooks
from queuelake.engine.events import OFF
from queuelake.engine.policy.settings import Policy, policy_of
from queuelake.errors import NameTakenError, NotFoundError, RefusedError
from queuelake.placing import Placing
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
from queuelake.settings import Lake
from queuelake.settings import Queues as QueuesSection
from queuelake.storage import queue_records
from queuelake.storage.api import Store
from queuelake.storage.delayed import delayed_queues

if TYPE_CHECKING:
    from queuelake.broker.tracing import Tracer

log = logging.getLogger("queuelake.queues")

TARGETS_MAX: Final = 100_000


@final
class Queues(Hosts):
    """The service; `publishing`, `subscribing` and `upkeep` beside this file work on it."""

    __slots__ = (
        "_dice",
        "_last_number",
        "_targets",
        "alerts",
        "archive",
        "bindings",
        "durable",
        "hold_full",
        "incoming",
        "placing",
        "problem",
        "quorum",
        "router",
        "settings",
        "strict_publish",
        "sublevels",
        "tracer",
    )

    def __init__(
        self,
        store: Store,
        runner: Runner,
        router: Router,
        clock: Clock,
        settings: QueuesSection,
        lake: Lake,
    ) -> None:
        super().__init__(store, runner, clock, settings.cache_bytes_max)
        self.router: Router = router
        self.settings: QueuesSection = settings
        self.placing: Placing | None = None  # of a cluster with several shards
        self.sublevels: set[str] = set()  # names of queues which have them
        self.bindings: dict[str, list[Binding]] = {}
        self.alerts: Webhooks | None = None
        self.tracer: Tracer | None = None  # while messages are traced
        self.archive: Archive = Archive(self, lake)
        self.hold_full: bool = False  # archived queues take no messages now
        self.incoming: Incoming = Incoming()  # the properties of the last publish
        self._last_number: int = 0
        self.durable: bool = False  # whether what the last publish did is part of a commit
        self.problem: str = ""  # in words, why the last publish was refused
        # Whether a publisher is told when no message queue could store its message.
        self.strict_publish: bool = True
        self._targets: dict[bytes, Target] = {}
        self._dice: int = 1
        self.quorum: QuorumQueues = QuorumQueues(self)

    def load(self, first_id: int) -> None:
        # Of 64 bits, 24 for the start and 40 for what comes after it.
        self._last_number = first_id >> 32 << 40
        self.archive.load()
        super().load(first_id)
        for name in self.settings.named:
            host = self.find(name)
            if host is not None:
                self.note(name, host.settings)
            elif not self.is_taken(name):
                self.make(name)
        by_id = {queue_id: name for name, queue_id in self._ids.items()}
        for queue_id in delayed_queues(self.store):
            if queue_id in by_id:
                self.wake(by_id[queue_id])  # where something becomes due it may not sleep

    def learn(self, record: queue_records.QueueRecord) -> None:
        words = (b"topics", b"sublevels", b"archive", b"schema")
        defaults = self.settings.defaults
        general = defaults.sublevels or defaults.archive or defaults.schema.format != ""
        if general or any([word in record.settings for word in words]):
            explicit = queue_records.settings_tree(record)
            self.note(record.name, self.stored_settings(record.name, explicit))

    def asleep(self, host: HostedQueue) -> None:
        if isinstance(host, DurableHost):
            self.archive.asleep(host)

    def names_changed(self) -> None:
        self._targets.clear()

    # Finding queues

    def is_awake(self, name: str) -> bool:
        return name in self.hosts or name in self.quorum.hosts

    def find(self, name: str) -> DurableHost | None:
        """The durable queue of this name, woken if need be."""
        host = self.wake(name) if name not in self._foreign else None
        return host if isinstance(host, DurableHost) else None

    def get(self, name: str) -> DurableHost:
        """The queue of this name, which the caller believes to be there.

        Raises:
            NotFoundError: it is not.
        """
        host = self.find(name)
        if host is None:
            raise NotFoundError(f"there is no queue {names.address(name)!r}")
        return host

    def ensure(self, name: str) -> None:
        """For somebody who publishes or subscribes: there is a queue of this name now.

        Raises:
            RefusedError: it is not there, and may not be made.
        """
        if self.exists(name):
            return
        if self.is_taken(name):
            problem = f"{names.address(name)!r} is filled from its topic filter, not by publishes"
            raise RefusedError.because(reasons.TOPIC_NAME_INVALID, problem)
        if not self.settings.auto_create and not names.is_response(name):
            problem = f"there is no queue {names.address(name)!r} and queues.auto_create is off"
            raise RefusedError.because(reasons.NOT_AUTHORIZED, problem)
        self.make(name)

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
                enqueues = address.operation == names.ENQUEUE
                return Target(self.get(above), address.operation, topic if enqueues else b"")
            if address.operation != names.ENQUEUE:
                problem = f"there is no queue {names.address(name)!r}"
                raise RefusedError.because(reasons.NO_MATCHING_SUBSCRIBERS, problem)
            self.ensure(name)
        quorum = self.quorum.find(name)
        host = self.get(name) if quorum is None else None
        return Target(host, address.operation, b"", quorum)

    # Making and changing them

    def make(self, name: str, explicit: dict[str, object] | None = None) -> None:
        """Make a queue of whatever type its settings say.

        Raises:
            RefusedError: there are too many, or it cannot have these settings.
        """
        own = explicit or {}
        settings = self.settings_for(name, own)
        if settings.type != "quorum":
            self.create(name, own)
            return
        self._refuse_new(name, len(self._ids), False)
        self.quorum.create(name, settings, own)
        self.bind(name, settings)

    def _refuse_new(self, name: str, count: int, needed: bool) -> None:
        if self.is_taken(name):
            raise NameTakenError(name)
        if count >= self.settings.queues_max and not needed:
            limit = self.settings.queues_max
            problem = f"there are {limit} of {limit} queues; {names.address(name)!r} is refused"
            raise RefusedError.because(reasons.QUOTA_EXCEEDED, problem)

    def create(self, name: str, explicit: dict[str, object], needed: bool = False) -> DurableHost:
        """Make a durable one. `needed`: messages which are here already have no other place to go.

        Raises:
            RefusedError: there are too many, or it cannot have these settings.
        """
        ephemeral = names.is_response(name)
        self._refuse_new(name, self._replies if ephemeral else len(self._ids), needed)
        settings = self.settings_for(name, explicit)
        if settings.type == "stream":
            explicit = merged(explicit, {"type": "stream"})  # other defaults must not cut it short
        host = DurableHost(
            self,
            self.new_queue_id(),
            name,
            settings,
            explicit,
            self.policy_for(name, settings, 0),
            self.clock.now_ms(),
            ephemeral,
        )
        self.add(host, queue_records.DURABLE)
        if self.sublevels:
            self.names_changed()  # its name may have belonged to one above it
        self.note(name, settings)
        return host

    def wake_durable(self, queue_id: int, record: queue_records.QueueRecord) -> DurableHost:
        explicit = queue_records.settings_tree(record)
        settings = self.stored_settings(record.name, explicit)
        policy = self.policy_for(record.name, settings, record.partitions)
        host = DurableHost(
            self, queue_id, record.name, settings, explicit, policy, record.created_ms, False
        )
        self.archive.attach(host)
        host.restore(read_machine(host, policy, record))
        return host

    def configure(self, name: str, changes: dict[str, object]) -> None:
        """Change a queue's own settings, or make it with them.

        Raises:
            BadQueueSettingsError: one entry for each mistake; nothing was changed.
        """
        changes = {key: value for key, value in changes.items() if key != "name"}
        quorum = self.quorum.find(name)
        if quorum is not None:
            self.quorum.configure(quorum, changes)
            return
        host = self.find(name)
        if host is None:
            self.make(name, changes)
            return
        explicit = merged(host.explicit, changes)
        settings = self.settings_for(name, explicit)
        changes_allowed(host.settings, settings)
        host.explicit, host.settings = explicit, settings
        policy = self.policy_for(name, settings, len(host.machine.partitions))
        now_ms = self.clock.now_ms()
        host.configure(policy, now_ms)
        for subscriber in list(host.subscribers.values()):
            if subscriber.joined and not subscriber.prefetch:
                join(host, subscriber, now_ms)  # with the queue's prefetch, as it is now
        self.names_changed()
        self.note(name, settings)

    def delete(self, name: str) -> None:
        """A queue, its messages and its groups are gone; its consumers get nothing any more."""
        quorum = self.quorum.find(name)
        if quorum is not None:
            self.quorum.delete(quorum)
            self._unbind(name)
            return
        host = self.get(name)
        self.remove(host)
        if not host.ephemeral:
            self.archive.forget(host)
        self._unbind(name)
        self.sublevels.discard(name)

    def settings_for(self, name: str, explicit: dict[str, object]) -> QueueSettings:
        named = self.settings.named.get(name, {})
        return settings_of(name, self.settings.defaults, merged(named, explicit), self.placing)

    def stored_settings(self, name: str, explicit: dict[str, object]) -> QueueSettings:
        """As `settings_for`, of a queue which is there: it is too late to refuse them."""
        address = names.address(name)
        try:
            settings = self.settings_for(name, explicit)
            if (settings.type == "quorum") == (self.kind_of(name) == queue_records.QUORUM):
                return settings
            log.error("%s cannot become of type %r while it is there", address, settings.type)
            return settings_without_defaults(name, explicit)
        except BadQueueSettingsError as error:
            log.error("%s does not fit the configuration, its defaults are off: %s", address, error)
            own = merged(self.settings.named.get(name, {}), explicit)
            return settings_without_defaults(name, own)

    def policy_for(self, name: str, settings: QueueSettings, partitions: int) -> Policy:
        policy = policy_of(settings, names.is_dead_letter(name))
        policy.partitions = max(policy.partitions, partitions)
        if names.is_response(name):
            policy.events = OFF  # it is in no store
        return policy

    def note(self, name: str, settings: QueueSettings) -> None:
        """Remember what concerns topics which are not the queue's own."""
        if settings.sublevels:
            self.sublevels.add(name)
        else:
            self.sublevels.discard(name)
        self._note_archive(name, settings)
        self.bind(name, settings)

    def bind(self, name: str, settings: QueueSettings) -> None:
        """Let it capture what its settings say."""
        self._unbind(name)
        if settings.topics:
            found = [Binding(self, name, one.encode()) for one in settings.topics]
            self.bindings[name] = found
            for binding in found:
                self.router.bind(binding)

    def _note_archive(self, name: str, settings: QueueSettings) -> None:
        if queue_id := self._ids.get(name, 0):
            self.archive.note(queue_id, settings)
            host = self.hosts.get(name)
            if isinstance(host, DurableHost):
                self.archive.attach(host)

    def _unbind(self, name: str) -> None:
        for binding in self.bindings.pop(name, []):
            self.router.unbind(binding)

    # Messages

    def partition_for(self, host: DurableHost, key: bytes) -> int:
        count = len(host.machine.partitions)
        if key:
            return host.hash_of(key) % count
        self._dice = (self._dice * 1103515245 + 12345) & 0x7FFFFFFF
        return (self._dice >> 16) % count

    def new_tag(self) -> int:
        return self.new_number()

    def new_number(self) -> int:
        """Tells delayed messages of one moment apart, over restarts too."""
        self._last_number += 1
        return self._last_number

    def capture(self, name: str, message: Message) -> int:
        return capture(self, name, message)

    def report(self, client_id: str, topic_filter: bytes, problem: str) -> None:
        log.warning("%r cannot resume %s: %s", client_id, topic_filter.decode(), problem)
