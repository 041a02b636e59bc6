"""Quorum queues of the broker: which there are, which are awake, and who uses them.

They are queues like the durable ones, with the same names and the same topics, and another machine.
A session of MQTT is a session of the queue: its id is never used again, so it is its epoch. While
a session outlives its connection its consumers are suspected; when it ends they are down.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from typing import TYPE_CHECKING, Final, final

from queuelake import names
from queuelake.broker.clock import SLOT_MS
from queuelake.broker.queues.kind import QueueKind
from queuelake.broker.queues.subscribing import prefetch_of, refused
from queuelake.broker.quorum import rows
from queuelake.broker.quorum.host import QuorumHost
from queuelake.broker.quorum.subscriber import QuorumSubscriber
from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum.policy import UNSET
from queuelake.errors import RefusedError
from queuelake.protocol import reasons
from queuelake.protocol.packets import V5
from queuelake.queue_settings import QueueSettings, changes_allowed, merged
from queuelake.storage import queue_records

if TYPE_CHECKING:
    from queuelake.broker.clock import TimerWheel
    from queuelake.broker.queues.registry import Queues
    from queuelake.broker.queues.upkeep import QueueUpkeep
    from queuelake.broker.session import Session, Subscription

log = logging.getLogger("queuelake.queues")

PRIORITY_MAX: Final = 1_000_000
TIMEOUT_MS_MAX: Final = 10 * 365 * 86_400_000
DEEP: Final = 10_000  # messages, or what was settled between them: some ten milliseconds to read
FORGET_IDS_EVERY_MS: Final = 10_000
SLOTS_PER_SECOND: Final = 1000 // SLOT_MS


@final
class Client:
    """One session of MQTT, and what it has here."""

    __slots__ = ("hosts", "pid", "subscribers")

    def __init__(self, session: Session) -> None:
        self.pid: str = f"{session.id}/{session.client_id}"
        self.hosts: dict[str, QuorumHost] = {}  # by name, those it is known to
        self.subscribers: list[QuorumSubscriber] = []  # of its connection

    def forget(self, host: QuorumHost) -> None:
        """A queue is gone, or asleep: whoever comes back to it comes anew."""
        self.hosts.pop(host.name, None)
        self.subscribers = [one for one in self.subscribers if one.host is not host]


@final
class QuorumQueues(QueueKind):
    """The service."""

    def __init__(self, queues: Queues) -> None:
        self._queues: Queues = queues
        self.hosts: dict[str, QuorumHost] = {}  # those which are awake
        self.stopping: bool = False
        self.chain: int = 0  # dead letters which lead to dead letters, just now
        self._clients: dict[int, Client] = {}  # by the id of the session
        self._wakes: list[tuple[int, str]] = []  # heap: when which queue must wake
        self._learned: list[tuple[int, queue_records.QueueRecord]] = []  # until `wake_deep`
        self._ticks: int = 0
        queues.kinds[queue_records.QUORUM] = self
        queues.receptions.append(self)

    # Queues

    def find(self, name: str) -> QuorumHost | None:
        """The quorum queue of this name, woken if need be."""
        host = self.hosts.get(name)
        if host is None and self._queues.kind_of(name) == queue_records.QUORUM:
            self._queues.wake(name)
            host = self.hosts.get(name)
        return host

    def create(self, name: str, settings: QueueSettings, explicit: dict[str, object]) -> QuorumHost:
        queues = self._queues
        now_ms = queues.clock.now_ms()
        explicit = merged(explicit, {"type": "quorum"})
        host = QuorumHost(queues, queues.new_queue_id(), name, settings, explicit, now_ms)
        self.hosts[name] = host
        queues.register(name, host.id, queue_records.QUORUM)
        host.apply(c.GarbageCollection(), now_ms)  # its life begins: it may be unused for long
        host.take_letters(now_ms)
        return host

    def configure(self, host: QuorumHost, changes: dict[str, object]) -> None:
        """
        Raises:
            BadQueueSettingsError: one entry for each mistake; nothing was changed.
        """
        queues = self._queues
        explicit = merged(host.explicit, changes)
        settings = queues.settings_for(host.name, explicit)
        changes_allowed(host.settings, settings)
        host.configure(settings, explicit, queues.clock.now_ms())
        queues.bind(host.name, settings)

    def delete(self, host: QuorumHost) -> None:
        """A queue and its messages are gone; its consumers get nothing any more."""
        host.is_deleted = True
        for subscriber in list(host.subscribers.values()):
            subscriber.leave()
        for client in self._clients.values():
            client.forget(host)
        self._forget(host)
        self._queues.unregister(host.name, host.queue_record())

    def expired(self, host: QuorumHost) -> None:
        """Nobody has used it for as long as it may be idle."""
        log.info("%s is deleted: unused for %s", names.address(host.name), host.settings.expires)
        self._queues.delete(host.name)

    def _forget(self, host: QuorumHost) -> None:
        self._queues.cache.forget(host.tail)
        del self.hosts[host.name]

    # As a kind of queue

    def learn(self, queue_id: int, record: queue_records.QueueRecord) -> None:
        self._learned.append((queue_id, record))
        explicit = queue_records.settings_tree(record)
        if "topics" in merged(self._queues.settings.named.get(record.name, {}), explicit):
            self._queues.bind(record.name, self._queues.stored_settings(record.name, explicit))

    def wake(self, queue_id: int, record: queue_records.QueueRecord) -> None:
        host = self._sleeper(queue_id, record)
        host.load()
        self._awake(host)

    async def wake_deep(self) -> None:
        """At the start, before there are clients: those which take long to read, in slices.

        They do not sleep later, so nobody waits for one while others are served.
        """
        store = self._queues.store
        learned, self._learned = self._learned, []
        for queue_id, record in learned:
            with store.view() as view:
                if rows.sequences(view, queue_id) < DEEP:
                    continue
                host = self._sleeper(queue_id, record)
                reading = host.begin_load(view)
            more = True
            while more:
                await asyncio.sleep(0)
                with store.view() as view:
                    more = reading.read_on(view, rows.CHUNKS_PER_SLICE)
            if self._queues.sleeping_id(record.name) == queue_id:  # nobody was faster
                with store.view() as view:
                    host.loaded(view, reading)
                self._awake(host)

    def _sleeper(self, queue_id: int, record: queue_records.QueueRecord) -> QuorumHost:
        queues = self._queues
        explicit = queue_records.settings_tree(record)
        settings = queues.stored_settings(record.name, explicit)
        return QuorumHost(queues, queue_id, record.name, settings, explicit, record.created_ms)

    def _awake(self, host: QuorumHost) -> None:
        host.active_ms = now_ms = self._queues.clock.now_ms()
        self.hosts[host.name] = host
        if host.machine.letters:
            host.take_letters(now_ms)

    def asleep(self, name: str) -> None:
        """It is this service which lets them sleep."""

    # Time

    def start(self, upkeep: QueueUpkeep) -> None:
        self._turn(upkeep.timers, upkeep, self._queues.clock.now_ms())

    def _turn(self, timers: TimerWheel, upkeep: QueueUpkeep, now_ms: int) -> None:
        self._ticks += 1
        for host in list(self.hosts.values()):
            try:
                host.tick(now_ms)
                if (self._ticks + host.id) % SLOTS_PER_SECOND == 0 and not host.is_deleted:
                    host.rates.sample(now_ms, host.counters)
                    if now_ms >= host.next_forget_ms:
                        host.next_forget_ms = now_ms + FORGET_IDS_EVERY_MS
                        upkeep.forget_ids(host.id, now_ms)
                    self._sleep_if_idle(host, now_ms)
            except Exception:  # a bug in one queue must not stop the time of all others
                log.exception("upkeep of %r", host.name)
        while self._wakes and self._wakes[0][0] <= now_ms:
            upkeep.wake_soon(heapq.heappop(self._wakes)[1])
        timers.arm(now_ms + 1, lambda later_ms: self._turn(timers, upkeep, later_ms))

    def _sleep_if_idle(self, host: QuorumHost, now_ms: int) -> None:
        if host.machine.consumers:
            host.active_ms = now_ms
            return
        idle_ms = now_ms - host.active_ms
        if idle_ms < self._queues.settings.idle_unload_s * 1000 or host.machine.total >= DEEP:
            return
        wake_ms = host.wake_ms()
        if host.group > self._queues.runner.durable or 0 < wake_ms <= now_ms + SLOT_MS:
            return
        host.is_deleted = True  # whoever still has a hand on it changes nothing
        for client in self._clients.values():
            client.forget(host)
        self._forget(host)
        self._queues.names_changed()
        if wake_ms:
            heapq.heappush(self._wakes, (wake_ms, host.name))

    # Sessions

    def introduce(self, host: QuorumHost, session: Session) -> str:
        """The name of a session which is new to a queue: that is told when the session ends."""
        client = self._client(session)
        client.hosts[host.name] = host
        host.pids[session.id] = client.pid
        return client.pid

    def _client(self, session: Session) -> Client:
        client = self._clients.get(session.id)
        if client is None:
            client = self._clients[session.id] = Client(session)
        return client

    def client_left(self, session: Session) -> None:
        """The connection is over."""
        client = self._clients.get(session.id)
        if client is None or self.stopping:
            return  # what it held is in no hands after a start, and nobody has failed
        now_ms = self._queues.clock.now_ms()
        for subscriber in client.subscribers:
            subscriber.leave()
        client.subscribers = []
        stays = session.persistent and session.expiry_s > 0
        if not stays:
            self.session_ended(session)
            return
        for host in client.hosts.values():
            host.apply(c.Down(client.pid, noconnection=True), now_ms)

    def session_ended(self, session: Session) -> None:
        client = self._clients.pop(session.id, None)
        if client is not None and not self.stopping:
            now_ms = self._queues.clock.now_ms()
            for host in client.hosts.values():
                if not host.is_deleted:
                    host.pids.pop(session.id, None)
                    host.apply(c.Down(client.pid), now_ms)

    # Subscriptions

    def takes(self, topic_filter: bytes) -> bool:
        if not topic_filter.startswith(names.PREFIX):
            return False
        name = topic_filter[len(names.PREFIX) :].decode()
        queues = self._queues
        if queues.is_taken(name):
            return queues.kind_of(name) == queue_records.QUORUM
        return queues.settings.named.get(name, {}).get("type") == "quorum"

    def subscribe(self, subscription: Subscription) -> int:
        """
        Raises:
            RefusedError: at QoS 0, or a user property makes no sense.
        """
        queues = self._queues
        if subscription.qos == 0:
            problem = "a queue needs QoS 1 or 2: at QoS 0 nothing can be settled"
            raise RefusedError.because(reasons.UNSPECIFIED_ERROR, problem)
        options = {key.decode(): value.decode() for key, value in subscription.user}
        prefetch = prefetch_of(options)
        priority = _number(options, "priority", 0, PRIORITY_MAX)
        timeout_ms = _number(options, "consumer-timeout", UNSET, TIMEOUT_MS_MAX)
        mode = options.get("ack-mode", "publish")
        if mode not in ("publish", "puback"):
            raise refused("ack-mode", mode, "puback or publish")
        name = subscription.topic_filter[len(names.PREFIX) :].decode()
        host = self.find(name)
        if host is None:
            queues.ensure(name)
            host = self.hosts[name]
        now_ms = queues.clock.now_ms()
        host.active_ms = now_ms
        session = subscription.session
        subscriber = self._find(session, subscription.topic_filter)
        if subscriber is None:
            subscriber = QuorumSubscriber(host, subscription, self.introduce(host, session))
            self._client(session).subscribers.append(subscriber)
        else:
            subscriber.subscribed(subscription)
        subscriber.prefetch = prefetch
        subscriber.priority = priority
        subscriber.timeout_ms = timeout_ms
        subscriber.settles_by_puback = mode == "puback" or session.version != V5
        subscriber.check_out(now_ms)
        return subscription.qos

    def unsubscribe(self, session: Session, topic_filter: bytes) -> bool:
        subscriber = self._find(session, topic_filter)
        if subscriber is None:
            return False
        if subscriber.joined:
            subscriber.cancel(self._queues.clock.now_ms())
        return True

    def _find(self, session: Session, topic_filter: bytes) -> QuorumSubscriber | None:
        client = self._clients.get(session.id)
        if client is not None:
            for subscriber in client.subscribers:
                if subscriber.subscription.topic_filter == topic_filter:
                    return subscriber
        return None

    # Orders

    def purge(self, host: QuorumHost, now_ms: int) -> int:
        """Drop every message nobody holds; how many there were."""
        reply = host.apply(c.Purge(), now_ms)
        assert isinstance(reply, r.Counted)
        host.counters.purged += reply.count
        return reply.count


def _number(options: dict[str, str], name: str, default: int, limit: int) -> int:
    text = options.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) > limit:
        raise refused(name, text, f"0..{limit}")
    return int(text)
