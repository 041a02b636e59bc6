"""Which queues there are, of whatever kind, and which of them are awake.

Of a queue nobody uses only its name is in memory. It wakes when somebody needs it, and sleeps again
when it has been idle for a while and nothing in it waits. Names are one space for all kinds.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from queuelake.broker.clock import Clock
from queuelake.broker.pipeline.events import Ledger, write_events
from queuelake.broker.queues.host import HostedQueue
from queuelake.broker.queues.kind import QueueKind, Reception
from queuelake.broker.queues.tail import RecordCache
from queuelake.broker.runner import Runner
from queuelake.storage import api, queue_records
from queuelake.storage import queue_tables as t
from queuelake.storage.api import Store
from queuelake.storage.pipeline_tables import put_deleted

if TYPE_CHECKING:
    from queuelake.broker.pipeline.stats import Minutes
    from queuelake.broker.queues.durable import DurableHost

SWEEP_ROWS: Final = 5_000


class Hosts:
    """The queues of one broker."""

    __slots__ = (
        "_foreign",
        "_ids",
        "_last_id",
        "_replies",
        "_sorted",
        "cache",
        "clock",
        "hosts",
        "kinds",
        "ledger",
        "minutes",
        "receptions",
        "runner",
        "stirred",
        "store",
    )

    def __init__(self, store: Store, runner: Runner, clock: Clock, cache_bytes_max: int) -> None:
        self.store: Store = store
        self.runner: Runner = runner
        self.clock: Clock = clock
        self.cache: RecordCache = RecordCache(cache_bytes_max)
        self.ledger: Ledger = Ledger(store, runner)
        self.minutes: Minutes | None = None
        self.hosts: dict[str, HostedQueue] = {}  # those which are awake
        self.kinds: dict[str, QueueKind] = {}  # of queues which are not durable ones
        self.receptions: list[Reception] = []
        self.stirred: set[str] = set()  # made, woken or gone since somebody asked
        self._ids: dict[str, int] = {}  # of all queues in the store
        self._foreign: dict[str, str] = {}  # name -> kind, of those which are not durable ones
        self._last_id: int = 0
        self._replies: int = 0  # queues which live in memory only
        self._sorted: list[str] | None = None  # names of durable queues, when somebody asked

    @abstractmethod
    def wake_durable(self, queue_id: int, record: queue_records.QueueRecord) -> DurableHost:
        """Read a durable queue from the store."""

    @abstractmethod
    def names_changed(self) -> None:
        """What a topic means may have changed."""

    @abstractmethod
    def asleep(self, host: HostedQueue) -> None:
        """Only the name of a queue is in memory from now on."""

    def load(self, first_id: int) -> None:
        """Learn which queues there are; ids from `first_id` on were never used."""
        self._last_id = first_id
        self.ledger.load()
        with self.store.view() as view:
            for key, value in view.scan(api.QUEUES, b"", b"\xff" * 9):
                record = queue_records.decode_queue(value)
                queue_id = int.from_bytes(key, "big")
                self._ids[record.name] = queue_id
                if record.kind == queue_records.DURABLE:
                    self.learn(record)
                else:
                    self._foreign[record.name] = record.kind
                    self.kinds[record.kind].learn(queue_id, record)

    @abstractmethod
    def learn(self, record: queue_records.QueueRecord) -> None:
        """There is such a durable queue in the store."""

    @abstractmethod
    def is_awake(self, name: str) -> bool: ...

    def sleeping_id(self, name: str) -> int:
        """The id of a queue which sleeps; 0: it does not, or is not there."""
        return 0 if self.is_awake(name) else self._ids.get(name, 0)

    def name_of(self, queue_id: int) -> str:
        """Of the queue with this number; empty: there is none. Looks at all of them."""
        for name, known in self._ids.items():
            if known == queue_id:
                return name
        return ""

    def names(self) -> list[str]:
        """Of all `$queue/{name}` but message queues, sorted; not the caller's to change."""
        if self._sorted is None:
            known = set(self._ids) | set(self.hosts)
            self._sorted = sorted([name for name in known if self.exists(name)])
        return self._sorted

    def all_names(self) -> list[str]:
        return list(set(self._ids) | set(self.hosts))

    def is_taken(self, name: str) -> bool:
        """Whether a queue of any kind has this name."""
        return name in self.hosts or name in self._ids

    def exists(self, name: str) -> bool:
        """Whether there is a queue to publish to, durable or quorum."""
        return self.is_taken(name) and self._foreign.get(name) != queue_records.MESSAGE

    def kind_of(self, name: str) -> str:
        """Of a queue which is there."""
        return self._foreign.get(name, queue_records.DURABLE)

    def wake(self, name: str) -> HostedQueue | None:
        """The queue of this name, awake; None: there is none, or its kind keeps it itself."""
        host = self.hosts.get(name)
        if host is None and self.sleeping_id(name):
            host = self._wake(name)
        return host

    # New ones, and those which are gone

    def new_queue_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def add(self, host: HostedQueue, kind: str) -> None:
        """A queue which is new."""
        self.hosts[host.name] = host
        if host.ephemeral:
            self._replies += 1
            self._sorted = None
        else:
            self.register(host.name, host.id, kind)
            host.changed()

    def register(self, name: str, queue_id: int, kind: str) -> None:
        """The name of a new queue."""
        if kind != queue_records.DURABLE:
            self._foreign[name] = kind
        self._ids[name] = queue_id
        self._sorted = None
        self.stirred.add(name)

    def remove(self, host: HostedQueue) -> None:
        """A queue, its messages and its groups are gone; its consumers get nothing any more."""
        name = host.name
        if not host.ephemeral:
            write_events(self.runner.group.batch, host)
        if self.minutes is not None:
            self.minutes.close(host)
        host.is_deleted = True
        for subscriber in list(host.subscribers.values()):
            subscriber.joined = False
            if subscriber in subscriber.session.consumers:
                subscriber.session.consumers.remove(subscriber)
        for tail in host.tails:
            self.cache.forget(tail)
        del self.hosts[name]
        if host.ephemeral:
            self._replies -= 1
        self.unregister(name, host.queue_record())

    def unregister(self, name: str, record: queue_records.QueueRecord) -> None:
        """The name is free again, and what the store has of the queue goes."""
        self._foreign.pop(name, None)
        self._sorted = None
        self.stirred.add(name)
        self.names_changed()
        queue_id = self._ids.pop(name, 0)
        if queue_id:
            self._drop(queue_id, record)

    def _drop(self, queue_id: int, record: queue_records.QueueRecord) -> None:
        batch = self.runner.group.batch
        batch.drop_queue(queue_id)
        batch.sweep(SWEEP_ROWS)
        self.ledger.grow(put_deleted(batch, queue_id, record))
        self.runner.wake()
        self.runner.if_failed(lambda: self._drop(queue_id, record))

    def unload(self, host: HostedQueue) -> None:
        """Nobody uses it: only its name stays in memory."""
        if self.minutes is not None:
            self.minutes.close(host)
        host.is_deleted = True  # whoever still has a hand on it changes nothing
        for tail in host.tails:
            self.cache.forget(tail)
        del self.hosts[host.name]
        self.asleep(host)
        if host.name in self._foreign:
            self.kinds[self._foreign[host.name]].asleep(host.name)
        self.names_changed()

    def _wake(self, name: str) -> HostedQueue | None:
        self.stirred.add(name)
        queue_id = self._ids[name]
        with self.store.view() as view:
            value = view.get(api.QUEUES, t.queue_key(queue_id))
        assert value is not None, f"{name!r} is known and not stored"
        record = queue_records.decode_queue(value)
        host: HostedQueue | None
        if record.kind != queue_records.DURABLE:
            host = self.kinds[record.kind].wake(queue_id, record)
        else:
            host = self.wake_durable(queue_id, record)
        if host is None:
            return None
        host.record_dirty = False
        host.active_ms = self.clock.now_ms()
        self.hosts[name] = host
        return host
