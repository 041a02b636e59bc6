"""Devices, those who write to them, and the fate of their broker, decided by dice with a seed.

As in `world.py` the broker is the real one; loop, commits and wires move when they are told to. The
promises: an acknowledged write is delivered unless a later one of its key is, a refused one never;
a sequence means one entry for ever; they rise within a connection; no more is out than a batch.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from queuelake.ecq_settings import EcqConfig, RejectPolicy
from queuelake.settings import Settings
from queuelake.storage.check import problems
from tests.harness import packets as p
from tests.harness.packets import Packet
from tests.simulation.node import Node, Peer

BATCH = 3
OWNERS = ("o4", "o5", "kept5")
KEYS = ("a", "b", "c", "d", "e/f")
POLICIES: tuple[RejectPolicy, ...] = ("advance", "advance", "dlq", "retry")
STEPS = 160
SETTLE_ROUNDS_MAX = 60

UNKNOWN = "unknown"
ACKNOWLEDGED = "acknowledged"
REFUSED = "refused"


@dataclass
class Write:
    owner: str
    key: str
    outcome: str = UNKNOWN


@dataclass
class Owner:
    """One device; what it has received is remembered over its connections."""

    name: str
    version: int
    expiry_s: int
    peer: Peer | None = None
    owed: list[int] = field(default_factory=list)  # packet ids to be acknowledged
    was_rewound: bool = False  # on this connection
    last_seq: int = 0  # likewise
    last_of_key: dict[str, int] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)  # what each sequence stood for


@dataclass
class Writer:
    version: int
    peer: Peer | None = None
    pending: dict[int, int] = field(default_factory=dict)  # number of the write by packet id
    last_id: int = 0


class World:
    """One life from one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.policy: RejectPolicy = self.dice.choice(POLICIES)
        config = EcqConfig(reader_batch_size=BATCH, reject_policy=self.policy)
        self.node = Node(Settings(ecq=config))
        self.writes: list[Write] = []
        self.owners = {
            name: Owner(name, 4 if name == "o4" else 5, 3600 if name == "kept5" else 0)
            for name in OWNERS
        }
        self.writers = [Writer(5), Writer(4)]
        self._events: list[tuple[int, Callable[[], None]]] = [
            (40, self._write),
            (30, self._read),
            (30, self._answer),
            (12, self._connect),
            (4, self._drop),
            (4, self._time_passes),
            (2, self._commits_fail),
            (2, self._rewind),
            (1, self._crash),
        ]

    def step(self) -> None:
        weights = [weight for weight, _ in self._events]
        (event,) = self.dice.choices([action for _, action in self._events], weights)
        event()
        if self.dice.random() < 0.7:
            self.node.loop.turn()
        if self.dice.random() < 0.4:
            self.node.committer.commit()

    # Events

    def _write(self) -> None:
        writer = self.dice.choice(self.writers)
        if writer.peer is None:
            writer.peer = self._open(f"writer{writer.version}", writer.version, 0)
        for _ in range(self.dice.choice([1, 1, 4])):
            write = Write(self.dice.choice(OWNERS), self.dice.choice(KEYS))
            number = len(self.writes)
            self.writes.append(write)
            writer.last_id = writer.last_id % 60_000 + 1
            writer.pending[writer.last_id] = number
            topic = f"$ECQ/w/{write.owner}/{write.key}"
            writer.peer.publish(topic, b"%d" % number, 1, writer.last_id)

    def _connect(self) -> None:
        owner = self.owners[self.dice.choice(OWNERS)]
        if owner.peer is None or self.dice.random() < 0.2:  # the second takes the first one over
            self._leave(owner)
            owner.peer = self._open(owner.name, owner.version, owner.expiry_s)
            items: list[p.Subscription] = [(f"$ECQ/{owner.name}/#", 1)]
            owner.peer.transport.send(p.subscribe(1, items, version=owner.version))

    def _open(self, name: str, version: int, expiry_s: int) -> Peer:
        peer = Peer(self.node, name, version)
        peer.connect(clean=expiry_s == 0, expiry_s=expiry_s)
        return peer

    def _leave(self, owner: Owner) -> None:
        owner.peer = None
        owner.owed.clear()
        owner.last_seq = 0
        owner.was_rewound = False

    def _drop(self) -> None:
        if self.dice.random() < 0.3:
            writer = self.dice.choice(self.writers)
            if writer.peer is not None:
                writer.peer.transport.hang_up()
                writer.peer = None
                writer.pending.clear()
            return
        owner = self.owners[self.dice.choice(OWNERS)]
        if owner.peer is not None:
            owner.peer.transport.hang_up()
            self._leave(owner)

    def _time_passes(self) -> None:
        self.node.loop.advance(self.dice.choice([100, 1200, 6_000, 31_000]))

    def _commits_fail(self) -> None:
        self.node.store.fail_commits += self.dice.choice([1, 1, 2])

    def _rewind(self) -> None:
        owner = self.owners[self.dice.choice(OWNERS)]
        if owner.peer is not None:
            body = self.dice.choice([b'{"to": "first"}', b'{"ts": 0}', b'{"seqno": 1}'])
            owner.peer.publish(f"$ECQ/{owner.name}/$rewind", body, 1, 7)
            owner.was_rewound = True

    def _crash(self) -> None:
        self.node.crash()
        for owner in self.owners.values():
            self._leave(owner)
        for writer in self.writers:
            writer.peer = None
            writer.pending.clear()
        self._check_store()

    # Clients

    def _read(self) -> None:
        for writer in self.writers:
            self._read_answers(writer)
        for owner in self.owners.values():
            if self.dice.random() < 0.6:
                self._read_deliveries(owner)

    def _read_answers(self, writer: Writer) -> None:
        if writer.peer is None:
            return
        for packet in writer.peer.take_all():
            if packet.type == p.PUBACK:
                write = self.writes[writer.pending.pop(packet.packet_id)]
                write.outcome = REFUSED if packet.reason_code >= 0x80 else ACKNOWLEDGED
        if writer.peer.transport.closed_by_broker():
            writer.peer = None
            writer.pending.clear()

    def _read_deliveries(self, owner: Owner) -> None:
        if owner.peer is None:
            return
        for packet in owner.peer.take_all():
            if packet.type == p.PUBLISH:
                self._receive(owner, packet)
        if owner.peer.transport.closed_by_broker():
            self._leave(owner)

    def _receive(self, owner: Owner, packet: Packet) -> None:
        key = packet.topic.removeprefix(f"$ECQ/{owner.name}/")
        number = int(packet.payload)
        write = self.writes[number]
        assert (write.owner, write.key) == (owner.name, key)
        assert write.outcome != REFUSED, f"{owner.name}: {number} was refused, and is there"
        assert not packet.dup
        owner.last_of_key[key] = number
        owner.owed.append(packet.packet_id)
        if owner.version == 5:
            ((name, value),) = packet.properties["user_property"]
            assert name == "ecq-seqno"
            seq = int(value)
            assert owner.numbers.setdefault(seq, number) == number, f"{seq} means two entries"
            if not owner.was_rewound and self.policy == "advance":
                assert seq > owner.last_seq, f"{owner.name}: {seq} after {owner.last_seq}"
            owner.last_seq = seq
        is_plain = self.policy == "advance" and not owner.was_rewound
        assert len(owner.owed) <= BATCH or not is_plain

    def _answer(self) -> None:
        owner = self.owners[self.dice.choice(OWNERS)]
        if owner.peer is None or not owner.owed:
            return
        count = self.dice.choice([1, 2, 9])
        self.dice.shuffle(owner.owed)
        for packet_id in owner.owed[:count]:
            is_refused = owner.version == 5 and self.dice.random() < 0.1
            reason = 0x80 if is_refused else None
            owner.peer.transport.send(p.acknowledge(p.PUBACK, packet_id, reason))
        del owner.owed[:count]

    # The end

    def settle(self) -> None:
        """Everything works again, and everybody reads to the end."""
        self.node.store.fail_commits = 0
        quiet = 0
        for _ in range(SETTLE_ROUNDS_MAX):
            self.node.pass_time(1_200)
            for writer in self.writers:
                self._read_answers(writer)
            busy = False
            for owner in self.owners.values():
                if owner.peer is None:
                    owner.peer = self._open(owner.name, owner.version, owner.expiry_s)
                    items: list[p.Subscription] = [(f"$ECQ/{owner.name}/#", 1)]
                    owner.peer.transport.send(p.subscribe(1, items, version=owner.version))
                    busy = True
                self._read_deliveries(owner)
                busy = busy or bool(owner.owed)
                for packet_id in owner.owed:
                    assert owner.peer is not None
                    owner.peer.acknowledge(p.PUBACK, packet_id)
                owner.owed.clear()
            quiet = 0 if busy else quiet + 1
            if quiet == 8:  # longer than the first retry of what was refused
                return
        raise AssertionError("the owners never come to rest")

    def check(self) -> None:
        self._check_store()
        for owner in self.owners.values():
            for key in KEYS:
                numbers = [
                    number
                    for number, write in enumerate(self.writes)
                    if (write.owner, write.key) == (owner.name, key)
                ]
                kept = [one for one in numbers if self.writes[one].outcome == ACKNOWLEDGED]
                if kept:
                    last = owner.last_of_key.get(key, -1)
                    assert last >= kept[-1], f"{owner.name}/{key}: {last}, written {kept[-1]}"

    def _check_store(self) -> None:
        with self.node.store.view() as view:
            assert problems(view, 10_000) == []


def run_seed(seed: int, steps: int = STEPS) -> None:
    world = World(seed)
    for _ in range(steps):
        world.step()
    world.settle()
    world.check()
