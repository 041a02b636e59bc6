"""Message queues of the broker: which there are, their settings, and who waits for one to appear.

They share names, hosts and upkeep with durable queues (`QueueKind`). A subscription whose queue is
not there, or has another filter, waits; it is looked at again whenever a queue or the configuration
changes, so nobody has to ask again and again.
"""

from __future__ import annotations

import logging
import os
import random
from functools import partial
from typing import TYPE_CHECKING, Final, final

import msgspec

from queuelake import names
from queuelake.broker.ecq.letters import FOLDER
from queuelake.broker.fanout.burial import QUEUE as SDV_LETTERS
from queuelake.broker.message_queues.definition import Definition
from queuelake.broker.message_queues.garbage import Garbage
from queuelake.broker.message_queues.host import MessageQueueHost
from queuelake.broker.message_queues.metrics import MqMetrics
from queuelake.broker.message_queues.policy import policy_of
from queuelake.broker.message_queues.subscribing import Subscriptions
from queuelake.broker.queue_views import Place, read_page, shown_message
from queuelake.broker.queues.kind import QueueKind
from queuelake.broker.queues.membership import join
from queuelake.broker.queues.reloading import read_machine
from queuelake.broker.sleepers import Sleepers, read_asleep
from queuelake.config_types import changes_between
from queuelake.control_mq import MqStats
from queuelake.control_queues import MessagePage
from queuelake.engine.groups import GROUP
from queuelake.errors import NameTakenError
from queuelake.expressions import Fields
from queuelake.mq_settings import (
    BadMqSettingsError,
    MqConfig,
    MqSettings,
    TooManyQueuesError,
    config_with,
)
from queuelake.storage import api, queue_records

if TYPE_CHECKING:
    from queuelake.broker.queues.registry import Queues
    from queuelake.broker.queues.upkeep import QueueUpkeep
    from queuelake.broker.session import Session, Subscription
    from queuelake.broker.sessions import Sessions
    from queuelake.protocol.message import Message

log = logging.getLogger("queuelake.message_queues")

CONFIG_KEY: Final = b"mq_config"
ECQ_LETTERS: Final = names.dead_letter_name(FOLDER)


