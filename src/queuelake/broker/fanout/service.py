"""Vehicle fan-out of the broker: what platforms publish, what vehicles do, and one part in commits.

`$SDV-FANOUT/data/{data_id}` stores a payload, `$SDV-FANOUT/trigger` a row for each vehicle named.
Everything that may be a moment to send (a trigger, a heartbeat, a subscription, a resumed session,
data which was missing) puts the vehicle in line; a PUBACK is answered at once. The line is worked
off at the end of each turn of the loop, a part of it at a time.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, final

import msgspec

from queuelake.broker.clock import Clock, TimerWheel
from queuelake.broker.delivery import Delivery
from queuelake.broker.fanout import views
from queuelake.broker.fanout.dispatch import Dispatcher
from queuelake.broker.fanout.garbage import Garbage
from queuelake.broker.fanout.heartbeat import Heartbeat
from queuelake.broker.fanout.metrics import FanoutMetrics
from queuelake.broker.fanout.payloads import Payloads
from queuelake.broker.fanout.receiving import Receiving
from queuelake.broker.fanout.register import Register
from queuelake.broker.fanout.storing import APPEND, IGNORE, REPLACE, Storing
from queuelake.broker.fanout.trigger import data_id_problem, read_trigger
from queuelake.broker.inbound import refuse_deferred
from queuelake.broker.participant import Participant
from queuelake.broker.pipeline.log_cleaning import LogCleaning
from queuelake.broker.pipeline.stats import Reading
from queuelake.broker.pipeline.write_log import WriteLog
from queuelake.broker.runner import Runner
from queuelake.broker.session import Session
from queuelake.broker.topic_service import LATER, TopicService
from queuelake.config_types import changes_between
from queuelake.control_sdv import (
    TIME_TO_ACK_BOUNDS_S,
    SdvCancelled,
    SdvFigures,
    SdvRequest,
    SdvRequestPage,
    SdvStatus,
    SdvVehicle,
)
from queuelake.engine.kinds.fanout import BURY, DONE, HEARTBEAT, RETRY, SUBSCRIBE
from queuelake.errors import RefusedError
from queuelake.protocol import reasons
from queuelake.protocol.packets import V5
from queuelake.sdv_settings import VIN, BadSdvSettingsError, SdvConfig, read_config
from queuelake.storage import api
from queuelake.storage.api import Batch, Store

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from queuelake.broker.connection import Connection
    from queuelake.protocol.message import Message

log = logging.getLogger("queuelake.fanout")

LEVEL: Final = b"$SDV-FANOUT"
TRIGGER: Final = b"$SDV-FANOUT/trigger"
DATA: Final = b"$SDV-FANOUT/data/"
CONFIG_KEY: Final = b"sdv_config"  # in META
ATTEMPTS_PER_TURN: Final = 200
TICK_MS: Final = 1_000
_SAME_REQUEST: Final = {"append": APPEND, "replace": REPLACE, "ignore": IGNORE}
_ON_REJECT: Final = {"done": DONE, "retry": RETRY, "dlq": BURY}


@final
class Fanout(TopicService, Participant):
    """The service."""

    __slots__ = (
        "_file_config",
        "_heartbeats",
        "_publishers",
        "_receiving",
        "_sealed_publishers",
        "_wanted",
        "cleaning",
        "clock",
        "closes",
        "config",
        "delivery",
        "dispatcher",
        "durable",
        "garbage",
        "group",
        "log",
        "loop",
        "metrics",
        "packet_id",
        "payloads",
        "problem",
        "register",
        "runner",
        "store",
        "storing",
        "timers",
        "waiting",
    )

    def __init__(
        self,
        by_client: dict[str, Session],
        delivery: Delivery,
        store: Store,
        loop: AbstractEventLoop,
        timers: TimerWheel,
        config: SdvConfig,
    ) -> None:
        self.waiting = self.durable = self.closes = False
        self.group = self.packet_id = 0
        self.problem = ""
        self.delivery: Delivery = delivery
        self.runner: Runner = delivery.runner
        self.store: Store = store
        self.loop: AbstractEventLoop = loop
        self.clock: Clock = delivery.queues.clock
        self.timers: TimerWheel = timers
        self.metrics: FanoutMetrics = FanoutMetrics(TIME_TO_ACK_BOUNDS_S, delivery.queues.ledger)
        self.register: Register = Register(store)
        self.payloads: Payloads = Payloads(store, self.runner)
        self.log: WriteLog = WriteLog(store, self.runner, api.SDV_LOG)
        self.dispatcher: Dispatcher = Dispatcher(
            self,
            by_client,
            delivery,
            store,
            self.clock,
            timers,
            self.register,
            self.payloads,
            self.metrics,
            self.want,
        )
        self.storing: Storing = Storing(
            self,
            by_client,
            self.runner,
            self.register,
            self.log,
            self.dispatcher,
            self.metrics,
            self.want,
            self._refuse,
        )
        self._receiving: Receiving = Receiving(self.runner)
        self.garbage: Garbage = Garbage(self)
        self.cleaning: LogCleaning = LogCleaning(
            self.log, self, self.runner, loop, self.clock, timers
        )
        self._wanted: dict[str, int] = {}  # vehicles in line, and why
        # Who published data with the group being collected, and with the one being committed.
        self._publishers: list[Connection] = []
        self._sealed_publishers: list[Connection] = []
        self._heartbeats: list[Heartbeat] = []
        self._file_config: SdvConfig = config
        self.config: SdvConfig = config
        self._use(config)
        delivery.services[LEVEL] = self

    def start(self) -> None:
        """What the last run left, and what was configured in it."""
        with self.store.view() as view:
            value = view.get(api.META, CONFIG_KEY)
        if value is not None:
            try:
                changes = msgspec.json.decode(value, type=dict[str, object])
                changes.pop("topic_prefix", None)  # older versions let it change at run time
                self._use(read_config(self._file_config, changes))
            except BadSdvSettingsError as error:
                log.error("[sdv]: what was configured at run time does not fit any more: %s", error)
        self.register.load()
        self.log.load()
        if self.register.gives_up():
            self.runner.take_part(self)
        self.payloads.totals = self.register.totals
        self.garbage.start()
        self.cleaning.start()
        self._tick(self.clock.now_ms())

    def _tick(self, now_ms: int) -> None:
        if self.dispatcher.policy.ack_timeout_ms:
            self.dispatcher.tick(now_ms)
        self._move_rows(now_ms)
        self.timers.arm(now_ms + TICK_MS, self._tick)

    def _move_rows(self, now_ms: int) -> None:
        """Some join all others with the next commit, if they are there for too long."""
        if self.register.recent.has_due(now_ms, self.register.hidden):
            self.runner.take_part(self)

    # What platforms publish

    def publish(self, message: Message, session: Session | None) -> int:
        self.durable = False
        self.problem = ""
        self.closes = False
        connection = session.connection if session is not None else None
        try:
            if message.topic == TRIGGER:
                return self._publish_trigger(message, session, connection)
            if message.topic.startswith(DATA):
                data_id = message.topic[len(DATA) :].decode()
                self.store_data(data_id, message.payload(), message.ts_ms)
                if connection is not None:
                    self._publishers.append(connection)
                elif session is None:
                    self.runner.if_failed(lambda: self._publish_again(message))
                self.durable = True
                return 0
            problem = "allowed are $SDV-FANOUT/data/{data_id} and $SDV-FANOUT/trigger"
            raise RefusedError.because(reasons.TOPIC_NAME_INVALID, problem)
        except RefusedError as error:
            self.problem = str(error)
            self.metrics.trigger_invalid += 1 if message.topic == TRIGGER else 0
            self.closes = self._closes(session)
            return error.reason_code

    def _publish_trigger(
        self, message: Message, session: Session | None, connection: Connection | None
    ) -> int:
        receiving, number = self._receiving, self.packet_id if message.qos == 2 else 0
        if session is not None and connection is not None and number:
            if receiving.is_under_way(session, number, connection):
                return LATER
        job = self.storing.add(read_trigger(message.payload()), message.ts_ms, connection)
        if session is None:  # a will: nobody would send it again
            job.answer = lambda done: None if done else self._publish_again(message)
        elif connection is not None and number:
            job.answer = receiving.begin(job, session, number, connection)
        return LATER

    def _publish_again(self, message: Message) -> None:
        self.publish(message, None)

    def _closes(self, session: Session | None) -> bool:
        """Whether who publishes what is wrong is disconnected; 3.1.1 cannot be told why."""
        old = session is not None and session.version != V5
        return old or self.config.on_invalid == "disconnect"

    def _refuse(self, connection: Connection | None, error: RefusedError) -> None:
        """A trigger turned out to be wrong while it was read."""
        self.metrics.trigger_invalid += 1
        if connection is not None:
            self._receiving.refused(connection)
            closes = self._closes(connection.session)
            refuse_deferred(connection, error.reason_code, str(error), closes)

    def store_data(self, data_id: str, payload: bytes, now_ms: int) -> None:
        """Part of the group being collected.

        Raises:
            RefusedError: it is no payload for this id.
        """
        if problem := data_id_problem(data_id):
            raise RefusedError.because(reasons.TOPIC_NAME_INVALID, f"{DATA.decode()}: {problem}")
        if self.config.verify_sha1 and hashlib.sha1(payload).hexdigest() != data_id.lower():
            problem = f"the SHA-1 of these {len(payload)} bytes is not {data_id[:64]!r}"
            raise RefusedError.because(reasons.PAYLOAD_FORMAT_INVALID, problem)
        self.payloads.put(data_id, payload, now_ms)
        self.runner.take_part(self)

    # What vehicles do

    def want(self, vin: str, cause: int) -> None:
        """Make an attempt for a vehicle at the end of this turn."""
        if vin not in self._wanted:
            self._wanted[vin] = cause
            self.runner.want_turn(self)

    def _heard(self, vin: str) -> None:
        if self.register.totals.pending:
            self.want(vin, HEARTBEAT)

    def subscribed(self, session: Session) -> None:
        """A client has subscribed to something, or its session is resumed."""
        if self.register.totals.pending and session.subscriptions:
            self.want(session.client_id, SUBSCRIBE)

    def client_left(self, session: Session) -> None:
        self.dispatcher.left(session.client_id)

    def acknowledged(self, session: Session, topic: bytes, mark: bytes, reason: int) -> None:
        self.dispatcher.acknowledged(session, topic, mark, reason, self.clock.now_ms())

    # As a participant

    def act(self, now_ms: int) -> None:
        self.storing.act(now_ms)
        wanted = self._wanted
        for vin in list(islice(wanted, ATTEMPTS_PER_TURN)):
            cause = wanted.pop(vin)
            try:
                self.dispatcher.attempt(vin, cause, now_ms)
            except Exception:  # it starts anew with its next sign of life; others go on
                log.exception("vehicle %r", vin)
                self.dispatcher.left(vin)
        if wanted:
            self.runner.want_turn(self)
        self.dispatcher.fetch(now_ms)

    def prepare(self) -> None:
        """Everything is decided as it comes."""

    def write(self, batch: Batch) -> None:
        self.payloads.write(batch)
        self.register.write(batch, self.log, self.clock.now_ms())
        self.log.write(batch)
        self.dispatcher.write()
        self.metrics.events.write(batch)
        self._sealed_publishers, self._publishers = self._publishers, []

    def stored(self, now_ms: int) -> None:
        self._sealed_publishers = []
        self.register.stored()
        self.metrics.events.stored()
        self.dispatcher.stored()
        for data in self.payloads.stored():
            self.dispatcher.arrived(data)
        self.storing.stored()
        self._move_rows(now_ms)

    def rolled_back(self) -> None:
        self.payloads.rolled_back()
        self.register.rolled_back(self.clock.now_ms())
        self.log.rolled_back()
        self.metrics.events.rolled_back()
        self.storing.rolled_back()
        self.dispatcher.rolled_back()
        publishers = self._sealed_publishers + self._publishers
        self._sealed_publishers, self._publishers = [], []
        for connection in publishers:
            connection.close(reasons.UNSPECIFIED_ERROR, "the data could not be stored")
        self.runner.take_part(self)

    # All of it

    def configure(self, config: SdvConfig) -> None:
        interval = self.config.gc_interval
        changes = changes_between(self._file_config, config)
        self.runner.put(api.META, CONFIG_KEY, msgspec.json.encode(changes))
        self._use(config)
        if config.gc_interval != interval:
            self.garbage.interval_changed()

    def _use(self, config: SdvConfig) -> None:
        self.config = config
        dispatcher = self.dispatcher
        dispatcher.pool_size = config.dispatcher_pool_size or os.cpu_count() or 1
        dispatcher.retention_ms = config.data_retention_ms
        dispatcher.policy.ack_timeout_ms = config.ack_timeout_ms
        dispatcher.policy.on_reject = _ON_REJECT[config.on_reject]
        before, _, behind = config.topic_prefix.partition(VIN)
        dispatcher.topics.use_prefix(before, behind)
        self.storing.same_request = _SAME_REQUEST[config.same_request]
        self.storing.pending_max = config.max_pending_per_vehicle
        router = self.delivery.router
        for heartbeat in self._heartbeats:
            router.unbind(heartbeat)
        self._heartbeats = [
            Heartbeat(topic, VIN, self._heard) for topic in dict.fromkeys(config.heartbeat_topics)
        ]
        for heartbeat in self._heartbeats:
            router.bind(heartbeat)

    def collect_garbage(self) -> bool:
        """False: a run is under way."""
        return self.garbage.collect()

    def status(self) -> SdvStatus:
        return views.status(self)

    def inspect(self, vin: str) -> SdvVehicle:
        return views.inspect(self, vin)

    def request(self, request_id: str) -> SdvRequest:
        return views.request(self, request_id)

    def requests(self, limit: int, cursor: str) -> SdvRequestPage:
        return views.requests(self, limit, cursor)

    def cancel(self, request_id: str, vins: list[str]) -> Iterator[SdvCancelled]:
        return views.cancel(self, request_id, vins)

    def reading(self) -> Reading:
        return views.reading(self)

    def figures(self) -> SdvFigures:
        return views.figures(self)
