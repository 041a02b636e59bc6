"""Vehicles which are awake: what their machines decide is done here.

A vehicle is awake while it is connected and something of it is in flight, or waits for a moment, or
for data which is not there. All others are rows in the store and nothing else, but that some which
were awake rest while they are connected: they may be called again a moment later.

What a machine fetches is in memory most of the time, and offered at once; what only the store knows
is looked for at the end of the turn, for all vehicles in one view.

A message goes through the session of its vehicle, which sends it again when the vehicle comes back
without having acknowledged it. So a vehicle which wakes asks its session first: what that has is in
flight (`held.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final, final

from queuelake.broker.clock import Clock, TimerWheel
from queuelake.broker.delivery import Delivery
from queuelake.broker.fanout.awake import Awake
from queuelake.broker.fanout.burial import bury
from queuelake.broker.fanout.held import held_row, mark_of, row_of
from queuelake.broker.fanout.metrics import FanoutMetrics
from queuelake.broker.fanout.payloads import Payloads
from queuelake.broker.fanout.register import Register
from queuelake.broker.fanout.topics import VehicleTopics
from queuelake.broker.session import Session
from queuelake.engine.kinds import fanout as f
from queuelake.engine.machine import Command, Effect, Meta
from queuelake.protocol import reasons
from queuelake.protocol.message import Message, encode_ids
from queuelake.storage import sdv_tables as t
from queuelake.storage.api import ReadTransaction, Store

if TYPE_CHECKING:
    from queuelake.broker.participant import Participant
    from queuelake.broker.queues.registry import Queues

log = logging.getLogger("queuelake.fanout")

FRAME_BYTES: Final = 16  # more than a PUBLISH has besides topic, body and identifiers
FETCHES_PER_TURN_MAX: Final = 200
ROWS_PER_TURN_MAX: Final = 1_000  # of one vehicle, passed over
FULL_RETRY_MS: Final = 5_000  # a session which takes no more
RESTING_MAX: Final = 10_000


@lru_cache(maxsize=256)
def _sender(number: int) -> str:
    return f"sdv-fanout-dispatcher-{number}"


@final
class Dispatcher:
    """All vehicles which are awake."""

    __slots__ = (
        "_by_client",
        "_clock",
        "_delivery",
        "_fetching",
        "_metrics",
        "_missing",
        "_offered",
        "_participant",
        "_payloads",
        "_queues",
        "_register",
        "_resting",
        "_sealed",
        "_store",
        "_timers",
        "_want",
        "awake",
        "policy",
        "pool_size",
        "retention_ms",
        "topics",
    )

    def __init__(
        self,
        participant: Participant,
        by_client: dict[str, Session],
        delivery: Delivery,
        store: Store,
        clock: Clock,
        timers: TimerWheel,
        register: Register,
        payloads: Payloads,
        metrics: FanoutMetrics,
        want: Callable[[str, int], None],
    ) -> None:
        self._participant: Participant = participant
        self._by_client: dict[str, Session] = by_client
        self._delivery: Delivery = delivery
        self._queues: Queues = delivery.queues
        self._store: Store = store
        self._clock: Clock = clock
        self._timers: TimerWheel = timers
        self._register: Register = register
        self._payloads: Payloads = payloads
        self._metrics: FanoutMetrics = metrics
        self._want: Callable[[str, int], None] = want
        self.topics: VehicleTopics = VehicleTopics()
        self._fetching: list[Awake] = []  # those which want something
        self._missing: dict[bytes, set[str]] = {}  # data -> vehicles which wait for it
        self._offered: list[str] = []  # vehicles, with the group being collected
        self._sealed: list[str] = []  # with the one being committed
        self._resting: dict[str, Awake] = {}  # idle, and as good as new
        self.awake: dict[str, Awake] = {}
        self.policy: f.FanoutPolicy = f.FanoutPolicy()
        self.pool_size: int = 1
        self.retention_ms: int = 0

    # What happens

    def attempt(self, vin: str, cause: int, now_ms: int) -> None:
        """Something may be sent to a vehicle now."""
        session = self._by_client.get(vin)
        if session is None or session.connection is None:
            return
        awake = self.awake.get(vin)
        found = awake if awake is not None else self._asleep(vin)
        is_ready = self.topics.subscription(session, found.topic_filter) is not None
        if awake is None:
            if not is_ready:
                return
            awake = self._wake(found)
        flying = awake.vehicle.in_flight
        if flying is not None and session.unsettled == 0:
            # The session gave it up: it is larger than what the client takes now.
            self._answered(awake, session, flying, reasons.PACKET_TOO_LARGE, now_ms)
        self._apply(awake, session, f.Attempt(cause, is_ready), now_ms)
        self._rest_if_idle(awake, session)

    def acknowledged(
        self, session: Session, topic: bytes, mark: bytes, reason: int, now_ms: int
    ) -> None:
        """PUBACK for a message of ours, whoever sent it: this run, or one before."""
        awake = self.awake.get(session.client_id)
        if awake is None:
            awake = self._wake(self._asleep(session.client_id))
        row = row_of(self._register, awake, topic, mark)
        self._answered(awake, session, row, reason, now_ms)
        self._rest_if_idle(awake, session)

    def _answered(
        self, awake: Awake, session: Session, row: f.Row, reason: int, now_ms: int
    ) -> None:
        is_ready = False
        if session.connection is not None:
            is_ready = self.topics.subscription(session, awake.topic_filter) is not None
        self._apply(awake, session, f.Acknowledge(row, reason, is_ready), now_ms)

    def left(self, vin: str) -> None:
        self._resting.pop(vin, None)
        awake = self.awake.pop(vin, None)
        if awake is not None:
            for data in awake.awaits:
                waiting = self._missing.get(data)
                if waiting is not None:
                    waiting.discard(vin)
                    if not waiting:
                        del self._missing[data]

    def arrived(self, data: bytes) -> None:
        """There is data now which may have been missing."""
        for vin in self._missing.pop(data, set()):
            awake = self.awake[vin]
            awake.awaits.discard(data)
            awake.goes_back = True
            self._want(vin, f.DATA)

    def tick(self, now_ms: int) -> None:
        for awake in list(self.awake.values()):
            session = self._by_client.get(awake.vin)
            if session is not None and session.connection is not None:
                self._apply(awake, session, f.Tick(), now_ms)

    def in_flight(self, vin: str) -> f.Row | None:
        awake = self.awake.get(vin)
        return awake.vehicle.in_flight if awake is not None else None

    def is_in_flight(self, row: f.Row) -> bool:
        flying = self.in_flight(row.vin)
        return flying is not None and flying.key == row.key

    # What is done about it

    def _asleep(self, vin: str) -> Awake:
        return self._resting.get(vin) or Awake(vin, self.topics.filter_of(vin), self.policy)

    def _wake(self, awake: Awake) -> Awake:
        self._resting.pop(awake.vin, None)
        self.awake[awake.vin] = awake
        return awake

    def _rest_if_idle(self, awake: Awake, session: Session) -> None:
        # One whose session was searched stays while that has anything: it need not be again.
        if not awake.is_idle() or session.unsettled:
            return
        if self.awake.pop(awake.vin, None) is None or awake.vehicle.rejects:
            return
        if session.connection is not None and len(self._resting) < RESTING_MAX:
            awake.searched = False
            awake.goes_back = True
            self._resting[awake.vin] = awake

    def _apply(self, awake: Awake, session: Session, command: Command, now_ms: int) -> None:
        meta = Meta(0, now_ms)
        vehicle = awake.vehicle
        effects: list[Effect] = vehicle.apply(meta, command)
        at = 0
        while at < len(effects):  # it grows on the way
            effect = effects[at]
            at += 1
            if isinstance(effect, f.Fetch):
                offer = self._at_hand(awake, session, effect, now_ms)
                if offer is not None:
                    effects.extend(vehicle.apply(meta, offer))
                else:
                    self._fetch_later(awake, effect)
            elif isinstance(effect, f.Send):
                effects.extend(self._send(awake, session, effect, meta))
            elif isinstance(effect, f.Settle):
                self.settle(effect.row, effect.outcome, now_ms)
            elif isinstance(effect, f.Bury):
                if effect.row.size:
                    self._metrics.buried(effect.row, now_ms)
                    bury(self._queues, self._payloads, effect, now_ms)
            elif isinstance(effect, f.WakeAt):
                self._wake_at(awake.vin, effect.due_ms)
            elif isinstance(effect, f.Disconnect):
                self._disconnect(session)

    def _at_hand(
        self, awake: Awake, session: Session, fetch: f.Fetch, now_ms: int
    ) -> f.Offer | None:
        """The next row, or that there is none; None: the store has to be asked."""
        if awake.wanted is not None or awake.awaits or not self._register.is_bare(awake.digest):
            return None
        if not awake.searched and session.unsettled:
            return None
        row = self._register.next_recent(awake.digest, fetch.after if not awake.goes_back else b"")
        if row is not None:
            is_too_old = row.ts_ms <= now_ms - self.retention_ms
            if is_too_old or not self._payloads.is_at_hand(t.data_key(row.data_id)):
                return None
        awake.searched = True
        awake.goes_back = False
        return f.Offer(row, fetch.cause, False)

    def _fetch_later(self, awake: Awake, fetch: f.Fetch) -> None:
        wanted = awake.wanted
        if wanted is None:
            awake.wanted = fetch
            self._fetching.append(awake)
            self._delivery.runner.want_turn(self._participant)
        elif fetch.after < wanted.after:
            awake.wanted = fetch

    def fetch(self, now_ms: int) -> None:
        """Look for what is wanted, some of it in a turn."""
        fetching = self._fetching[:FETCHES_PER_TURN_MAX]
        if not fetching:
            return
        self._fetching = self._fetching[FETCHES_PER_TURN_MAX:]
        if self._fetching:
            self._delivery.runner.want_turn(self._participant)
        done = 0
        try:
            with self._store.view() as view:
                for awake in fetching:
                    self._fetch(view, awake, now_ms)
                    done += 1
        finally:
            for awake in fetching[done:]:
                if awake.wanted is not None:  # the store could not be read
                    self.left(awake.vin)

    def _fetch(self, view: ReadTransaction, awake: Awake, now_ms: int) -> None:
        wanted = awake.wanted
        awake.wanted = None
        session = self._by_client.get(awake.vin)
        if wanted is None or session is None or self.awake.get(awake.vin) is not awake:
            return  # it has left
        try:
            self._apply(awake, session, self._next(view, awake, session, wanted, now_ms), now_ms)
        except Exception:  # it starts anew with its next sign of life; others go on
            log.exception("vehicle %r", awake.vin)
            self.left(awake.vin)
        else:
            self._rest_if_idle(awake, session)

    def _wake_at(self, vin: str, due_ms: int) -> None:
        self._timers.arm(due_ms, lambda _: self._want(vin, f.HEARTBEAT))

    def _disconnect(self, session: Session) -> None:
        connection = session.connection
        if connection is not None:
            problem = f"no PUBACK within ack_timeout = {self.policy.ack_timeout_ms} ms"
            connection.close(reasons.IMPLEMENTATION_SPECIFIC_ERROR, problem)

    def settle(self, row: f.Row, outcome: int, now_ms: int) -> None:
        if self._register.remove(row, outcome, now_ms):
            self._metrics.settled(row, outcome, now_ms)
            self._delivery.runner.take_part(self._participant)

    def expire(self, row: f.Row, now_ms: int) -> None:
        """A row is too old. A vehicle may have it in flight and never answer: it stays in flight
        then, as one which is gone."""
        flying = self.in_flight(row.vin)
        if flying is not None and flying.key == row.key:
            row = flying
        self.settle(row, f.EXPIRED, now_ms)

    def _next(
        self, view: ReadTransaction, awake: Awake, session: Session, effect: f.Fetch, now_ms: int
    ) -> f.Offer:
        """The first row which is not too old and whose data is there."""
        if not awake.searched:
            awake.searched = True
            if session.unsettled:
                held = held_row(self._store, self._register, awake, session)
                if held is not None:
                    return f.Offer(held, effect.cause, True)
        too_old_ms = now_ms - self.retention_ms
        after = effect.after if not awake.goes_back else b""
        awake.goes_back = False
        for _ in range(ROWS_PER_TURN_MAX):
            row = self._register.next_row(view, awake.digest, after)
            if row is None:
                break
            after = row.key
            if row.ts_ms <= too_old_ms:
                self.settle(row, f.EXPIRED, now_ms)
                continue
            data = t.data_key(row.data_id)
            if self._payloads.is_stored(data):
                return f.Offer(row, effect.cause, False)
            self._metrics.missing_data += 1
            self._missing.setdefault(data, set()).add(awake.vin)
            awake.awaits.add(data)
        else:
            self._fetch_later(awake, f.Fetch(after, effect.cause))
        return f.Offer(None, effect.cause, False)

    def _send(self, awake: Awake, session: Session, effect: f.Send, meta: Meta) -> list[Effect]:
        row = effect.row
        vehicle = awake.vehicle
        subscription = self.topics.subscription(session, awake.topic_filter)
        body = self._payloads.body(t.data_key(row.data_id))
        if subscription is None or body is None:
            return vehicle.apply(meta, f.NotTaken())
        number = subscription.subscription_id
        ids = encode_ids([number]) if number else b""
        topic = awake.topic + row.request_id.encode()
        size = FRAME_BYTES + len(topic) + len(ids) + len(body)
        if session.packet_size_max and size > session.packet_size_max:
            return vehicle.apply(meta, f.Acknowledge(row, reasons.PACKET_TOO_LARGE, True))
        sender = _sender(awake.number % self.pool_size)
        message = Message(topic, 1, False, body, 1, 0, sender, meta.now_ms)
        mark = mark_of(row.ts_ms)
        if not self._delivery.offer_to(session, message, ids, mark):
            self._wake_at(awake.vin, meta.now_ms + FULL_RETRY_MS)
            return vehicle.apply(meta, f.NotTaken())
        awake.mark = mark
        self._metrics.sent(row, effect.cause, meta.now_ms)
        if session.persistent:  # it is stored, and that may fail
            self._offered.append(awake.vin)
            self._delivery.runner.take_part(self._participant)
        return []

    def session(self, vin: str) -> Session | None:
        return self._by_client.get(vin)

    # Commits

    def write(self) -> None:
        self._sealed, self._offered = self._offered, []

    def stored(self) -> None:
        self._sealed = []

    def rolled_back(self) -> None:
        """Persistent sessions have forgotten what they were offered."""
        offered = self._sealed + self._offered
        self._sealed, self._offered = [], []
        now_ms = self._clock.now_ms()
        for vin in offered:
            session, awake = self._by_client.get(vin), self.awake.get(vin)
            if session is not None and session.persistent and awake is not None:
                self._apply(awake, session, f.NotTaken(), now_ms)
                self._want(vin, f.HEARTBEAT)