@final
class MessageQueues(QueueKind):
    """The service."""

    def __init__(
        self, queues: Queues, sessions: Sessions, upkeep: QueueUpkeep, config: MqConfig
    ) -> None:
        self.queues = queues
        self._use(config)
        self.metrics = MqMetrics()
        self.known: dict[str, Definition] = {}
        self.garbage = Garbage(self, upkeep)
        self._sessions = sessions
        self._file_config = config
        self._sorted: list[str] | None = None
        self._fields: Fields | None = None  # of the message which was asked about last
        self._fields_of: Message | None = None
        self.subscriptions = Subscriptions(self)
        queues.kinds[queue_records.MESSAGE] = self
        queues.receptions.append(self)

    def load(self) -> None:
        """What was configured at run time; before the queues are loaded."""
        with self.queues.store.view() as view:
            value = view.get(api.META, CONFIG_KEY)
        if value is not None:
            changes: dict[str, object] = msgspec.json.decode(value)
            try:
                self._use(config_with(self._file_config, changes))
            except BadMqSettingsError as error:
                log.error("[mq]: what was configured at run time does not fit any more: %s", error)

    # As a kind of queue

    def learn(self, queue_id: int, record: queue_records.QueueRecord) -> None:
        settings = msgspec.json.decode(record.settings, type=MqSettings)
        self._add(Definition(self, settings))

    def wake(self, queue_id: int, record: queue_records.QueueRecord) -> MessageQueueHost:
        known = self.known[record.name]
        policy = policy_of(known.settings, self.config)
        host = MessageQueueHost(self.queues, queue_id, known, policy, record.created_ms)
        host.restore(read_machine(host, policy, record))
        known.host = host
        return host

    def asleep(self, name: str) -> None:
        self.known[name].host = None

    def awake(self, known: Definition) -> MessageQueueHost:
        host = self.queues.wake(known.name)
        assert isinstance(host, MessageQueueHost)
        return host

    def takes(self, topic_filter: bytes) -> bool:
        return self.subscriptions.takes(topic_filter)

    def subscribe(self, subscription: Subscription) -> int:
        return self.subscriptions.subscribe(subscription)

    def waits_for(self, subscription: Subscription) -> bool:
        return self.subscriptions.waits_for(subscription)

    def unsubscribe(self, session: Session, topic_filter: bytes) -> bool:
        return self.subscriptions.unsubscribe(session, topic_filter)

    def client_left(self, session: Session) -> None:
        self.subscriptions.client_left(session)

    # Queues

    def names(self) -> list[str]:
        if self._sorted is None:
            self._sorted = sorted(self.known)
        return self._sorted

    def find(self, name: str) -> MqSettings | None:
        known = self.known.get(name)
        return known.settings if known is not None else None

    def is_everywhere(self, name: str) -> bool:
        """Whether `$queue/{name}` has a part in each shard of a cluster: a message queue, or the
        dead letters of what is spread over all of them."""
        if not names.is_dead_letter(name):
            return not names.is_response(name) and self.takes(names.PREFIX + name.encode())
        if name == SDV_LETTERS or name.startswith(ECQ_LETTERS):
            return True
        return any([one in self.known for one in names.filters_of_dead_letter_name(name)])

    def create(self, settings: MqSettings) -> None:
        """Make a queue.

        Raises:
            NameTakenError: its name is taken, by a queue of whatever kind.
            TooManyQueuesError: there are as many as there may be.
        """
        if self.queues.is_taken(settings.name):
            raise NameTakenError(settings.name)
        limit = self.config.max_queue_count
        if limit and len(self.known) >= limit:
            raise TooManyQueuesError(len(self.known), limit)
        known = Definition(self, settings)
        now_ms = self.queues.clock.now_ms()
        policy = policy_of(settings, self.config)
        host = MessageQueueHost(self.queues, self.queues.new_queue_id(), known, policy, now_ms)
        known.host = host
        self.queues.add(host, queue_records.MESSAGE)
        self.queues.names_changed()
        self._add(known)
        self.subscriptions.look_again()

    def _add(self, known: Definition) -> None:
        self.known[known.name] = known
        self._sorted = None
        self.queues.router.bind(known)

    def update(self, settings: MqSettings) -> None:
        known = self.known[settings.name]
        known.change(settings)
        self._configure(self.awake(known))

    def _configure(self, host: MessageQueueHost) -> None:
        now_ms = self.queues.clock.now_ms()
        host.configure(policy_of(host.known.settings, self.config), now_ms)
        for subscriber in list(host.subscribers.values()):
            if subscriber.joined:
                join(host, subscriber, now_ms)  # with the limit as it is now

    def delete(self, name: str) -> None:
        known = self.known[name]
        host = self.awake(known)
        del self.known[name]
        self._sorted = None
        self.queues.router.unbind(known)
        orphans = [one.subscription for one in host.subscribers.values()]
        for subscriber in list(host.subscribers.values()):
            deliveries = subscriber.session.deliveries
            if deliveries is not None:
                deliveries.forget(subscriber)
        self.queues.remove(host)
        known.host = None
        for subscription in orphans:
            self.subscriptions.wait(subscription)
        self.subscriptions.look_again()

    # All of them

    def configure(self, config: MqConfig) -> None:
        self._use(config)
        changes = changes_between(self._file_config, config)
        self.queues.runner.put(api.META, CONFIG_KEY, msgspec.json.encode(changes))
        for name in self.names():
            host = self.queues.hosts.get(name)
            if isinstance(host, MessageQueueHost):
                self._configure(host)
        self.garbage.reschedule()
        self.subscriptions.look_again()

    def _use(self, config: MqConfig) -> None:
        self.config = config
        self.queues.strict_publish = config.strict_publish

    def collect_garbage(self) -> None:
        self.garbage.collect(self.queues.clock.now_ms())

    def fields(self, message: Message) -> Fields:
        """What key expressions can see of a message; made once for all queues which take it."""
        if self._fields is not None and self._fields_of is message:
            return self._fields
        session = self._sessions.by_client.get(message.publisher)
        connection = session.connection if session is not None else None
        username = connection.username if connection is not None else None
        peer = f"{connection.peer_ip}:{connection.peer_port}" if connection is not None else ""
        fields = Fields(
            message.topic,
            message.payload(),
            message.qos,
            message.retain,
            False,
            message.publisher,
            message.ts_ms,
            f"{message.ts_ms:X}{self.queues.new_number():016X}",
            message.properties(),
            username,
            peer,
            session.version if session is not None else 0,
            os.environ,
            self.queues.clock.now_ms(),
            random.randrange,
        )
        self._fields, self._fields_of = fields, message
        return fields

    def messages(self, name: str, begin: Place, limit: int) -> MessagePage:
        """Look at its messages, which changes nothing; one which is asleep wakes up."""
        host = self.awake(self.known[name])
        host.active_ms = now_ms = self.queues.clock.now_ms()
        shown = partial(shown_message, host)
        return MessagePage(*read_page(host, begin, [(0, 0)], limit, now_ms, shown))

    def stats(self, name: str, sleepers: Sleepers | None = None) -> MqStats:
        """With `sleepers`, what they remember of one which is asleep has to do."""
        known = self.known[name]
        host = known.host
        if host is None:
            return self._stats_of_sleeper(known, sleepers)
        machine = host.machine
        group = machine.groups[GROUP]
        lane = group.lanes[0]
        counters = machine.counters
        settled = lane.settled
        held = sum([1 for seq in lane.held if seq not in settled])  # others were overwritten
        return MqStats(
            messages=group.unsettled,
            ready=group.unsettled - held,
            in_flight=len(lane.held),
            subscribers=len(group.consumers),
            oldest_age_ms=host.oldest_age_ms(self.queues.clock.now_ms()),
            bytes=max(0, machine.bytes),
            received=known.received,
            inserted=known.inserted,
            insert_errors=known.insert_errors,
            key_errors=known.key_errors,
            delivered=counters.delivered,
            redispatched=counters.redelivered,
            rejected=counters.nacked,
            acked=counters.acked,
            expired=counters.expired,
            dropped=counters.dropped,
        )

    def _stats_of_sleeper(self, known: Definition, sleepers: Sleepers | None) -> MqStats:
        if sleepers is None:
            queue_id = self.queues.sleeping_id(known.name)
            asleep = read_asleep(self.queues.store, queue_id)
        else:
            asleep = sleepers.known.get(known.name)
        depth = asleep.depth if asleep is not None else 0
        now_ms = self.queues.clock.now_ms()
        oldest_ms = asleep.oldest_ms if asleep is not None else 0
        return MqStats(
            messages=depth,
            ready=depth,
            oldest_age_ms=max(0, now_ms - oldest_ms) if oldest_ms else 0,
            received=known.received,
            inserted=known.inserted,
            insert_errors=known.insert_errors,
            key_errors=known.key_errors,
        )
