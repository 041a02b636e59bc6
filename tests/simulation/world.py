"""A broker, its clients and its fate, all decided by dice with a seed.

The broker is the real one but for its edges: `network.py` has a loop, a commit and connections
which move only when told to. One step of the world is one event: somebody publishes, reads,
answers, comes, goes, is taken over; a commit ends or fails; time passes; the broker crashes and
keeps nothing but the tables of its store. After each step the promises of `checks.py` must hold.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from queuelake.broker.clock import Clock
from queuelake.broker.core import Broker
from queuelake.settings import Limits, Settings, Storage
from queuelake.storage.memory import MemoryStore
from tests.harness import packets as p
from tests.harness.packets import Packet
from tests.harness.reading import parse
from tests.harness.wire import _whole_packet
from tests.simulation import checks
from tests.simulation.client import RETAINED_PREFIX, Client
from tests.simulation.network import FakeLoop, FakeTransport, SlowCommitter
from tests.simulation.wills import WILL_TOPIC, Mortal

NEVER_S = 0xFFFFFFFF
EPOCH_NS = 1_700_000_000_000_000_000
SETTLE_ROUNDS_MAX = 400
# Limits so low that they are met in a short life.
SETTINGS = Settings(
    limits=Limits(memory_bytes_per_client_max=3000, unconfirmed_bytes_per_client_max=1500),
    storage=Storage(group_bytes_max=4000),
)


class World:
    """One life from one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.store = MemoryStore()
        self.steps = 0
        self.crashes = 0
        self.failures = 0
        self.broken: list[str] = []
        self.publishers = [Client("pub4", 4, {}, NEVER_S), Client("pub5", 5, {}, NEVER_S)]
        wanted = {"plain/#": 2, "kept/#": 1, WILL_TOPIC: 2}
        self.plain = [
            Client("sub4", 4, wanted, NEVER_S),
            Client("sub5", 5, wanted, 3600),
            Client("low5", 5, {"plain/+/2/#": 1, "plain/pub5/#": 1, "kept/#": 1}, 3600),
        ]
        shared = {"$share/group/plain/#": 1}
        self.members = [Client("member4", 4, shared, NEVER_S), Client("member5", 5, shared, 3600)]
        self.transient = Client("transient5", 5, {"plain/+/1/#": 0, "plain/+/2/#": 2}, 0)
        self.clients = [*self.publishers, *self.plain, *self.members, self.transient]
        self.mortals: list[Mortal] = []
        self.ghosts: list[FakeTransport] = []  # left by their clients; the broker does not know
        self.stalled: list[FakeTransport] = []
        self.loop = FakeLoop(EPOCH_NS)
        self._start_broker()
        self._events: list[tuple[int, Callable[[], None]]] = [
            (30, self._publish),
            (30, self._read),
            (20, self._answer),
            (10, self._connect),
            (3, self._drop),
            (2, self._say_goodbye),
            (2, self._leave_a_ghost),
            (2, self._ghost_is_noticed),
            (2, self._clean_start),
            (2, self._stall),
            (3, self._mortal_connects),
            (3, self._mortal_dies),
            (1, self._mortal_says_goodbye),
            (5, self._time_passes),
            (2, self._commits_fail),
            (1, self._crash),
        ]

    def _start_broker(self) -> None:
        self.committer = SlowCommitter(self.store, self.loop)
        clock = Clock(self.loop.monotonic_ns, self.loop.now_ns)
        self.broker = Broker(SETTINGS, self.store, self.loop.as_loop(), self.committer, clock)
        self.broker.start()

    def step(self) -> None:
        self.steps += 1
        weights = [weight for weight, _ in self._events]
        (event,) = self.dice.choices([action for _, action in self._events], weights)
        event()
        self._work()

    def _work(self) -> None:
        if self.dice.random() < 0.7:
            self.loop.turn()
        if self.dice.random() < 0.4:
            self.committer.commit()

    def _new_transport(self) -> FakeTransport:
        return FakeTransport(self.broker, self.loop)

    def check(self) -> None:
        wrong = list(self.broken)
        for one in [*self.plain, *self.members]:
            wrong += checks.exactly_once(one)
            wrong += checks.refused_stay_away(one, self.publishers)
        for one in self.plain:
            wrong += checks.order(one, self.publishers, self.failures > 0)
        keep(wrong)

    # --- Events ----------------------------------------------------------------------------------

    def _publish(self) -> None:
        client = self.dice.choice(self.publishers)
        qos = self.dice.choice([1, 2])
        kept = self.dice.random() < 0.25
        prefix = RETAINED_PREFIX if kept else "plain/"
        topic = f"{prefix}{client.name}/{qos}/{self.dice.randrange(2)}"
        for _ in range(self.dice.choice([1, 1, 3])):
            size = self.dice.choice([0, 100, 1000])
            client.publish(topic, qos, kept, size, self.steps)

    def _read(self) -> None:
        self.dice.choice(self.clients).read(self.dice.choice([1, 3, 100]), self.steps)
        for mortal in self.mortals:
            mortal.read()

    def _answer(self) -> None:
        self.dice.choice(self.clients).answer(self.dice.choice([1, 2, 100]))

    def _connect(self) -> None:
        client = self.dice.choice(self.clients)
        if client.transport is None:
            self._open(client)

    def _open(self, client: Client) -> None:
        transport = self._new_transport()
        transport.on_write = lambda data: self._on_write(client, data)
        client.connect(transport)

    def _drop(self) -> None:
        transport = self.dice.choice(self.clients).forget_connection()
        if transport is not None:
            transport.hang_up()

    def _say_goodbye(self) -> None:
        client = self.dice.choice(self.clients)
        if client.online:
            transport = client.forget_connection()
            assert transport is not None
            transport.send(p.disconnect())

    def _leave_a_ghost(self) -> None:
        transport = self.dice.choice(self.clients).forget_connection()
        if transport is not None:
            self.ghosts.append(transport)

    def _ghost_is_noticed(self) -> None:
        if self.ghosts:
            self.ghosts.pop(self.dice.randrange(len(self.ghosts))).hang_up()

    def _clean_start(self) -> None:
        """Only MQTT 5 has a clean start of a session which then lasts."""
        client = self.dice.choice([one for one in self.clients if one.version == 5])
        if client not in self.publishers:
            transport = client.forget_connection()
            if transport is not None:
                self.ghosts.append(transport)
            client.cleaning = True
            self._open(client)

    def _stall(self) -> None:
        """The socket of a client is full; later it is not."""
        if self.stalled:
            self.stalled.pop().connection.resume_writing()
            return
        transport = self.dice.choice(self.clients).transport
        if transport is not None:
            transport.connection.pause_writing()
            self.stalled.append(transport)

    def _mortal_connects(self) -> None:
        number = len(self.mortals) + 1
        mortal = Mortal(number, self.dice.choice([0, 0, 1, 3]), self.dice.choice([0, 2, 60]))
        self.mortals.append(mortal)
        mortal.connect(self._new_transport())

    def _mortal_dies(self) -> None:
        if self.mortals:
            self.dice.choice(self.mortals).die(self.steps)

    def _mortal_says_goodbye(self) -> None:
        if self.mortals:
            self.dice.choice(self.mortals).say_goodbye()

    def _time_passes(self) -> None:
        self.loop.advance(self.dice.choice([10, 300, 1200]))

    def _commits_fail(self) -> None:
        self.failures += 1
        self.store.fail_commits = self.dice.choice([1, 1, 2])

    def _crash(self) -> None:
        """Everything is gone but the tables; a commit under way may have made it."""
        if self.dice.random() < 0.5:
            self.committer.commit()
        self.crashes += 1
        for client in self.clients:
            client.forget_connection()
        for mortal in self.mortals:
            mortal.broker_crashed(self.steps)
        self.ghosts.clear()
        self.stalled.clear()
        tables = self.store.tables
        self.store = MemoryStore()
        self.store.tables = tables
        self.loop = FakeLoop(self.loop.now_ns + 1_000_000_000)
        self._start_broker()

    def _on_write(self, client: Client, data: bytes) -> None:
        """No confirmation leaves the broker for what is not in the store."""
        for packet in split(data, client.version):
            if packet.type in (p.PUBACK, p.PUBREC) and packet.reason_code < 0x80:
                message = client.pending.get(packet.packet_id)
                if message is not None and not message.outcome and not message.retain:
                    # Raised here, it would be caught as an error of this connection.
                    self.broken += checks.unstored(self.store, self.plain, message)

    # --- The end ---------------------------------------------------------------------------------

    def settle(self) -> None:
        """Nothing breaks any more: everybody comes back, everything is delivered."""
        self.store.fail_commits = 0
        for transport in self.ghosts:
            transport.hang_up()
        for mortal in self.mortals:
            mortal.die(self.steps)
        for transport in self.stalled:
            transport.connection.resume_writing()
        quiet = 0
        for _ in range(SETTLE_ROUNDS_MAX):
            busy = self._settle_round()
            self.check()
            quiet = 0 if busy else quiet + 1
            if quiet > 20:  # five seconds: the longest delay of a will
                break
        else:
            raise AssertionError("the world does not come to rest")
        self.check_end()

    def _settle_round(self) -> bool:
        self.steps += 1
        busy = False
        for client in self.clients:
            if client.transport is None:
                self._open(client)
                busy = True
            busy = client.read(1000, self.steps) > 0 or busy
            busy = bool(client.owed) or busy
            client.answer(1000)
        return self._rest() or busy

    def _rest(self) -> bool:
        """Work until there is nothing left but to wait; tells whether there was anything."""
        self.loop.turn()
        busy = self.committer.is_busy()
        self.committer.commit()
        self.loop.advance(250)
        self.loop.run_until_idle()
        return busy

    def check_end(self) -> None:
        stuck = {client.name: client.pending for client in self.clients if client.pending}
        assert not stuck, f"publishes without an answer: {stuck}"
        wrong = checks.shared_is_complete(self.members, self.publishers)
        wrong += checks.store_is_whole(self.store)
        for one in self.plain:
            wrong += checks.complete(one, self.publishers)
            wrong += checks.retained_at_subscribe(one, self.publishers)
        found = self._read_retained()
        wrong += checks.retained_values(found, self.publishers, self.failures > 0)
        for one in [one for one in self.plain if WILL_TOPIC in one.filters]:
            arrived = [got.number for got in one.received if got.topic == WILL_TOPIC]
            for mortal in self.mortals:
                wrong.append(mortal.mistake(arrived.count(mortal.number), one.subscribed_at))
        keep([one for one in wrong if one])
        left = [len(self.store.tables[table]) for table in (4, 5, 6)]
        assert left == [0, 0, 0], f"all is settled, but rows, chunks, references are {left}"

    def _read_retained(self) -> dict[str, int]:
        reader = Client("reader", 5, {"kept/#": 0}, 0)
        self._open(reader)
        for _ in range(20):
            self._settle_round()
            reader.read(1000, self.steps)
        return {one.topic: one.number for one in reader.received}


def keep(broken: list[str]) -> None:
    assert not broken, "broken promises:\n" + "\n".join(broken)


def split(data: bytes, version: int) -> list[Packet]:
    found = []
    while data:
        length = _whole_packet(bytearray(data))
        assert length, "the broker writes whole packets"
        found.append(parse(data[:length], version))
        data = data[length:]
    return found
