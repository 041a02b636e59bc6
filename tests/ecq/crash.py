"""Mailboxes under SIGKILL, over many lives of a broker.

A producer writes in bursts, of which the broker has answered only a part when it is killed; owners
read, acknowledge some of it, and come back. What must be true in every life:

- A write which was confirmed is delivered, or a later one of its key, until it is acknowledged.
- A value older than a confirmed one of its key never comes after a restart: no ghosts.
- One sequence number belongs to one write, for ever.
- The tables hold one payload for each index row, and at most one of each key.
- Positions never go back; what was acknowledged before the next came never comes again.

    python -m tests.ecq.crash --kills 200
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
from tests.ecq.client import SUCCESS, Delivery, Device
from tests.ecq.control import Mailboxes
from tests.ecq.tables import row_counts
from tests.harness import packets as p
from tests.harness.broker import BrokerProcess

OWNERS = 3
KEYS = 6
STEPS_MAX = 25
BURST_MAX = 30
QUIET_S = 0.5
ROWS_MAX = 100_000


@dataclass
class Story:
    """What one owner may expect; a payload is `{key}:{number}`, and numbers go up."""

    owner: str
    confirmed: dict[str, int] = field(default_factory=dict)  # key -> last confirmed number
    acknowledged: dict[str, int] = field(default_factory=dict)  # key -> highest acknowledged
    numbers: dict[int, int] = field(default_factory=dict)  # sequence number -> number
    sealed: set[int] = field(default_factory=set)
    position: int = 0
    delivered: int = 0

    def take(self, delivery: Delivery) -> tuple[str, int]:
        key, _, text = delivery.payload.partition(":")
        number = int(text)
        assert delivery.key == key, f"{delivery.payload} came as {delivery.topic}"
        known = self.numbers.setdefault(delivery.seqno, number)
        assert known == number, f"{self.owner}: {delivery.seqno} is {known} and {number}"
        assert number not in self.sealed, f"{self.owner}: {number} was acknowledged, and came again"
        self.delivered += 1
        return key, number

    def acknowledge(self, delivery: Delivery) -> None:
        key, _, text = delivery.payload.partition(":")
        self.acknowledged[key] = max(int(text), self.acknowledged.get(key, 0))

    def required(self) -> dict[str, int]:
        """What must come: confirmed, and nothing as new of its key was acknowledged."""
        return {
            key: number
            for key, number in self.confirmed.items()
            if self.acknowledged.get(key, 0) < number
        }


class Reader:
    """The owner of one mailbox, in one life of the broker."""

    def __init__(self, broker: BrokerProcess, story: Story, one_at_a_time: bool) -> None:
        self.story = story
        self.device = Device(broker.client(timeout=15.0), story.owner)
        self.device.wire.connect(story.owner)
        self.held: list[Delivery] = []
        self._one_at_a_time = one_at_a_time
        self._last: int | None = None

    def listen(self) -> None:
        assert self.device.listen() == 1

    def read(self, timeout_s: float = 0.01) -> tuple[str, int] | None:
        delivery = self.device.poll(timeout_s, ack=False)
        if delivery is None:
            return None
        if self._one_at_a_time and self._last is not None:
            self.story.sealed.add(self._last)  # the position was stored before this was fetched
            self._last = None
        self.held.append(delivery)
        return self.story.take(delivery)

    def acknowledge(self, delivery: Delivery) -> None:
        self.held.remove(delivery)
        self.story.acknowledge(delivery)
        self.device.wire.acknowledge(p.PUBACK, delivery.packet.packet_id)
        self._last = int(delivery.payload.partition(":")[2])

    def audit(self) -> None:
        """Nobody writes: everything which must come does, and nothing which is out of date."""
        required, confirmed, seen = self.story.required(), dict(self.story.confirmed), set()
        last = 0
        while (got := self.read(QUIET_S)) is not None:
            key, number = got
            owner, seqno = self.story.owner, self.held[-1].seqno
            assert seqno > last, f"{owner}: {seqno} came after {last}"
            assert key not in seen, f"{owner}: two entries of {key}"
            assert number >= confirmed.get(key, 0), f"{owner}: a ghost, {number} of {key}"
            assert number >= required.pop(key, 0)
            seen.add(key)
            last = seqno
            self.acknowledge(self.held[-1])
        assert not required, f"{self.story.owner}: {required} did not come"


class Crashes:
    """One run; `broker` must be started."""

    def __init__(self, broker: BrokerProcess, seed: int, *, one_at_a_time: bool) -> None:
        self._broker = broker
        self._dice = random.Random(seed)
        self._one_at_a_time = one_at_a_time
        self._number = 0
        self.stories = [Story(f"owner-{index}") for index in range(OWNERS)]

    def run(self, kills: int) -> None:
        for life in range(kills):
            self._live(audited=life % OWNERS)
            self._broker.restart()
        self._check_tables()
        for story in self.stories:
            reader = Reader(self._broker, story, self._one_at_a_time)
            reader.listen()
            reader.audit()
            reader.device.wire.close()

    def _live(self, audited: int) -> None:
        self._check_tables()
        readers = [Reader(self._broker, one, self._one_at_a_time) for one in self.stories]
        producer = Device(self._broker.client(timeout=15.0), "producer")
        producer.wire.connect("producer")
        for index, reader in enumerate(readers):
            reader.listen()
            if index == audited:
                reader.audit()
        for _ in range(self._dice.randrange(STEPS_MAX)):
            self._step(producer, self._dice.choice(readers))
        burst = self._dice.randrange(1, BURST_MAX)
        self._write(producer, burst, answers=self._dice.randrange(burst))
        self._broker.kill()
        for reader in readers:
            reader.device.wire.close()
        producer.wire.close()

    def _step(self, producer: Device, reader: Reader) -> None:
        match self._dice.choices(("write", "read", "acknowledge"), (3, 5, 4))[0]:
            case "write":
                burst = self._dice.randrange(1, 6)
                self._write(producer, burst, answers=burst)
            case "read":
                reader.read()
            case _ if reader.held:
                reader.acknowledge(self._dice.choice(reader.held))

    def _write(self, producer: Device, count: int, answers: int) -> None:
        """Send so many writes at once, and wait for the first answers only."""
        sent: list[tuple[Story, str, int]] = []
        data = b""
        for _ in range(count):
            self._number += 1
            story, key = self._dice.choice(self.stories), f"k{self._dice.randrange(KEYS)}"
            sent.append((story, key, self._number))
            data += p.publish(
                f"$ECQ/w/{story.owner}/{key}",
                f"{key}:{self._number}",
                qos=1,
                packet_id=producer.wire.next_packet_id(),
            )
        producer.wire.send(data)
        for story, key, number in sent[:answers]:
            assert producer.wire.expect(p.PUBACK).reason_code == SUCCESS
            story.confirmed[key] = number

    def _check_tables(self) -> None:
        index, payloads = row_counts(self._broker, "ecq_index", "ecq_payload")
        with read_only(self._broker.data_dir) as view:
            wrong = problems(view, ROWS_MAX)
        assert wrong == [], "the log of writes agrees with what was written"
        assert index == payloads, f"{index} index rows, {payloads} payloads"
        assert index <= OWNERS * KEYS, f"{index} entries of {OWNERS * KEYS} keys"
        for story in self.stories:
            position = Mailboxes(self._broker).acked(story.owner)
            assert position >= story.position, f"{story.owner}: {position} after {story.position}"
            story.position = position


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ecq.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how often to kill (default 200)")
    parser.add_argument("--seed", type=int, default=1, help="dice for loads and moments")
    parser.add_argument("--batch", type=int, default=1, help="reader_batch_size (default 1)")
    chosen = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="queuelake-ecq-"))
    settings = {"http.enabled": False, "ecq.reader_batch_size": chosen.batch}
    broker = BrokerProcess(directory, settings).start()
    crashes = Crashes(broker, chosen.seed, one_at_a_time=chosen.batch == 1)
    try:
        crashes.run(chosen.kills)
    finally:
        broker.close()
    delivered = sum(story.delivered for story in crashes.stories)
    print(f"mailboxes: {chosen.kills} kills, {delivered} deliveries, no promise broken")
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
