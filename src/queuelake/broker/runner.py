"""Group commit: collect, store, and only then act.

Everything which must survive a crash is put into the group being collected. At the end of a turn of
the event loop the group is sealed and handed to the commit thread; while it commits, the next group
collects. When it is durable its effects happen: answers which were held back leave, and messages
for persistent sessions become sendable. One commit is in flight at a time.

When a commit fails nothing of it is confirmed, nor of the group collected over it: publishers get a
failure, queues and retained messages go back to what the store has. State which clients still have
to learn about (subscriptions, settlements) stays held back and is written with the next group, and
so do messages which nobody would send again (wills, what an ended session hands on).
"""

from __future__ import annotations

import logging
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import TYPE_CHECKING, final

from queuelake.broker.clock import Clock
from queuelake.broker.committer import Committer
from queuelake.broker.company import Company
from queuelake.broker.group import Group
from queuelake.broker.line import Outgoing
from queuelake.broker.metrics import Metrics
from queuelake.broker.pace import Pace
from queuelake.broker.participant import Participant
from queuelake.broker.session import Session
from queuelake.protocol import reasons
from queuelake.protocol.message import Message
from queuelake.storage import api, records
from queuelake.storage.api import Store
from queuelake.storage.queue_rows import first_free_chunk, read_queue, u64

if TYPE_CHECKING:
    from queuelake.broker.connection import Connection

log = logging.getLogger("queuelake.runner")

REFILL_BYTES = 128 * 1024
RETRY_S = 1.0


