"""A session against a simple model: what it sends, in which order, under which packet id.

The test plays runner, store and client. The model is a list of everything offered; from it follow
exactly the packets which a session may send at any moment. The client keeps its half of QoS 2.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from queuelake.broker.connection import Connection
from queuelake.broker.line import Outgoing
from queuelake.broker.packet_ids import PACKET_ID_MAX
from queuelake.broker.session import Session
from queuelake.protocol.message import Message
from tests.harness import packets as p
from tests.harness.packets import Packet
from tests.harness.reading import parse
from tests.harness.wire import _whole_packet
from tests.simulation.node import Node

# A session asks only whether there is one.
CONNECTION = Connection(Node().broker, "test")
STEP_MS = 1000
EXPIRY_S = 3


@dataclass
class Offered:
    """One message of the model; `seq` 0 is QoS 0."""

    number: int
    qos: int
    seq: int
    message: Message
    entry: Outgoing
    sent: bool = False  # on any connection
    released: bool = False
    settled: bool = False
    waiting: str = ""  # the answer the client owes on this connection


@dataclass
class Client:
    """The other end: counts what its application saw."""

    seen: list[int] = field(default_factory=list)
    unreleased: dict[int, int] = field(default_factory=dict)  # packet id -> number
    topics: dict[int, str] = field(default_factory=dict)  # aliases of this connection


def make_message(number: int, qos: int, size: int, expires: bool, now_ms: int) -> Message:
    properties = {"message_expiry_interval": EXPIRY_S} if expires else None
    head = p.encode_properties(properties)
    topic = b"t/%d" % (number % 3)
    body = head + b"%d:" % number + bytes(size)
    return Message(topic, qos, False, body, len(head), 2 if expires else 0, "someone", now_ms)


class SessionAgainstModel(RuleBasedStateMachine):
    persistent = True

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.offered: list[Offered] = []
        self.express: list[Offered] = []
        self.client = Client()
        self.number = 0
        self.online = False
        self.packet_size_max = 0
        self.version = 5
        self.durable = 0

    @initialize(first=st.sampled_from([1, PACKET_ID_MAX - 5]))
    def begin(self, first: int) -> None:
        """Start where packet ids are about to wrap, now and then."""
        self.session = Session(1, "client", 5, 3600 if self.persistent else 0)
        session = self.session
        session.next_seq = first
        session.durable_seq = session.tail_seq = session.sent_seq = session.settled_seq = first - 1
        self.durable = first - 1

    # --- The runner ------------------------------------------------------------------------------

    @rule(
        qos=st.integers(0, 2),
        size=st.sampled_from([0, 20, 300]),
        expires=st.booleans(),
        count=st.integers(1, 20),
    )
    def offer(self, qos: int, size: int, expires: bool, count: int) -> None:
        if not self.online and (qos == 0 or not self.persistent):
            return  # the delivery drops these
        for _ in range(count):
            self.number += 1
            message = make_message(self.number, qos, size, expires, self.now_ms)
            entry = self.session.offer(message, qos, False, b"", b"")
            one = Offered(self.number, qos, entry.seq, message, entry)
            if qos:
                self.offered.append(one)
                if not self.persistent:
                    self.durable = entry.seq
            else:
                self.express.append(one)

    @precondition(lambda self: self.persistent)
    @rule()
    def commit(self) -> None:
        new = [one for one in self.offered if one.seq > self.durable]
        if new:
            self.session.on_durable(new[-1].seq, sum(one.message.size() for one in new))
            self.durable = new[-1].seq

    @precondition(lambda self: self.persistent)
    @rule()
    def commit_fails(self) -> None:
        self.session.roll_back()
        self.offered = [one for one in self.offered if one.seq <= self.durable]

    @precondition(lambda self: self.persistent)
    @rule()
    def memory_is_used_up(self) -> None:
        self.session.spill()

    @rule(steps=st.integers(1, 4))
    def time_passes(self, steps: int) -> None:
        self.now_ms += steps * STEP_MS

    @precondition(lambda self: self.online)
    @rule(batch=st.integers(1, 30))
    def pump(self, batch: int) -> None:
        """What leaves is what the model says, to the packet."""
        session = self.session
        expected = self._expected()
        express = [one for one in self.express if not self._undeliverable(one)]
        self.express.clear()
        out: list[bytes] = []
        sent = [0, 0, 0]
        while True:
            if session.wants_refill():
                self._refill(batch)
            before = len(out), session.dropped
            session.pump(out, self.now_ms, sent)
            if before == (len(out), session.dropped) and not (
                session.wants_refill() and not len(session.queue)
            ):
                break
        packets = [parse(data, self.version) for frame in out for data in split(frame)]
        qos0 = [one for one in packets if one.type == p.PUBLISH and one.qos == 0]
        others = [one for one in packets if one.type != p.PUBLISH or one.qos]
        assert [number_of(one) for one in qos0] == [one.number for one in express]
        assert len(others) == len(expected)
        assert sent[0] == len(qos0)
        assert sent[1] + sent[2] == sum(1 for one in others if one.type == p.PUBLISH)
        topics = {id(one): self._topic(one) for one in packets if one.type == p.PUBLISH}
        for packet, (offered, kind, dup) in zip(others, expected, strict=True):
            assert packet.packet_id == (offered.seq - 1) % PACKET_ID_MAX + 1
            assert packet.type == kind
            if kind == p.PUBLISH:
                assert number_of(packet) == offered.number
                assert packet.dup == dup
                assert topics[id(packet)] == offered.message.topic.decode()
            self._arrive(packet, offered)

    def _expected(self) -> list[tuple[Offered, int, bool]]:
        """What may be sent now: in order, durable, within the window."""
        found = []
        room = self.session.window - sum(1 for one in self.offered if one.waiting)
        for one in self.offered:
            if one.settled or one.waiting:
                continue
            if one.seq > self.durable or room <= 0:
                break
            if one.released:
                found.append((one, p.PUBREL, False))
            elif self._undeliverable(one):
                one.settled = True
                continue
            else:
                found.append((one, p.PUBLISH, one.sent))
            room -= 1
        return found

    def _undeliverable(self, one: Offered) -> bool:
        message = one.message
        if message.expires_ms and self.now_ms >= message.expires_ms and not one.sent:
            return True
        if not self.packet_size_max:
            return False
        # Whatever form of topic alias is used, only clearly small or large messages are offered.
        return len(message.body) > 200

    def _refill(self, batch: int) -> None:
        after = self.session.tail_seq
        stored = [one for one in self.offered if after < one.seq <= self.durable][:batch]
        assert stored, "a refill is wanted only when the store has something"
        for one in stored:
            first = one.entry.first
            self.session.refill(Outgoing(one.message, first, b"", b"", one.seq))

    def _topic(self, packet: Packet) -> str:
        alias = packet.properties.get("topic_alias")
        if alias is None:
            return packet.topic
        if packet.topic:
            self.client.topics[alias] = packet.topic
        return self.client.topics[alias]

    # --- The client ------------------------------------------------------------------------------

    @precondition(lambda self: not self.online)
    @rule(
        version=st.sampled_from([4, 5]),
        window=st.sampled_from([1, 2, 5, 1000]),
        limited=st.booleans(),
        alias_max=st.sampled_from([0, 2]),
    )
    def connect(self, version: int, window: int, limited: bool, alias_max: int) -> None:
        self.version = version
        self.packet_size_max = 150 if limited else 0
        self.session.attach(version, window, self.packet_size_max, alias_max if version == 5 else 0)
        self.session.connection = CONNECTION
        self.online = True

    @precondition(lambda self: self.online)
    @rule()
    def disconnect(self) -> None:
        if not self.persistent:
            # It ends with its connection; the next one starts from nothing.
            self.session.detach(self.now_ms)
            self.offered.clear()
            self.client = Client()
            self.begin(1)
        else:
            self.session.detach(self.now_ms)
        for one in self.offered:
            one.waiting = ""
        self.client.topics.clear()
        self.express.clear()
        self.online = False

    def _arrive(self, packet: Packet, offered: Offered) -> None:
        client = self.client
        if packet.type == p.PUBREL:
            client.unreleased.pop(packet.packet_id, None)
            offered.waiting = "pubcomp"
            return
        offered.sent = True
        offered.waiting = "puback" if offered.qos == 1 else "pubrec"
        if offered.qos == 2:
            known = client.unreleased.get(packet.packet_id)
            assert known in (None, offered.number), "a packet id in use names another message"
            if known is not None:
                return
            client.unreleased[packet.packet_id] = offered.number
        client.seen.append(offered.number)

    @precondition(lambda self: self.online)
    @rule(data=st.data(), refuse=st.booleans())
    def answer(self, data: st.DataObject, refuse: bool) -> None:
        """Any answer the client owes, in any order."""
        owing = [one for one in self.offered if one.waiting]
        if owing:
            self._answer(data.draw(st.sampled_from(owing)), refuse)

    def _answer(self, one: Offered, refuse: bool = False) -> None:
        packet_id = (one.seq - 1) % PACKET_ID_MAX + 1
        session = self.session
        if one.waiting == "pubrec" and not refuse:
            assert session.on_pubrec(packet_id)
            one.released = True
            # PUBREL follows at once.
            self.client.unreleased.pop(packet_id, None)
            one.waiting = "pubcomp"
            return
        if one.waiting == "pubcomp":
            assert session.on_pubcomp(packet_id)
        else:
            self.client.unreleased.pop(packet_id, None)
            assert session.on_puback(packet_id)
        one.waiting = ""
        one.settled = True

    @precondition(lambda self: self.online)
    @rule(packet_id=st.integers(1, PACKET_ID_MAX))
    def answer_to_nothing(self, packet_id: int) -> None:
        owing = [one for one in self.offered if one.waiting]
        known = {(one.seq - 1) % PACKET_ID_MAX + 1: one for one in owing}
        if packet_id in known:
            return
        assert not self.session.on_puback(packet_id)
        assert not self.session.on_pubrec(packet_id)
        assert not self.session.on_pubcomp(packet_id)

    # --- What always holds -----------------------------------------------------------------------

    @invariant()
    def counters_equal_their_sums(self) -> None:
        if not hasattr(self, "session"):
            return
        session = self.session
        unsettled = [one for one in self.offered if not one.settled]
        assert session.unsettled == len(unsettled)
        assert session.memory_bytes == sum(entry.size for entry in session.queue) + sum(
            entry.size for entry in session.express
        )
        if self.persistent:
            durable = [one for one in unsettled if one.seq <= self.durable]
            assert session.queued_bytes == sum(one.message.size() for one in durable)
            waiting = [one for one in unsettled if one.seq > self.durable]
            assert session.storing_bytes == sum(one.message.size() for one in waiting)

    @invariant()
    def the_window_is_kept_and_ids_are_unique(self) -> None:
        if not hasattr(self, "session"):
            return
        session = self.session
        waiting = [one for one in self.offered if one.waiting]
        assert len(waiting) <= session.window
        assert {packet_id: entry.seq for packet_id, entry in session.inflight.items()} == {
            (one.seq - 1) % PACKET_ID_MAX + 1: one.seq for one in waiting
        }

    @invariant()
    def first_arrivals_are_in_order(self) -> None:
        firsts = list(dict.fromkeys(self.client.seen))
        assert firsts == sorted(firsts)

    def teardown(self) -> None:
        """In the end everything accepted has arrived, and QoS 2 exactly once."""
        if not hasattr(self, "session") or not self.persistent:
            return
        self.commit()
        if self.online:
            self.disconnect()
        self.connect(5, 5, False, 0)
        for _ in range(len(self.offered) + 1):
            self.pump(7)
            for one in [one for one in self.offered if one.waiting]:
                while one.waiting:
                    self._answer(one)
        assert all(one.settled for one in self.offered)
        assert self.session.unsettled == 0
        assert self.session.queued_bytes == 0
        assert self.session.settled_seq == self.durable
        assert not self.session.settled
        assert not self.session.released
        for one in self.offered:
            arrivals = self.client.seen.count(one.number)
            assert arrivals == 1 if one.qos == 2 and one.sent else arrivals >= one.sent


def number_of(packet: Packet) -> int:
    return int(packet.payload.split(b":")[0])


def split(data: bytes) -> list[bytes]:
    found = []
    while data:
        length = _whole_packet(bytearray(data))
        found.append(data[:length])
        data = data[length:]
    return found


class TransientSessionAgainstModel(SessionAgainstModel):
    persistent = False


limits = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPersistentSession = SessionAgainstModel.TestCase
TestPersistentSession.settings = limits
TestTransientSession = TransientSessionAgainstModel.TestCase
TestTransientSession.settings = limits
