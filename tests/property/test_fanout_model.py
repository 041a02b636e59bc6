"""Fan-out against a simple model: a list of rows for each vehicle, and which of them is in flight.

The broker is the real one on the simulated network, brought to rest after every step. So the model
knows exactly what each vehicle has got: the row in flight, or the first one whose data is there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.harness.packets import Packet
from tests.simulation.node import RETRY_MS, Peer
from tests.unit.fanout_node import FanoutNode

VINS = ("V1", "V2", "V3")
DATA = ("d1", "d2", "d3")
vins = st.sampled_from(VINS)


@dataclass
class Waiting:
    """A row of the model."""

    number: int
    request_id: str
    data_id: str


@dataclass
class Car:
    """A vehicle as the model knows it."""

    rows: list[Waiting] = field(default_factory=list)
    flying: Waiting | None = None  # the session has it, whether the row is still there or not
    packet: Packet | None = None  # which the client has not answered
    peer: Peer | None = None
    persistent: bool = True


class AgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.node = FanoutNode()
        self.cars = {vin: Car() for vin in VINS}
        self.known: set[str] = set()
        self.number = 0

    # The platform

    @rule(data_id=st.sampled_from(DATA))
    def publish_data(self, data_id: str) -> None:
        self.node.data(data_id, data_id.encode())
        self.known.add(data_id)

    @rule(
        named=st.lists(vins, max_size=4),
        request_id=st.sampled_from(["task_a_1", "task_a_2", "task_b_1"]),
        data_id=st.sampled_from(DATA),
    )
    def trigger(self, named: list[str], request_id: str, data_id: str) -> None:
        self.node.trigger(named, request_id, data_id)
        self.number += 1
        for vin in set(named):
            self.cars[vin].rows.append(Waiting(self.number, request_id, data_id))

    @rule(named=st.lists(vins, max_size=2), request_id=st.sampled_from(["task_a_1", "task_b_1"]))
    def cancel(self, named: list[str], request_id: str) -> None:
        for _ in self.node.fanout.cancel(request_id, named):
            self.node.work()
        for vin in named or VINS:
            car = self.cars[vin]
            is_online = car.peer is not None
            car.rows = [
                row
                for row in car.rows
                if row.request_id != request_id or (is_online and row is car.flying)
            ]

    # Vehicles

    @rule(vin=vins, persistent=st.booleans())
    def connect(self, vin: str, persistent: bool) -> None:
        car = self.cars[vin]
        if car.peer is not None:
            return
        clean = persistent != car.persistent
        if clean:
            car.flying = None
        car.persistent = persistent
        car.peer = self.node.vehicle(vin, clean=clean, expiry_s=3600 if persistent else 0)

    @rule(vin=vins)
    def hang_up(self, vin: str) -> None:
        peer = self.cars[vin].peer
        if peer is not None:
            peer.hang_up()
            self._is_gone(vin)

    def _is_gone(self, vin: str) -> None:
        car = self.cars[vin]
        car.peer = car.packet = None
        if not car.persistent:
            car.flying = None

    @rule(vin=vins)
    def take_over(self, vin: str) -> None:
        car = self.cars[vin]
        if car.peer is not None:
            self._is_gone(vin)
            car.peer = self.node.vehicle(vin, expiry_s=3600 if car.persistent else 0)

    @rule(vin=vins, reason=st.sampled_from([0, 0, 0x83]))
    def acknowledge(self, vin: str, reason: int) -> None:
        car = self.cars[vin]
        if car.peer is not None and car.packet is not None:
            packet, car.packet = car.packet, None
            car.rows = [row for row in car.rows if row is not car.flying]
            car.flying = None
            self.node.acknowledge(car.peer, packet, reason)

    @rule(vin=vins)
    def beat(self, vin: str) -> None:
        peer = self.cars[vin].peer
        if peer is not None:
            self.node.beat(peer)

    # Fate

    @rule()
    def crash(self) -> None:
        self.node.crash()
        for vin in VINS:
            self._is_gone(vin)

    @rule()
    def lose_what_is_known(self) -> None:
        for vin in list(self.node.fanout.dispatcher.awake):
            self.node.fanout.dispatcher.left(vin)
        for vin in VINS:
            self.beat(vin)

    @precondition(lambda self: any(car.packet is not None for car in self.cars.values()))
    @rule(vin=vins)
    def acknowledge_while_the_store_fails(self, vin: str) -> None:
        platform = self.node.platform()  # connected, while that is still possible
        self.node.store.fail_commits = 1
        self.acknowledge(vin, 0)
        self.node.beat(platform)
        self.node.store.fail_commits = 0
        self.node.pass_time(RETRY_MS)
        self.node.pass_time(RETRY_MS)

    # What must hold

    @invariant()
    def each_vehicle_has_what_is_its_turn(self) -> None:
        for vin, car in self.cars.items():
            if car.peer is None:
                continue
            packets = self.node.take(car.peer)
            if car.packet is None and car.flying is None:
                car.flying = next((row for row in car.rows if row.data_id in self.known), None)
            if car.packet is not None or car.flying is None:
                assert packets == [], f"{vin} got more than its turn"
                continue
            (car.packet,) = packets
            assert car.packet.topic == f"agent/{vin}/proxy/request/{car.flying.request_id}"
            assert car.packet.payload == car.flying.data_id.encode()

    @invariant()
    def the_store_has_the_rows(self) -> None:
        for vin, car in self.cars.items():
            expected = [row.request_id for row in car.rows]
            assert self.node.pending(vin) == expected, vin

    def teardown(self) -> None:
        self.node.check()


TestAgainstModel = AgainstModel.TestCase
TestAgainstModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
