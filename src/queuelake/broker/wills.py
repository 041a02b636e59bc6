"""Wills: kept in the store from CONNECT on, so that a crash of the broker does not silence them.

A will is published when its connection ends without a normal DISCONNECT: at once, or after its
delay, or when the session ends, whichever comes first. A client which comes back to its session in
time keeps its will from being published. After a crash all connections have ended, so every will
which the store holds is due, after its delay.
"""

from __future__ import annotations

from typing import final

from queuelake.broker.clock import Clock, Timer, TimerWheel
from queuelake.broker.delivery import Delivery
from queuelake.broker.runner import Runner
from queuelake.broker.session import Session
from queuelake.protocol.message import Message
from queuelake.protocol.packets import Will
from queuelake.storage import api, records
from queuelake.storage.api import Store
from queuelake.storage.queue_rows import decode_message, encode_message, u64


@final
class _Pending:
    __slots__ = ("client_id", "delay_s", "message", "timer")

    def __init__(self, client_id: str, message: Message, delay_s: int) -> None:
        self.client_id: str = client_id
        self.message: Message = message
        self.delay_s: int = delay_s
        self.timer: Timer | None = None


@final
class Wills:
    """Session id -> the will of its client."""

    def __init__(
        self, runner: Runner, delivery: Delivery, clock: Clock, timers: TimerWheel
    ) -> None:
        self._runner = runner
        self._delivery = delivery
        self._clock = clock
        self._timers = timers
        self._pending: dict[int, _Pending] = {}

    def load(self, store: Store) -> None:
        now_ms = self._clock.now_ms()
        with store.view() as view:
            rows = list(view.scan(api.WILLS, b"", b"\xff" * 9))
        for key, value in rows:
            record = records.decode_will(value)
            session_id = int.from_bytes(key, "big")
            pending = _Pending(record.client_id, decode_message(record.message), record.delay_s)
            self._pending[session_id] = pending
            due_ms = record.due_ms
            if due_ms == 0:
                due_ms = now_ms + record.delay_s * 1000
                self._save(session_id, pending, due_ms, record.delay_s)
            self._schedule(session_id, pending, due_ms, now_ms)

    def register(self, session: Session, will: Will, now_ms: int) -> None:
        message = Message(
            will.topic,
            will.qos,
            will.retain,
            will.body,
            will.payload_at,
            will.expiry_at,
            session.client_id,
            now_ms,
        )
        pending = _Pending(session.client_id, message, will.delay_s)
        self._pending[session.id] = pending
        # Should the broker crash: a will waits no longer than its session lives.
        self._save(session.id, pending, 0, min(will.delay_s, session.expiry_s))

    def cancel(self, session: Session) -> None:
        """The client said goodbye, or came back in time."""
        pending = self._pending.pop(session.id, None)
        if pending is not None:
            if pending.timer is not None:
                pending.timer.cancel()
            self._runner.delete(api.WILLS, u64(session.id))

    def connection_lost(self, session: Session, now_ms: int) -> None:
        """The connection ended without a normal DISCONNECT."""
        pending = self._pending.get(session.id)
        if pending is None:
            return
        due_ms = now_ms + 1000 * min(pending.delay_s, session.expiry_s)
        if due_ms > now_ms:
            self._save(session.id, pending, due_ms, pending.delay_s)
        self._schedule(session.id, pending, due_ms, now_ms)

    def session_ended(self, session: Session) -> None:
        if session.id in self._pending:
            self._publish(session.id)

    def _schedule(self, session_id: int, pending: _Pending, due_ms: int, now_ms: int) -> None:
        if due_ms <= now_ms:
            self._publish(session_id)
        else:
            pending.timer = self._timers.arm(due_ms, lambda _: self._publish(session_id))

    def _publish(self, session_id: int) -> None:
        pending = self._pending.pop(session_id, None)
        if pending is None:
            return
        if pending.timer is not None:
            pending.timer.cancel()
        kept = pending.message
        # A fresh message: its expiry counts from now on.
        message = Message(
            kept.topic,
            kept.qos,
            kept.retain,
            kept.body,
            kept.payload_at,
            kept.expiry_at,
            pending.client_id,
            self._clock.now_ms(),
        )
        self._delivery.publish(message, None)
        self._runner.delete(api.WILLS, u64(session_id))

    def _save(self, session_id: int, pending: _Pending, due_ms: int, delay_s: int) -> None:
        record = records.WillRecord(
            pending.client_id, delay_s, due_ms, encode_message(pending.message)
        )
        self._runner.put(api.WILLS, u64(session_id), records.encode(record))
