"""The worlds of mailboxes and vehicles once more, where things grow old, and people step in.

Garbage collection runs at any time, beside commits which fail and crashes; clients unsubscribe and
subscribe again; operators call requests off. What may be lost so is not looked for at the end: here
the tables have to fit together, and no sequence may mean two entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from queuelake.control_sdv import SdvCancelled
from queuelake.ecq_settings import EcqConfig
from queuelake.settings import Settings
from queuelake.storage import api
from queuelake.storage import ecq_tables as t
from tests.harness import packets as p
from tests.simulation import ecq_world, fanout_world
from tests.simulation.ecq_world import BATCH, OWNERS
from tests.simulation.node import Node
from tests.unit.fanout_node import FanoutNode

STEPS = 250
LEAP_MS = 10_000


class AgingMailboxes(ecq_world.World):
    """Entries and positions live for seconds, and mailboxes may be full."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        config = EcqConfig(
            reader_batch_size=BATCH,
            reject_policy=self.policy,
            data_retention=self.dice.choice(["4s", "20s"]),
            state_retention=self.dice.choice(["30d", "10s"]),
            max_keys_per_queue=self.dice.choice([0, 0, 3]),
            max_bytes_per_queue=self.dice.choice([0, 0, 12]),
        )
        self.node = Node(Settings(ecq=config))
        self._events += [(6, self._collect), (3, self._leave_or_return)]
        self._given: dict[bytes, bytes] = {}  # by owner and sequence

    def step(self) -> None:
        super().step()
        rows = self.node.store.tables[api.ECQ_INDEX]
        assert len(rows) == len(self.node.store.tables[api.ECQ_PAYLOAD])
        for key, value in rows.items():
            assert self._given.setdefault(key, value) == value, f"{key.hex()} means two entries"

    def _collect(self) -> None:
        self.node.broker.mailboxes.collect_garbage()

    def _leave_or_return(self) -> None:
        owner = self.owners[self.dice.choice(OWNERS)]
        if owner.peer is None:
            return
        name = f"$ECQ/{owner.name}/#"
        owner.was_rewound = True  # what it had in hand may come again
        if self.dice.random() < 0.5:
            packet = p.unsubscribe(2, [name], version=owner.version)
        else:
            packet = p.subscribe(1, [(name, 1)], version=owner.version)
        owner.peer.transport.send(packet)

    def check(self) -> None:
        self._check_store()
        for _ in range(2):  # entries, then what is left of their owners
            self.node.pass_time(LEAP_MS * 3)
            self._collect()
            self.node.pass_time(1_000)
        tables = self.node.store.tables
        assert not tables[api.ECQ_INDEX]
        highest = {key[: t.DIGEST_BYTES]: key for key in sorted(self._given)}
        for owner, value in tables[api.ECQ_SEQNO].items():
            assert t.index_key(owner, t.read_numbers(value)[0]) > highest.get(owner, b"")


class AgingFanout(fanout_world.FanoutWorld):
    """Rows live for seconds or are called off."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        settings: dict[str, Any] = {
            "same_request": self.dice.choice(["append", "replace", "ignore"]),
            "on_reject": self.dice.choice(["done", "retry", "dlq"]),
            "data_retention": self.dice.choice(["3s", "7d"]),
            "max_pending_per_vehicle": self.dice.choice([0, 0, 2]),
            "keep_referenced": self.dice.random() < 0.7,
        }
        self.node = FanoutNode(**settings)
        self.node.fanout.storing.rows_per_slice = self.rows_per_slice
        self._calling_off: list[Iterator[SdvCancelled]] = []
        self.events += [
            (4, self._collect),
            (3, self._leave_or_return),
            (4, self._call_off),
            (8, self._go_on),
        ]

    def check(self) -> None:
        # A row which is too old, or a newer one of which was taken back, may be overtaken.
        wrong = [one for one in self.ledger.wrong if "of the same platform" not in one]
        found = [one for one in self.log.found if "under way already" not in one]
        assert not wrong + found, f"step {self.steps}: " + "\n".join(wrong + found)

    def _collect(self) -> None:
        self.node.fanout.collect_garbage()

    def _leave_or_return(self) -> None:
        vehicle = self.dice.choice(self.vehicles)
        if not vehicle.is_online or vehicle.transport is None:
            return
        if self.dice.random() < 0.5:
            topic = f"agent/{vehicle.name}/proxy/request/+"
            vehicle.transport.send(p.unsubscribe(2, [topic], version=vehicle.version))
        else:
            vehicle.subscribe()

    def _call_off(self) -> None:
        names = [one.name for one in self.vehicles]
        vins = self.dice.sample(names, self.dice.randint(0, 2))
        request_id = f"task_a_{self.dice.randint(1, 3)}"
        self._calling_off.append(self.node.fanout.cancel(request_id, vins))

    def _go_on(self) -> None:
        """Some slices may be long after the one before, or never come."""
        if self._calling_off:
            one = self.dice.choice(self._calling_off)
            if next(one, None) is None:
                self._calling_off.remove(one)

    def _crash(self) -> None:
        self._calling_off.clear()
        super()._crash()

    def _takes_on(self) -> bool:
        for vehicle in self.vehicles:
            if vehicle.is_online and not self.node.fanout.inspect(vehicle.name).subscribed:
                vehicle.subscribe()
        return super()._takes_on()

    def _check_end(self) -> None:
        self.check()
        self.node.check()
        if self.node.fanout.config.data_retention_ms < LEAP_MS:
            self.node.leap(LEAP_MS)  # data of some rows was collected before them
            self._collect()
            self.node.leap(1)
            assert self.node.rows() == self.node.fanout.status().unique_payloads == 0
            self.node.check()
        assert self.node.fanout.status().remaining_messages == 0


def run_mailboxes(seed: int, steps: int = STEPS) -> None:
    world = AgingMailboxes(seed)
    for _ in range(steps):
        world.step()
    world.settle()
    world.check()


def run_fanout(seed: int, steps: int = STEPS) -> None:
    AgingFanout(seed).live(steps)
