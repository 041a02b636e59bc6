"""All sessions: opening, resuming, ending; their records in the store; what is left at start."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import final

from queuelake.broker.clock import Clock, Timer, TimerWheel
from queuelake.broker.delivery import Delivery
from queuelake.broker.line import Outgoing
from queuelake.broker.packet_ids import ALONE, PacketIds
from queuelake.broker.queues.subscribing import is_queue_filter
from queuelake.broker.runner import Runner
from queuelake.broker.session import Session, Subscription
from queuelake.protocol.message import Message
from queuelake.protocol.packets import SubscribeItem
from queuelake.protocol.topics import is_shared, split_shared
from queuelake.storage import api, records
from queuelake.storage.api import ReadTransaction, Store
from queuelake.storage.queue_rows import read_queue, row_totals, u64

log = logging.getLogger("queuelake.sessions")

NEVER_S = 0xFFFFFFFF
REDISTRIBUTE_BYTES = 256 * 1024


@final
class Sessions:
    """Client id -> session, connected or waiting."""

    def __init__(
        self,
        store: Store,
        runner: Runner,
        delivery: Delivery,
        clock: Clock,
        timers: TimerWheel,
        inflight_max: int,
        packet_ids: PacketIds = ALONE,
    ) -> None:
        self._store = store
        self._runner = runner
        self._delivery = delivery
        self._router = delivery.router
        self._clock = clock
        self._timers = timers
        self._inflight_max = inflight_max
        self._packet_ids = packet_ids
        self._expiries: dict[int, Timer] = {}
        self._last_id = 0
        self.by_client: dict[str, Session] = {}
        self.on_end: Callable[[Session], None] | None = None

    def load(self) -> None:
        """Read what the last run left. Clients which were connected then are disconnected now."""
        now_ms = self._clock.now_ms()
        with self._store.view() as view:
            epoch = int(view.get(api.META, b"epoch") or b"0") + 1
            self._last_id = epoch << 32  # an id is never used again, not even after a crash
            self._runner.put(api.META, b"epoch", str(epoch).encode())
            for key, value in view.scan(api.SESSIONS, b"", b"\xff" * 9):
                self._load_one(view, int.from_bytes(key, "big"), value, now_ms)
        for session in list(self.by_client.values()):
            self._arm_expiry(session, now_ms)

    def _load_one(self, view: ReadTransaction, session_id: int, value: bytes, now_ms: int) -> None:
        record = records.decode_session(value)
        session = self._make(session_id, record.client_id, record.version, record.expiry_s)
        session.persistent = True
        was_connected = record.disconnected_ms == 0
        # A clock which went back must not make a session live longer than it asked for.
        session.disconnected_ms = now_ms if was_connected else min(record.disconnected_ms, now_ms)
        key = u64(session_id)
        for _, row in view.scan(api.SUBSCRIPTIONS, key, key + b"\xff" * 17):
            item = records.decode_subscription(row)
            self._subscribe(
                session,
                SubscribeItem(item.topic_filter, item.qos, item.no_local, item.retain_as_published),
                item.subscription_id,
                item.user,
            )
        cursor_row = view.get(api.CURSORS, key)
        if cursor_row is not None:
            cursor = records.decode_cursor(cursor_row)
            session.settled_seq = cursor.settled_seq
            session.sent_seq = cursor.sent_seq
            session.settled = set(cursor.settled)
            session.released = set(cursor.released)
            session.inbound = set(cursor.inbound)
        last, size = row_totals(view, session_id, session.settled_seq, session.settled)
        session.durable_seq = session.tail_seq = max(last, session.settled_seq)
        session.next_seq = session.durable_seq + 1
        session.unsettled = session.durable_seq - session.settled_seq - len(session.settled)
        session.queued_bytes = size
        if was_connected:
            # Any of these may have been on the wire when the broker died.
            window_end = session.settled_seq + len(session.settled) + self._inflight_max
            session.sent_seq = min(max(session.sent_seq, window_end), session.durable_seq)
            self._save(session)  # its time runs from this crash on, not from the next one
        self.by_client[record.client_id] = session

    def open(
        self, client_id: str, version: int, clean_start: bool, expiry_s: int
    ) -> tuple[Session, bool]:
        """The session for a client which connects, and whether it was there before."""
        existing = self.by_client.get(client_id)
        assert existing is None or existing.connection is None
        if existing is not None and clean_start:
            self.end(existing)
            existing = None
        if existing is not None:
            timer = self._expiries.pop(existing.id, None)
            if timer is not None:
                timer.cancel()
            existing.expiry_s = expiry_s
            existing.version = version
            existing.disconnected_ms = 0
            self._save(existing)
            return existing, True
        session = self._make(self.new_id(), client_id, version, expiry_s)
        self.by_client[client_id] = session
        if session.persistent:
            self._save(session)
        return session, False

    def _make(self, session_id: int, client_id: str, version: int, expiry_s: int) -> Session:
        return Session(session_id, client_id, version, expiry_s, self._packet_ids)

    def is_stored(self, client_id: str) -> bool:
        session = self.by_client.get(client_id)
        return session is not None and session.persistent

    def new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def close(self, session: Session, now_ms: int) -> None:
        """The client of this session is gone; the session stays if it has time left."""
        if session.expiry_s == 0 or not session.persistent:
            self.end(session)
            return
        session.detach(now_ms)
        self._save(session)
        self._runner.store_cursor(session)  # how far it was sent decides who gets DUP
        self._arm_expiry(session, now_ms)

    def end(self, session: Session) -> None:
        """The session is over: its shared messages go to others, everything else is deleted."""
        if self.by_client.get(session.client_id) is session:
            del self.by_client[session.client_id]
        timer = self._expiries.pop(session.id, None)
        if timer is not None:
            timer.cancel()
        for subscription in session.subscriptions.values():
            if not is_queue_filter(subscription.topic_filter):
                self._router.remove(subscription)
        if any(is_shared(topic_filter) for topic_filter in session.subscriptions):
            self._redistribute(session)
        if session.persistent:
            self._runner.forget_session(session)
        session.detach(self._clock.now_ms())
        session.subscriptions.clear()
        if self.on_end is not None:
            self.on_end(session)

    def _redistribute(self, session: Session) -> None:
        """Unacknowledged messages of a shared subscription go to its other members.

        A QoS 2 message whose delivery has begun stays with the session, and ends with it.
        """
        for shared, first, sent, message in self._unsettled(session):
            if not (first >> 1 & 3 == 2 and sent):
                self._hand_on(session, shared, message, True)
        sealed = session.sealed
        if sealed is not None:
            # Their publishers do not know yet whether they are stored.
            self._runner.after_sealed(lambda: self._hand_on_sealed(session, sealed))
        for entry in session.storing or []:
            self._hand_on(session, entry.shared, entry.message, False)

    def _hand_on_sealed(self, session: Session, sealed: list[Outgoing]) -> None:
        for entry in sealed:
            if entry.seq <= session.durable_seq:
                self._hand_on(session, entry.shared, entry.message, True)

    def _hand_on(
        self, session: Session, shared: bytes, message: Message, acknowledged: bool
    ) -> None:
        group = self._router.group(split_shared(shared)[1], shared) if shared else None
        member = group.pick(message.qos, session) if group is not None else None
        if member is not None:
            self._delivery.hand_on(member, message, acknowledged)

    def _unsettled(self, session: Session) -> Iterator[tuple[bytes, int, bool, Message]]:
        """Shared filter, first byte, whether it was sent, and the message of each entry."""
        if not session.persistent:
            for entry in session.inflight.values():
                yield entry.shared, entry.first, True, entry.message
            for entry in session.queue:
                yield entry.shared, entry.first, False, entry.message
            return
        after = session.settled_seq
        while after < session.durable_seq:
            with self._store.view() as view:
                rows = read_queue(view, session.id, after, REDISTRIBUTE_BYTES)
            if not rows:
                break
            for row in rows:
                after = row.sequence
                if after > session.durable_seq:
                    break  # committed, but the loop has not heard of it yet
                if after not in session.settled:
                    yield row.shared, row.first, after <= session.sent_seq, row.message

    # Subscriptions

    def subscribe(
        self,
        session: Session,
        item: SubscribeItem,
        subscription_id: int,
        user: list[tuple[bytes, bytes]],
    ) -> tuple[Subscription, bool]:
        """Add or replace a subscription; tells whether it is new."""
        is_new = item.topic_filter not in session.subscriptions
        subscription = self._subscribe(session, item, subscription_id, user)
        self._save_subscription(item.topic_filter, subscription)
        return subscription, is_new

    def put_back(self, subscription: Subscription) -> None:
        """Another to the same queue was refused: this one stays."""
        topic_filter = subscription.topic_filter
        subscription.session.subscriptions[topic_filter] = subscription
        self._save_subscription(topic_filter, subscription)

    def _save_subscription(self, topic_filter: bytes, subscription: Subscription) -> None:
        session = subscription.session
        if session.persistent:
            record = records.SubscriptionRecord(
                topic_filter,
                subscription.qos,
                subscription.no_local,
                subscription.retain_as_published,
                subscription.subscription_id,
                subscription.user,
            )
            key = records.subscription_key(session.id, topic_filter)
            self._runner.put(api.SUBSCRIPTIONS, key, records.encode(record))

    def _subscribe(
        self,
        session: Session,
        item: SubscribeItem,
        subscription_id: int,
        user: list[tuple[bytes, bytes]],
    ) -> Subscription:
        shared = item.topic_filter if is_shared(item.topic_filter) else b""
        subscription = Subscription(
            session,
            split_shared(shared)[1] if shared else item.topic_filter,
            item.qos,
            item.no_local,
            item.retain_as_published,
            subscription_id,
            shared,
            user if is_queue_filter(item.topic_filter) else [],
        )
        session.subscriptions[item.topic_filter] = subscription
        if not is_queue_filter(item.topic_filter):
            self._router.add(subscription)
        return subscription

    def unsubscribe(self, session: Session, topic_filter: bytes) -> bool:
        subscription = session.subscriptions.pop(topic_filter, None)
        if subscription is None:
            return False
        if not is_queue_filter(topic_filter):
            self._router.remove(subscription)
        if session.persistent:
            self._runner.delete(
                api.SUBSCRIPTIONS, records.subscription_key(session.id, topic_filter)
            )
        return True

    # Records

    def _save(self, session: Session) -> None:
        record = records.SessionRecord(
            session.client_id, session.version, session.expiry_s, session.disconnected_ms
        )
        self._runner.put(api.SESSIONS, u64(session.id), records.encode(record))

    def _arm_expiry(self, session: Session, now_ms: int) -> None:
        if session.expiry_s == NEVER_S:
            return
        due_ms = session.disconnected_ms + session.expiry_s * 1000
        if due_ms <= now_ms:
            self.end(session)
            return
        self._expiries[session.id] = self._timers.arm(due_ms, lambda _: self._expire(session))

    def _expire(self, session: Session) -> None:
        if session.connection is None and self.by_client.get(session.client_id) is session:
            log.info("session of %r expired after %d s", session.client_id, session.expiry_s)
            self.end(session)