@final
class Runner:
    """The heart beat of the broker: one `tick` per turn of the loop which has work."""

    __slots__ = (
        "_clock",
        "_committer",
        "_company",
        "_loop",
        "_metrics",
        "_next_chunk",
        "_retry",
        "_sealed",
        "_sealed_at",
        "_store",
        "_turns",
        "_woken",
        "dirty",
        "durable",
        "failure",
        "group",
        "group_bytes_max",
        "number",
        "on_rollback",
        "pace",
        "writers",
    )

    def __init__(
        self,
        store: Store,
        committer: Committer,
        loop: AbstractEventLoop,
        clock: Clock,
        metrics: Metrics,
        group_bytes_max: int,
    ) -> None:
        self._store: Store = store
        self._loop: AbstractEventLoop = loop
        self._clock: Clock = clock
        self._metrics: Metrics = metrics
        self.group_bytes_max: int = group_bytes_max
        self.group: Group = Group()
        self.number: int = 1  # of the group being collected
        self.durable: int = 0  # of the last group which is durable
        self.failure: str = ""  # why the last commit failed; empty when it did not
        self.dirty: list[Session] = []  # sessions with messages to send
        self.writers: list[Connection] = []  # connections with bytes to write
        self.on_rollback: Callable[[list[bytes]], None] | None = None
        self._turns: list[Participant] = []  # those which want to act
        self._woken: bool = False
        self._retry: bool = False
        self.pace: Pace = Pace()
        self._company: Company = Company(loop, self.pace, self.wake)
        self._sealed: Group | None = None
        self._sealed_at: float = 0.0
        with store.view() as view:
            self._next_chunk: int = first_free_chunk(view)
        self._committer: Committer = committer

    # Collecting

    def wake(self) -> None:
        """There is work: let `tick` run once at the end of this turn."""
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._tick)

    def touch(self, session: Session) -> None:
        """The session has messages which may leave."""
        if not session.dirty:
            session.dirty = True
            self.dirty.append(session)
            self.wake()

    def store_entry(self, session: Session, entry: Outgoing) -> None:
        """Make an entry of a persistent session part of this group; its message once."""
        group = self.group
        message = entry.message
        if message.group != self.number:
            message.group = self.number
            message.place = len(group.messages)
            group.messages.append(message)
            group.bytes += len(message.body)
        storing = session.storing
        if storing is None:
            storing = session.storing = []
            group.sessions.append(session)
        storing.append(entry)
        self.wake()

    def store_cursor(self, session: Session) -> None:
        """The session settled something, or its QoS 2 state changed."""
        if not session.cursor_dirty:
            session.cursor_dirty = True
            self.group.cursors.append(session)
            self.wake()

    def is_receiving(self, session: Session, packet_id: int) -> bool:
        """Whether the QoS 2 message with this id waits for a commit; asked for repeats only."""
        waiting = self.group.received
        if self._sealed is not None:
            waiting = waiting + self._sealed.received
        return any([one is session and known == packet_id for one, known in waiting])

    def hold(self, connection: Connection) -> None:
        """Tell the connection when this group is durable, or has failed."""
        self.group.holders.append(connection)
        self.wake()

    def put(self, table: int, key: bytes, value: bytes) -> None:
        self.group.batch.put(table, key, value)
        self.group.bytes += len(value)
        self.wake()

    def delete(self, table: int, key: bytes) -> None:
        self.group.batch.delete(table, key)
        self.wake()

    def store_retained(self, topic: bytes, message: Message | None) -> None:
        """Keep the retained message of a topic, or None to delete it."""
        self.group.retained.append(topic)
        key = records.retained_key(topic)
        if message is None:
            self.delete(api.RETAINED, key)
        else:
            self.put(api.RETAINED, key, records.retained_value(message))

    def forget_session(self, session: Session) -> None:
        """Delete everything the store has of a session."""
        batch = self.group.batch
        key = u64(session.id)
        batch.delete(api.SESSIONS, key)
        batch.delete(api.CURSORS, key)
        for topic_filter in session.subscriptions:
            batch.delete(api.SUBSCRIPTIONS, records.subscription_key(session.id, topic_filter))
        batch.trim(session.id, api.SEQUENCE_MAX)
        session.persistent = False
        self.wake()

    def after_durable(self, action: Callable[[], None]) -> None:
        """Call back when everything collected so far is durable."""
        self.group.after.append(action)
        self.wake()

    def after_sealed(self, action: Callable[[], None]) -> None:
        """Call back when the group being committed is durable, before the next one is sealed; at
        once when there is none."""
        if self._sealed is None:
            action()
        else:
            self._sealed.after.append(action)

    def if_failed(self, action: Callable[[], None]) -> None:
        """Call back when the group being collected was rolled back."""
        self.group.again.append(action)

    def want_turn(self, participant: Participant) -> None:
        """Let a participant act at the end of this turn of the loop, once."""
        if not participant.waiting:
            participant.waiting = True
            self._turns.append(participant)
            self.wake()

    def take_part(self, participant: Participant) -> None:
        """The participant has something to write with the group being collected."""
        if participant.group != self.number:
            participant.group = self.number
            self.group.participants.append(participant)
            self.wake()

    def committing(self, table: int) -> dict[bytes, bytes | None]:
        """Rows of a table which the commit under way will write."""
        return {} if self._sealed is None else self._sealed.batch.tables[table]

    def has_work(self) -> bool:
        return self._sealed is not None or not self.group.is_empty()

    # Acting

    def _tick(self) -> None:
        self._woken = False
        if self._turns:
            self._act()
        self._send()
        if self._sealed is None and not self.group.is_empty() and not self._retry:
            now_ms = self._clock.now_ms()
            if self.pace.expects_more(self.group.answers, now_ms):
                self.wake()
            elif not self._company.is_expected(self.group, now_ms):
                self._seal(now_ms)

    def _act(self) -> None:
        now_ms = self._clock.now_ms()
        turns, self._turns = self._turns, []
        for participant in turns:
            participant.waiting = False
            try:
                participant.act(now_ms)
            except Exception:  # what is wrong with one must not stop the others
                log.exception("acting")

    def _send(self) -> None:
        now_ms = self._clock.now_ms()
        dirty = self.dirty
        if dirty:
            self.dirty = []
            for session in dirty:
                session.dirty = False
                connection = session.connection
                if connection is not None and session.gate <= self.durable:
                    try:
                        self._send_to(session, connection, now_ms)
                    except Exception:  # what is wrong with one must not stop the others
                        log.exception("sending to %r", session.client_id)
                        connection.close(reasons.IMPLEMENTATION_SPECIFIC_ERROR, "internal error")
        writers = self.writers
        if writers:
            self.writers = []
            for connection in writers:
                try:
                    connection.flush()
                except Exception:
                    log.exception("writing to %r", connection.client_name())

    def _send_to(self, session: Session, connection: Connection, now_ms: int) -> None:
        if session.wants_refill():
            self._refill(session)
        settled = session.unsettled
        connection.pump(now_ms)
        if settled != session.unsettled and session.persistent:
            self.store_cursor(session)  # something expired or was too large
        if session.wants_refill() and session.queue.is_empty():
            self.touch(session)

    def _refill(self, session: Session) -> None:
        with self._store.view() as view:
            entries = read_queue(view, session.id, session.tail_seq, REFILL_BYTES)
        if not entries:
            log.error("queue of %r lacks %d", session.client_id, session.tail_seq + 1)
            session.tail_seq = session.durable_seq
        for entry in entries:
            if entry.sequence > session.durable_seq:
                break
            session.refill(
                Outgoing(entry.message, entry.first, entry.ids, entry.shared, entry.sequence)
            )

    def _seal(self, now_ms: int) -> None:
        group = self.group
        self._company.sealed(group, now_ms)
        try:
            self._next_chunk = group.seal(self._next_chunk)
        except Exception as error:  # what cannot be laid out must not stop all that can
            log.exception("group of %d messages", len(group.messages))
            self.group = Group()
            self._fail(group, f"internal error: {error!r}")
            return
        for connection in group.holders:
            connection.seal_held()
        self._sealed = group
        self._sealed_at = time.monotonic()
        self.group = Group()
        self.number += 1
        self._committer.submit(group.batch, self._committed)

    def _committed(self, failure: str) -> None:
        group = self._sealed
        assert group is not None
        self._sealed = None
        if failure:
            self._fail(group, failure)
        else:
            if self.failure:
                log.warning("store works again")
            self.failure = ""
            self.pace.committed(self._clock.now_ms())
            self._succeed(group)
        self.wake()

    def _succeed(self, group: Group) -> None:
        self.durable = self.number - 1
        metrics = self._metrics
        metrics.commit_latency.observe(time.monotonic() - self._sealed_at)
        metrics.commit_group.observe(len(group.messages))
        for connection in group.holders:
            connection.release_held()
        for session, seq, size in group.marks:
            session.sealed = None
            session.on_durable(seq, size)
            self.touch(session)
        if group.participants:
            now_ms = self._clock.now_ms()
            for participant in group.participants:
                try:
                    participant.stored(now_ms)
                except Exception:  # as in `_act`
                    log.exception("after a commit")
        for action in group.after:
            action()

    # When a commit fails

    def _fail(self, sealed: Group, failure: str) -> None:
        if not self.failure:
            log.error("commit failed, publishes are refused: %s", failure)
        self.failure = failure
        self._metrics.commit_failures += 1
        collected, self.group = self.group, Group()
        self.number += 1
        retained: list[bytes] = []
        for group in (sealed, collected):
            for session in group.sessions:
                session.storing = session.sealed = None
                session.roll_back()
            for session, packet_id in group.received:
                session.inbound.discard(packet_id)  # sent again, it is a new message
            self._keep_state(group)
            retained.extend(group.retained)
            self.group.after.extend(group.after)
        # Once each: one which was rolled back takes part in the next group already.
        touched = {id(one): one for one in sealed.participants + collected.participants}
        for participant in touched.values():
            try:
                participant.rolled_back()
            except Exception:  # as in `_act`
                log.exception("after a failed commit")
        for group in (sealed, collected):
            for connection in group.holders:
                connection.fail_held()
        if retained and self.on_rollback is not None:
            self.on_rollback(retained)
        for action in sealed.again + collected.again:
            action()
        self._retry = True
        self._loop.call_later(RETRY_S, self._try_again)

    def _keep_state(self, group: Group) -> None:
        """Carry over what is true in memory and must be in the store before anybody hears it."""
        batch = self.group.batch
        for table in (api.META, api.SESSIONS, api.SUBSCRIPTIONS, api.CURSORS, api.WILLS):
            batch.tables[table].update(group.batch.tables[table])
        for session_id, upto in group.batch.trims.items():
            batch.trim(session_id, upto)
        for session in group.cursors:
            session.cursor_dirty = False
            self.store_cursor(session)

    def _try_again(self) -> None:
        self._retry = False
        self.wake()

    def close(self) -> None:
        """End the commit thread after the group it works on."""
        self._committer.close()
