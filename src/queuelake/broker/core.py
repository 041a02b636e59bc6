"""The broker without its network: everything connections share, put together once.

Connections call in here when a client comes or goes; the parts do the work. Nothing in this module
runs for each message.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, final

from queuelake.broker.auth.acl import ClientAcl
from queuelake.broker.auth.authenticator import Authenticator, Identity, Login
from queuelake.broker.certificates import LOGIN_NS, PROVEN_USER, certificate_user
from queuelake.broker.clock import SLOT_MS, Clock, TimerWheel
from queuelake.broker.committer import Committer, CommitThread
from queuelake.broker.connection import Connection
from queuelake.broker.delivery import Delivery
from queuelake.broker.ecq.administration import MailboxAdministration
from queuelake.broker.ecq.service import Mailboxes
from queuelake.broker.fanout.service import Fanout
from queuelake.broker.limits import TokenBucket
from queuelake.broker.message_queues.service import MessageQueues
from queuelake.broker.metrics import LOGIN_REASONS, Metrics
from queuelake.broker.packet_ids import PacketIds
from queuelake.broker.permissions import Permissions
from queuelake.broker.pipeline.records import Records
from queuelake.broker.pipeline.staging import Staging
from queuelake.broker.queues.registry import Queues
from queuelake.broker.queues.subscribing import client_left, client_resumed
from queuelake.broker.queues.upkeep import QueueUpkeep
from queuelake.broker.retained import Retained
from queuelake.broker.router import Router
from queuelake.broker.runner import Runner
from queuelake.broker.session import Session
from queuelake.broker.sessions import Sessions
from queuelake.broker.terms import Terms
from queuelake.broker.webhooks import Webhooks
from queuelake.broker.wills import Wills
from queuelake.config_rules import is_loopback
from queuelake.errors import RefusedError
from queuelake.protocol import reasons
from queuelake.protocol.message import Message
from queuelake.protocol.packets import Connect
from queuelake.settings import Settings
from queuelake.storage import api, check, records
from queuelake.storage.api import Store

log = logging.getLogger("queuelake.broker")

HASHING_THREADS = 2
RETAINED_MEMORY_BYTES = 64 * 1024 * 1024
EXPIRED_RETAINED_EVERY_MS = 60_000
RACE_MS = 2000  # two logins of one client, each on its way to several shards

T = TypeVar("T")
LoginDone = Callable[[Identity | None, int, str], None]


@final
class Broker:
    """One node."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        committer: Committer | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings
        self.store = store
        self.loop = loop
        self.clock = clock or Clock()
        self.timers = TimerWheel(self.clock.now_ms())
        self.metrics = Metrics()
        self.terms = Terms(settings.mqtt)
        self.authenticator = Authenticator(settings)
        self.permissions = Permissions(settings, self.authenticator)
        self._hashing = ThreadPoolExecutor(HASHING_THREADS, "login")
        self.runner = Runner(
            store,
            committer or CommitThread(store, loop),
            loop,
            self.clock,
            self.metrics,
            settings.storage.group_bytes_max,
        )
        self.runner.on_rollback = self._restore_retained
        self.retained = Retained(RETAINED_MEMORY_BYTES, self._load_retained)
        self.router = Router(settings.limits.route_cache_entries_max)
        self.queues = Queues(
            store, self.runner, self.router, self.clock, settings.queues, settings.lake
        )
        self.alerts = Webhooks()
        self.queues.alerts = self.alerts
        self.queue_upkeep = QueueUpkeep(self.queues, self.timers)
        self.delivery = Delivery(
            self.router, self.retained, self.runner, self.queues, self.metrics, settings.limits
        )
        self.sessions = self._make_sessions()
        self.message_queues = MessageQueues(
            self.queues, self.sessions, self.queue_upkeep, settings.mq
        )
        mailboxes = Mailboxes(self.queues, self.timers, settings.ecq)
        self.mailboxes = MailboxAdministration(mailboxes, self.delivery, self.timers, loop)
        self.fanout = Fanout(
            self.sessions.by_client, self.delivery, store, loop, self.timers, settings.sdv
        )
        self.staging = Staging(self.message_queues, self.fanout, self.queue_upkeep, settings)
        self.records = Records(self)
        self.wills = Wills(self.runner, self.delivery, self.clock, self.timers)
        self.connections: set[Connection] = set()
        self._per_ip: dict[str, int] = {}
        rate = settings.limits.connect_rate_per_s_max
        self._connect_bucket = TokenBucket(rate, rate) if rate else None
        self._turning: asyncio.TimerHandle | None = None
        self.stopping = False

    def _make_sessions(self) -> Sessions:
        settings = self.settings
        made = Sessions(
            self.store,
            self.runner,
            self.delivery,
            self.clock,
            self.timers,
            settings.mqtt.inflight_max,
            PacketIds(settings.cluster.shard_count),
        )
        made.on_end = self.queues.quorum.session_ended
        return made

    def start(self) -> None:
        """Load what the store has, then let time run."""
        with self.store.view() as view:
            for problem in check.problems(view, check.ROWS_AT_START):
                log.error("store: %s", problem)
            for _, value in view.scan(api.RETAINED, b"", b"\xff" * 512):
                self.retained.set(records.retained_message(value), 0)
                self.retained.shrink(0)
        self.sessions.load()
        self.message_queues.load()
        self.queues.load(self.sessions.new_id())
        self.queue_upkeep.start()
        self.queues.quorum.start(self.queue_upkeep)
        self.queues.archive.on_archived = self.records.archived
        self.queues.archive.start(self.queue_upkeep)
        self.message_queues.garbage.start()
        self.mailboxes.start()
        self.fanout.start()
        self.staging.start()
        self.records.start()
        self.wills.load(self.store)
        self._turn()
        self.timers.arm(self.clock.now_ms() + EXPIRED_RETAINED_EVERY_MS, self._drop_expired)

    def _turn(self) -> None:
        """The wheel: also the measure of how late the loop is."""
        now_ms = self.clock.now_ms()
        late_ms = now_ms - self.clock.coarse_ms - SLOT_MS
        lag_s = max(0, late_ms) / 1000
        self.metrics.loop_lag_s = lag_s
        self.metrics.loop_lags.observe(lag_s)
        self.clock.coarse_ms = now_ms
        self.timers.turn(now_ms)
        self.retained.shrink(self.runner.durable)
        self._turning = self.loop.call_later(SLOT_MS / 1000, self._turn)

    # Connections

    def admit(self, connection: Connection, transport: asyncio.Transport) -> None:
        """A connection was made: remember it, and see to it that it logs in soon."""
        transport.set_write_buffer_limits(high=self.settings.limits.write_buffer_bytes_max)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            connection.peer_ip, connection.peer_port = str(peer[0]), int(peer[1])
            connection.loopback = is_loopback(connection.peer_ip)
        else:
            connection.loopback = True
        connection.certificate_user = transport.get_extra_info(PROVEN_USER) or certificate_user(
            transport, self.settings.tls
        )
        ip = connection.peer_ip
        self.connections.add(connection)
        self._per_ip[ip] = self._per_ip.get(ip, 0) + 1
        self.metrics.connections += 1
        due_ms = self.clock.now_ms() + int(self.settings.mqtt.connect_timeout_s * 1000)
        connection.deadlines.await_login(due_ms)

    def dismiss(self, connection: Connection) -> None:
        """Its transport is closed."""
        if connection in self.connections:
            self.connections.discard(connection)
            self.metrics.connections -= 1
            left = self._per_ip[connection.peer_ip] - 1
            if left:
                self._per_ip[connection.peer_ip] = left
            else:
                del self._per_ip[connection.peer_ip]

    def refuse_if_full(self, connection: Connection) -> None:
        """Raise when one more client is more than a limit allows."""
        limits = self.settings.limits
        if self.stopping:
            raise RefusedError.because(reasons.SERVER_UNAVAILABLE, "the broker is shutting down")
        if limits.connections_max and len(self.connections) > limits.connections_max:
            problem = f"{limits.connections_max} of {limits.connections_max} connections in use"
            raise RefusedError.because(reasons.QUOTA_EXCEEDED, problem)
        per_ip = limits.connections_per_ip_max
        if per_ip and connection.peer_ip and self._per_ip.get(connection.peer_ip, 0) > per_ip:
            problem = f"{per_ip} of {per_ip} connections of {connection.peer_ip} in use"
            raise RefusedError.because(reasons.QUOTA_EXCEEDED, problem)
        bucket = self._connect_bucket
        if bucket is not None and bucket.take(1, self.clock.now_ms() / 1000) > 0:
            problem = f"more than {limits.connect_rate_per_s_max} connects per second"
            raise RefusedError.because(reasons.CONNECTION_RATE_EXCEEDED, problem)

    def refuse_if_overtaken(self, connection: Connection, client_id: str) -> None:
        """Raise when a later login of this client is here already.

        Of two at the same time each shard may see another one first. The later one has to win in
        all of them, or neither does. Clocks of nodes may differ, so this is for a moment only.
        """
        session = self.sessions.by_client.get(client_id)
        other = None if session is None else session.connection
        if other is None or _login_ns(other) <= _login_ns(connection):
            return
        if self.clock.now_ms() - other.connected_ms < RACE_MS:
            problem = "a later login of this client came first"
            raise RefusedError.because(reasons.SERVER_BUSY, problem)

    def authenticate_in_thread(self, login: Login, done: LoginDone) -> None:
        def work() -> None:
            identity: Identity | None = None
            reason, problem = 0, ""
            try:
                identity = self.authenticator.authenticate(login)
            except RefusedError as error:
                reason, problem = error.reason_code, str(error)
            except Exception:
                log.exception("login of %r", login.client_id)
                reason, problem = reasons.UNSPECIFIED_ERROR, "the login could not be checked"
            if not self.loop.is_closed():
                self.loop.call_soon_threadsafe(done, identity, reason, problem)

        self._hashing.submit(work)

    async def hashing(self, work: Callable[[], T]) -> T:
        """Run what hashes a password where logins do it: so many at a time, and no more."""
        return await self.loop.run_in_executor(self._hashing, work)

    def acl_for(self, peer_ip: str, client_id: str, identity: Identity) -> ClientAcl:
        return self.permissions.of(peer_ip, client_id, identity)

    # Sessions

    def open_session(self, connect: Connect, expiry_s: int) -> tuple[Session, bool]:
        """The session for this client; whoever holds it now is told and leaves."""
        existing = self.sessions.by_client.get(connect.client_id)
        if existing is not None:
            if existing.connection is not None:
                existing.connection.close(
                    reasons.SESSION_TAKEN_OVER, "another client took this session over"
                )
            if connect.clean_start:
                self.wills.session_ended(existing)
            else:
                self.wills.cancel(existing)
        return self.sessions.open(connect.client_id, connect.version, connect.clean_start, expiry_s)

    def client_joined(self, connection: Connection, session: Session, identity: Identity) -> None:
        self.metrics.connects += 1
        now_ms = self.clock.now_ms()
        self.permissions.joined(connection, identity)
        connection.seen_ms = now_ms
        connection.connected_ms = now_ms
        connection.deadlines.logged_in(now_ms, identity.expires_at)
        client_resumed(self.queues, session)
        self.fanout.subscribed(session)
        self.runner.touch(session)
        log.debug("%r connected from %s", session.client_id, connection.peer_ip)

    def client_left(self, connection: Connection, session: Session, why: str, clean: bool) -> None:
        """The connection is over; called once for each client which had joined."""
        self.permissions.left(connection)
        disconnects = self.metrics.disconnects
        disconnects[why] = disconnects.get(why, 0) + 1
        if session.connection is not connection:
            return
        now_ms = self.clock.now_ms()
        if clean:
            self.wills.cancel(session)
        else:
            self.wills.connection_lost(session, now_ms)
        client_left(self.queues, session)
        self.fanout.client_left(session)
        self.sessions.close(session, now_ms)
        log.debug("%r left: %s", session.client_id, why)

    def login_refused(
        self, connection: Connection, client_id: str, reason: int, problem: str
    ) -> None:
        log.info(
            "login of %r from %s refused with 0x%02X: %s",
            client_id,
            connection.peer_ip or connection.listener,
            reason,
            problem,
        )
        disconnects = self.metrics.disconnects
        disconnects["login_refused"] = disconnects.get("login_refused", 0) + 1
        refused, why = self.metrics.logins_refused, LOGIN_REASONS.get(reason, "other")
        refused[why] = refused.get(why, 0) + 1

    # Retained messages

    def _load_retained(self, topic: bytes) -> Message | None:
        with self.store.view() as view:
            value = view.get(api.RETAINED, records.retained_key(topic))
        return None if value is None else records.retained_message(value)

    def _restore_retained(self, topics: list[bytes]) -> None:
        """A commit failed: what the store has is what was retained."""
        for topic in topics:
            message = self._load_retained(topic)
            if message is None:
                self.retained.remove(topic)
            else:
                self.retained.set(message, 0)

    def _drop_expired(self, now_ms: int) -> None:
        for topic in self.retained.expired(now_ms):
            self.retained.remove(topic)
            self.runner.store_retained(topic, None)
        self.timers.arm(now_ms + EXPIRED_RETAINED_EVERY_MS, self._drop_expired)

    # The end

    async def stop(self, *, is_lost: bool = False) -> None:
        """Tell every client, write what is left (unless it is lost), end the threads."""
        self.stopping = self.queues.quorum.stopping = True
        for connection in list(self.connections):
            connection.close(reasons.SERVER_SHUTTING_DOWN, "the broker is shutting down")
        self.records.finish()
        try:
            if not is_lost:
                await self._written()
            await self.alerts.close()
        finally:  # also when the caller has waited long enough: nothing of it may go on
            self._end()

    def _end(self) -> None:
        if self._turning is not None:
            self._turning.cancel()
        self.runner.close()
        self._hashing.shutdown(wait=False, cancel_futures=True)
        self.staging.close()
        for connection in list(self.connections):
            if connection.transport is not None:
                connection.transport.abort()

    async def _written(self) -> None:
        """Wait until everything collected so far is durable, or the store has failed."""
        while self.runner.has_work() and not self.runner.failure:
            done = asyncio.Event()
            self.runner.after_durable(done.set)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await done.wait()


def _login_ns(connection: Connection) -> int:
    """When the login of a client of several shards began; 0: there is one."""
    transport = connection.transport
    found = None if transport is None else transport.get_extra_info(LOGIN_NS)
    return found if isinstance(found, int) else 0
