"""One client's session: what it subscribed to, and what is on its way to it. No I/O.

Messages leave in order of their sequence, at most `window` of them unacknowledged. The packet id of
a message is a function of its sequence, so it needs no storage of its own: after a crash a message
is sent again under the id it had before, as QoS 2 demands.

A persistent session lives in the store; memory holds only the stretch of its queue which is being
sent. A message may be sent when its commit group is durable (`durable_seq`), and while the client
is away, or slower than its share of memory, messages stay in the store until they are asked for:

    settled_seq      sent_seq        tail_seq        durable_seq       next_seq - 1
    ----|--- in flight ---|-- queue ----|-- store only --|-- being stored --|
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from queuelake.broker.deliveries import Deliveries, Delivery
from queuelake.broker.line import Line, Outgoing
from queuelake.broker.packet_ids import ALONE, PacketIds
from queuelake.protocol.encoder import PUBREL_HEAD
from queuelake.protocol.message import DUP_FLAG, FIRST_BYTE, PACKET_IDS, RETAIN_FLAG, Message
from queuelake.protocol.packets import V5
from queuelake.protocol.properties import TOPIC_ALIAS, write_number

if TYPE_CHECKING:
    from queuelake.broker.connection import Connection
    from queuelake.broker.queues.subscriber import Subscriber

WINDOW_MAX: Final = 65535
REFILL_BELOW_BYTES: Final = 128 * 1024  # sixteen entries may be sixteen times 10 MB


@final
class Subscription:
    """One topic filter of one session, with its options."""

    __slots__ = (
        "no_local",
        "qos",
        "retain_as_published",
        "session",
        "shared",
        "subscription_id",
        "topic_filter",
        "user",
    )

    def __init__(
        self,
        session: Session,
        topic_filter: bytes,
        qos: int,
        no_local: bool,
        retain_as_published: bool,
        subscription_id: int,
        shared: bytes,
        user: list[tuple[bytes, bytes]],
    ) -> None:
        self.session: Session = session
        self.topic_filter: bytes = topic_filter  # without `$share/{group}/`
        self.qos: int = qos
        self.no_local: bool = no_local
        self.retain_as_published: bool = retain_as_published
        self.subscription_id: int = subscription_id  # 0: none
        self.shared: bytes = shared  # the whole `$share/...` filter, or empty
        self.user: list[tuple[bytes, bytes]] = user  # user properties of the SUBSCRIBE


@final
class Session:
    """The state which outlives a connection, and the rules of QoS 1 and 2 towards the client."""

    __slots__ = (
        "_aliases",
        "_packet_ids",
        "alias_max",
        "client_id",
        "connection",
        "consumers",
        "cursor_dirty",
        "deliveries",
        "dirty",
        "disconnected_ms",
        "dropped",
        "durable_seq",
        "expiry_s",
        "express",
        "former",
        "gate",
        "id",
        "inbound",
        "inflight",
        "memory_bytes",
        "name",
        "next_seq",
        "packet_size_max",
        "persistent",
        "queue",
        "queued_bytes",
        "released",
        "sealed",
        "sent_seq",
        "settled",
        "settled_seq",
        "storing",
        "storing_bytes",
        "stuck_id",
        "subscriptions",
        "tail_seq",
        "unsettled",
        "version",
        "window",
    )

    def __init__(
        self, session_id: int, client_id: str, version: int, expiry_s: int, ids: PacketIds = ALONE
    ) -> None:
        self.id: int = session_id
        self.client_id: str = client_id
        self.name: bytes = client_id.encode()
        self.version: int = version
        self.expiry_s: int = expiry_s
        self.persistent: bool = expiry_s > 0
        self.connection: Connection | None = None
        self.disconnected_ms: int = 0
        self.subscriptions: dict[bytes, Subscription] = {}  # by the filter as subscribed
        self.inbound: set[int] = set()  # QoS 2 packet ids received and not yet released
        self.consumers: list[Subscriber] = []  # of queues
        self.former: list[Subscriber] = []  # unsubscribed, and may have something in hand
        self.deliveries: Deliveries | None = None
        self._packet_ids: PacketIds = ids
        # What the connected client asked for.
        self.window: int = WINDOW_MAX
        self.packet_size_max: int = 0
        self.alias_max: int = 0
        self._aliases: dict[bytes, int] | None = None
        # The way out; the picture above says what the sequences mean.
        self.queue: Line = Line()
        self.express: Line = Line()  # QoS 0: waits for no acknowledgement
        self.inflight: dict[int, Outgoing] = {}
        self.memory_bytes: int = 0
        self.next_seq: int = 1
        self.durable_seq: int = 0
        self.tail_seq: int = 0
        self.sent_seq: int = 0
        self.settled_seq: int = 0
        self.settled: set[int] = set()  # settled above settled_seq, out of order
        self.released: set[int] = set()  # sequences whose PUBREC has come
        self.unsettled: int = 0
        self.queued_bytes: int = 0  # of what is durable
        self.storing_bytes: int = 0  # of what is not yet
        self.dropped: int = 0
        self.stuck_id: int = 0  # not acknowledged while all other packet ids came and went
        self.gate: int = 0  # nothing is sent before this commit group is durable
        # Marks of the runner: is this session in one of its lists already?
        self.dirty: bool = False
        self.cursor_dirty: bool = False
        self.storing: list[Outgoing] | None = None  # in the group being collected
        self.sealed: list[Outgoing] | None = None  # in the group being committed

    def attach(self, version: int, window: int, packet_size_max: int, alias_max: int) -> None:
        """A client has connected: what it asked for, and everything unsettled from the start."""
        self.version = version
        self.window = min(window, self._packet_ids.own)
        self.packet_size_max = packet_size_max
        self.alias_max = alias_max
        self._aliases = None
        self.disconnected_ms = 0
        self.stuck_id = 0
        self._forget_memory()

    def detach(self, now_ms: int) -> None:
        """The client is gone: memory is freed, the store has what is needed."""
        self.connection = None
        self.disconnected_ms = now_ms
        self._aliases = None
        self._forget_memory()

    def _forget_memory(self) -> None:
        self.queue.clear()
        self.express.clear()
        self.inflight.clear()
        self.deliveries = None
        self.memory_bytes = 0
        self.tail_seq = self.settled_seq if self.persistent else self.next_seq - 1

    def deliver(self, delivery: Delivery) -> None:
        """A queue has something for this client."""
        if self.deliveries is None:
            self.deliveries = Deliveries(self._packet_ids.deliveries)
        self.deliveries.add(delivery)

    # Messages towards the client

    def offer(
        self, message: Message, qos: int, retain: bool, ids: bytes, shared: bytes
    ) -> Outgoing:
        """Put a message in line. A persistent session's entry must be stored by the caller."""
        first = FIRST_BYTE | qos << 1 | (RETAIN_FLAG if retain else 0)
        if qos == 0:
            entry = Outgoing(message, first, ids, shared, 0)
            entry.after = self.next_seq - 1
            self.express.append(entry)
            self.memory_bytes += entry.size
            return entry
        seq = self.next_seq
        self.next_seq = seq + 1
        entry = Outgoing(message, first, ids, shared, seq)
        self.unsettled += 1
        if not self.persistent:
            self.durable_seq = seq
        else:
            self.storing_bytes += message.size()
            if self.tail_seq != seq - 1 or self.connection is None:
                return entry  # the store has older ones, so this one waits there too
        self.tail_seq = seq
        self.queue.append(entry)
        self.memory_bytes += entry.size
        return entry

    def spill(self) -> None:
        """Memory is used up: leave what is not yet sent to the store."""
        assert self.persistent
        while not self.queue.is_empty():
            entry = self.queue.take_last()
            self.memory_bytes -= entry.size
            self.tail_seq = entry.seq - 1

    def on_durable(self, seq: int, size: int) -> None:
        """Everything up to `seq` is stored and may be sent."""
        self.durable_seq = seq
        self.queued_bytes += size
        self.storing_bytes -= size

    def roll_back(self) -> None:
        """A commit failed: entries which are not durable were never accepted."""
        self.queue.keep_upto(self.durable_seq)
        self.memory_bytes = sum([entry.size for entry in self.queue])
        self.memory_bytes += sum([entry.size for entry in self.express])
        lost = self.next_seq - 1 - self.durable_seq
        self.next_seq -= lost
        self.unsettled -= lost
        self.tail_seq = min(self.tail_seq, self.durable_seq)
        self.storing_bytes = 0

    def wants_refill(self) -> bool:
        return (
            self.persistent
            and self.connection is not None
            and self.tail_seq < self.durable_seq
            and len(self.queue) < 16
            and self.memory_bytes < REFILL_BELOW_BYTES
        )

    def refill(self, entry: Outgoing) -> None:
        """An entry read back from the store; they come in order of their sequence."""
        assert entry.seq > self.tail_seq
        self.tail_seq = entry.seq
        if entry.seq in self.settled:
            return
        entry.dup = entry.seq <= self.sent_seq
        entry.released = entry.seq in self.released
        self.queue.append(entry)
        self.memory_bytes += entry.size

    def pump(self, out: list[bytes], now_ms: int, sent: list[int]) -> None:
        """Move what may leave now into `out`; `sent` counts it by QoS.

        QoS 0 keeps its place among the others, but never waits for an acknowledgement.
        """
        queue = self.queue
        express = self.express
        inflight = self.inflight
        deliveries = self.deliveries
        own_ids = self._packet_ids.own
        window = self.window - (len(deliveries.inflight) if deliveries is not None else 0)
        while not queue.is_empty():
            entry = queue.first()
            seq = entry.seq
            if not express.is_empty() and express.first().after < seq:
                self._send(express.take_first(), 0, out, now_ms, sent)
                continue
            packet_id = (seq - 1) % own_ids + 1
            if seq > self.durable_seq or len(inflight) >= window:
                break
            if packet_id in inflight:
                self.stuck_id = packet_id
                break
            queue.take_first()
            if entry.released:
                self.memory_bytes -= entry.size
                inflight[packet_id] = entry
                out.append(PUBREL_HEAD + PACKET_IDS[packet_id])
            elif self._send(entry, packet_id, out, now_ms, sent):
                inflight[packet_id] = entry
                if seq > self.sent_seq:
                    self.sent_seq = seq
        while not express.is_empty():
            self._send(express.take_first(), 0, out, now_ms, sent)
        if deliveries is not None and deliveries.has_waiting():
            deliveries.pump(self, out, now_ms, sent)

    def _send(
        self, entry: Outgoing, packet_id: int, out: list[bytes], now_ms: int, sent: list[int]
    ) -> bool:
        """One PUBLISH; False when it expired or is larger than the client takes."""
        self.memory_bytes -= entry.size
        message = entry.message
        # What was sent before is sent to the end, expired or not.
        if message.expires_ms and now_ms >= message.expires_ms and not entry.dup:
            self._drop(entry)
            return False
        first = entry.first | (DUP_FLAG if entry.dup else 0)
        if self.alias_max:
            frame = self._frame_with_alias(message, first, packet_id, entry.ids, now_ms)
        else:
            frame = message.frame(self.version, first, packet_id, entry.ids, now_ms)
        if self.packet_size_max and len(frame) > self.packet_size_max:
            self._drop(entry)
            return False
        sent[first >> 1 & 3] += 1
        out.append(frame)
        return True

    def _drop(self, entry: Outgoing) -> None:
        self.dropped += 1
        if entry.seq:
            self.settle(entry)

    def _frame_with_alias(
        self, message: Message, first: int, packet_id: int, ids: bytes, now_ms: int
    ) -> bytes:
        aliases = self._aliases
        if aliases is None:
            aliases = self._aliases = {}
        alias = aliases.get(message.topic, 0)
        if alias:
            extra = write_number(TOPIC_ALIAS, alias) + ids
            return message.frame_with(first, b"", packet_id, extra, now_ms)
        if len(aliases) >= self.alias_max:
            return message.frame(V5, first, packet_id, ids, now_ms)
        alias = len(aliases) + 1
        extra = write_number(TOPIC_ALIAS, alias) + ids
        frame = message.frame_with(first, message.topic, packet_id, extra, now_ms)
        if not self.packet_size_max or len(frame) <= self.packet_size_max:
            aliases[message.topic] = alias
        return frame

    # Answers of the client

    def on_puback(self, packet_id: int) -> bool:
        """PUBACK, or a PUBREC which refuses. False: no such message is in flight."""
        entry = self.inflight.get(packet_id)
        if entry is None:
            return False
        del self.inflight[packet_id]
        self.settle(entry)
        return True

    def on_pubrec(self, packet_id: int) -> bool:
        """The client has the QoS 2 message; PUBREL is the next step."""
        entry = self.inflight.get(packet_id)
        if entry is None or entry.first >> 1 & 3 != 2:
            return False
        if not entry.released:
            entry.released = True
            self.released.add(entry.seq)
        return True

    def on_pubcomp(self, packet_id: int) -> bool:
        entry = self.inflight.get(packet_id)
        if entry is None or not entry.released:
            return False
        del self.inflight[packet_id]
        self.settle(entry)
        return True

    def settle(self, entry: Outgoing) -> None:
        """The message needs no further delivery. The runner frees its place in the store."""
        seq = entry.seq
        self.unsettled -= 1
        if self.released:
            self.released.discard(seq)
        if not self.persistent:
            return
        self.queued_bytes -= entry.message.size()
        if seq != self.settled_seq + 1:
            self.settled.add(seq)
            return
        self.settled_seq = seq
        settled = self.settled
        while settled and self.settled_seq + 1 in settled:
            self.settled_seq += 1
            settled.discard(self.settled_seq)

    def is_congested(self) -> bool:
        """Whether a shared subscription had better choose another member."""
        return len(self.inflight) >= self.window or len(self.queue) > 1000
