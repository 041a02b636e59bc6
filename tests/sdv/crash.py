"""Vehicle fan-out under SIGKILL, over many lives of a broker.

A platform triggers requests for a fleet, most of which is away, and the broker is killed while it
stores a trigger. Vehicles with and without a session hold, acknowledge, and come back. What must
be true in every life:

- A trigger which was confirmed has a row for each of its vehicles, until that acknowledges.
- A vehicle gets its requests in the order of the triggers, one at a time.
- What was acknowledged before the next came never comes again.

    python -m tests.sdv.crash --kills 200
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from queuelake.storage.check import problems
from queuelake.storage.lmdb_store import read_only
from tests.ecq.client import SUCCESS, Delivery
from tests.ecq.tables import row_counts
from tests.harness import packets as p
from tests.harness.broker import BrokerProcess
from tests.harness.packets import Packet
from tests.queues.client import wait_until
from tests.sdv.client import SESSION, TRIGGER, Platform, Vehicle, request_of
from tests.sdv.control import Fanout

AWAY = 300
AWAKE = 4
STEPS_MAX = 12
PIPELINED_MAX = 6
QUIET_S = 0.7
ROWS_MAX = 1_000_000


@dataclass
class Story:
    """What one vehicle may expect; a request is `task_a_{number}`, and numbers go up."""

    vin: str
    keeps_session: bool
    confirmed: list[int] = field(default_factory=list)
    acknowledged: set[int] = field(default_factory=set)
    sealed: set[int] = field(default_factory=set)
    delivered: int = 0

    def required(self) -> list[int]:
        return [number for number in self.confirmed if number not in self.acknowledged]


class Driver:
    """One vehicle, in one life of the broker."""

    def __init__(self, broker: BrokerProcess, story: Story) -> None:
        self.story = story
        self.vehicle = Vehicle(broker.client(timeout=15.0), story.vin)
        fields = SESSION if story.keeps_session else {}
        self.vehicle.wire.connect(story.vin, **fields)
        self.vehicle.listen()
        self.held: Delivery | None = None
        self._last = 0
        self._answered: int | None = None

    def read(self, timeout_s: float = 0.02) -> int | None:
        delivery = self.vehicle.poll(timeout_s, ack=False)
        if delivery is None:
            return None
        vin, number = self.story.vin, number_of(delivery)
        assert self.held is None, f"{vin}: {number} came while one was in flight"
        assert number not in self.story.sealed, f"{vin}: {number} was done, and came again"
        assert number > self._last, f"{vin}: {number} came after {self._last}"
        if self._answered is not None:
            self.story.sealed.add(self._answered)
        self.held, self._last = delivery, number
        self.story.delivered += 1
        return number

    def acknowledge(self) -> None:
        if self.held is not None:
            self._answered = number_of(self.held)
            self.story.acknowledged.add(self._answered)
            self.vehicle.wire.acknowledge(p.PUBACK, self.held.packet.packet_id)
            self.held = None

    def audit(self) -> None:
        """Nobody triggers: everything which must come does."""
        required = set(self.story.required())
        while (number := self.read(QUIET_S)) is not None:
            required.discard(number)
            self.acknowledge()
        assert not required, f"{self.story.vin}: {sorted(required)} did not come"


class Crashes:
    """One run; `broker` must be started."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self._broker = broker
        self._dice = random.Random(seed)
        self._number = 0
        self._confirmed = 0
        self._away = [f"away-{index}" for index in range(AWAY)]
        self.stories = [Story(f"car-{index}", index % 2 == 0) for index in range(AWAKE)]

    def run(self, kills: int) -> None:
        for life in range(kills):
            self._live(audited=life % AWAKE)
            self._broker.restart()
        self._check_rows()
        for story in self.stories:
            driver = Driver(self._broker, story)
            driver.audit()
            driver.vehicle.wire.close()

    def _live(self, audited: int) -> None:
        self._check_rows()
        drivers = [Driver(self._broker, story) for story in self.stories]
        drivers[audited].audit()
        platform = Platform(self._broker.client(timeout=15.0), "platform")
        platform.wire.connect("platform")
        assert platform.data("d", "x") == SUCCESS
        for _ in range(self._dice.randrange(STEPS_MAX)):
            driver = self._dice.choice(drivers)
            match self._dice.choices(("trigger", "read", "acknowledge"), (1, 5, 4))[0]:
                case "trigger":
                    self._trigger(platform, 1, answers=1)
                case "read":
                    driver.read()
                case _:
                    driver.acknowledge()
        pipelined = self._dice.randrange(1, PIPELINED_MAX)
        self._trigger(platform, pipelined, answers=self._dice.randrange(pipelined))
        self._broker.kill()
        platform.wire.close()
        for driver in drivers:
            driver.vehicle.wire.close()

    def _trigger(self, platform: Platform, count: int, answers: int) -> None:
        """Send so many triggers at once, and wait for the first answers only."""
        vins = [*self._away, *(story.vin for story in self.stories)]
        ids = ",".join(f'"{vin}"' for vin in vins)
        numbers = range(self._number + 1, self._number + count + 1)
        self._number += count
        platform.wire.send(
            b"".join(
                p.publish(
                    TRIGGER,
                    f'{{"ids":[{ids}],"request_id":"task_a_{number}","data_id":"d"}}',
                    qos=1,
                    packet_id=platform.wire.next_packet_id(),
                )
                for number in numbers
            )
        )
        for number in numbers[:answers]:
            answer: Packet = platform.wire.expect(p.PUBACK)
            assert answer.reason_code == SUCCESS
            self._confirmed += 1
            for story in self.stories:
                story.confirmed.append(number)

    def _check_rows(self) -> None:
        """Of the vehicles which are away: every confirmed row, and at most what was sent."""
        with read_only(self._broker.data_dir) as view:
            wrong = problems(view, ROWS_MAX)
        assert wrong == [], "the log of rows agrees with the rows"
        [rows] = row_counts(self._broker, "sdv_fanout_ids")
        assert rows >= self._confirmed * AWAY, f"{rows} rows of {self._confirmed} triggers"
        assert rows <= self._number * (AWAY + AWAKE)
        fanout = Fanout(self._broker)
        # What is left of a trigger which was never confirmed may go, but counts for nobody.
        wait_until(lambda: row_counts(self._broker, "sdv_fanout_ids") == [fanout.remaining()])
        assert fanout.remaining() >= self._confirmed * AWAY
        vin = self._dice.choice(self._away)
        assert len(fanout.pending(vin)) >= min(self._confirmed, 1000)


def number_of(delivery: Delivery) -> int:
    return int(request_of(delivery).rpartition("_")[2])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sdv.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how often to kill (default 200)")
    parser.add_argument("--seed", type=int, default=1, help="dice for loads and moments")
    chosen = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="queuelake-sdv-"))
    broker = BrokerProcess(directory, {"http.enabled": False}).start()
    crashes = Crashes(broker, chosen.seed)
    try:
        crashes.run(chosen.kills)
    finally:
        broker.close()
    delivered = sum(story.delivered for story in crashes.stories)
    print(f"fan-out: {chosen.kills} kills, {delivered} deliveries, no promise broken")
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
