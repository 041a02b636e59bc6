"""Writers and readers around a broker which is killed with SIGKILL again and again.

Two writers (3.1.1 and 5) publish numbered messages with QoS 1 and 2, plain and retained. Four
sessions subscribe: two stay online and reconnect, two left before the first message. Afterwards:

- nothing acknowledged is missing; QoS 2 arrives exactly once, QoS 1 at least once;
- per writer and topic the first arrivals are in the order of publishing;
- after every restart each retained value is at least as new as the last acknowledged one;
- every session is still there (a client which had a CONNACK sees session present);
- a will which was waiting for its delay when the broker died is published, once.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.crash.durable_client import DurableClient, Outgoing
from tests.harness import packets as p
from tests.harness.broker import BrokerProcess
from tests.harness.packets import Will

TOPICS_PER_KIND = 3
FINISH_TIMEOUT_S = 60.0
DRAIN_QUIET_S = 8.0
WILL_DELAY_S = 1
KILL_AFTER_S = (0.03, 0.7)
FILTERS: list[p.Subscription] = [("crash/+/plain/#", 2), ("crash/wills/#", 2)]


@dataclass
class Outcome:
    """What happened; `violations` is empty when every promise was kept."""

    kills: int = 0
    acknowledged: int = 0
    delivered: int = 0
    wills: int = 0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.acknowledged} messages acknowledged, "
            f"{self.delivered} delivered, {self.wills} wills, {len(self.violations)} violations"
        )


class Workload:
    """One run; `broker` must be started, with a fixed MQTT port."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self._broker = broker
        self._dice = random.Random(seed)
        port = broker.mqtt_port
        self._writers = [
            DurableClient(port, f"writer{v}", v, source=self._messages(f"w{v}")) for v in (4, 5)
        ]
        self._online = [DurableClient(port, f"on{v}", v, subscriptions=FILTERS) for v in (4, 5)]
        self._offline = [DurableClient(port, f"off{v}", v, subscriptions=FILTERS) for v in (4, 5)]
        self._wills: list[str] = []
        self._outcome = Outcome()

    def run(self, kills: int, report: Callable[[str], None] = lambda line: None) -> Outcome:
        for reader in [*self._online, *self._offline]:
            reader.start()
            assert reader.subscribed.wait(10.0), f"{reader.client_id} could not subscribe"
        for reader in self._offline:
            reader.stop()
        for writer in self._writers:
            writer.start()
        for number in range(1, kills + 1):
            self._one_life(number)
            report(f"kill {number}: {sum(len(w.acknowledged) for w in self._writers)} acknowledged")
        self._settle()
        self._check_deliveries()
        self._check_retained({}, exact=True)
        clients = [*self._writers, *self._online, *self._offline]
        for client in clients:
            client.stop()
            self._outcome.violations += client.violations
        return self._outcome

    def _messages(self, writer: str) -> Iterator[Outgoing]:
        """Numbered messages without end: the number restarts with each topic, not with time."""
        numbers: dict[str, Iterator[int]] = {}
        while True:
            kind, qos = self._dice.choice(("plain", "plain", "kept")), self._dice.choice((1, 2))
            topic = f"crash/{writer}/{kind}/{qos}/{self._dice.randrange(TOPICS_PER_KIND)}"
            number = next(numbers.setdefault(topic, itertools.count()))
            # Now and then a message longer than a chunk of the store.
            size = 50_000 if self._dice.random() < 0.002 else self._dice.randrange(200)
            yield Outgoing(topic, b"%d:" % number + bytes(size), qos, retain=kind == "kept")

    def _one_life(self, number: int) -> None:
        time.sleep(self._dice.uniform(*KILL_AFTER_S))
        if number % 3 == 0:
            self._leave_pending_will(number)
        self._broker.kill()
        self._outcome.kills += 1
        acknowledged = self._last_acknowledged()
        self._broker.start()
        self._check_retained(acknowledged)

    def _leave_pending_will(self, number: int) -> None:
        will = Will(
            f"crash/wills/{number}",
            b"%d:" % number,
            qos=2,
            properties={"will_delay_interval": WILL_DELAY_S},
        )
        expiry = {"session_expiry_interval": 3600}
        dying = self._broker.client(5)
        dying.connect(f"dying{number}", will=will, properties=expiry)
        dying.close()
        time.sleep(0.1)
        with self._broker.client(5) as barrier:
            # Acknowledged after the loss was seen: the group which holds the will is on disk.
            barrier.connect(f"barrier{number}")
            barrier.publish("crash/barrier/plain/b", b"0:", qos=1)
        self._wills.append(f"crash/wills/{number}")

    def _last_acknowledged(self) -> dict[str, int]:
        """The newest acknowledged number of each retained topic."""
        newest: dict[str, int] = {}
        for writer in self._writers:
            for message in list(writer.acknowledged):
                if message.retain:
                    newest[message.topic] = _number(message.payload)
        return newest

    def _check_retained(self, at_least: dict[str, int], *, exact: bool = False) -> None:
        if exact:
            at_least = self._last_acknowledged()
        with self._broker.client(5, timeout=20.0) as reader:
            reader.connect("retained-reader")
            reader.subscribe("crash/+/kept/#", qos=0)
            reader.send(p.PINGREQ_BYTES)
            found: dict[str, int] = {}
            while (packet := reader.receive()).type != p.PINGRESP:
                if packet.retain:
                    found[packet.topic] = _number(packet.payload)
        for topic, number in at_least.items():
            value = found.get(topic, -1)
            if value < number or (exact and value != number):
                self._outcome.violations.append(
                    f"retained {topic} is {value}, acknowledged was {number}"
                )

    def _settle(self) -> None:
        """Everything sent is acknowledged, everything stored is delivered."""
        for writer in self._writers:
            writer.finish(FINISH_TIMEOUT_S)
        for reader in self._offline:
            reader.start()
        expected = sum(len(self._published(writer)) for writer in self._writers)
        expected += len(self._wills) + (1 if self._wills else 0)  # all barriers are one message
        for reader in [*self._online, *self._offline]:
            self._wait_until_complete(reader, expected)
        # Duplicates would come behind what is complete.
        time.sleep(0.5)

    def _wait_until_complete(self, reader: DurableClient, expected: int) -> None:
        """Wait as long as something still arrives."""
        arrived, last_arrival = 0, time.monotonic()
        while time.monotonic() < last_arrival + DRAIN_QUIET_S:
            if len(reader.received) > arrived:
                arrived, last_arrival = len(reader.received), time.monotonic()
                if arrived >= expected and len(set(reader.received)) >= expected:
                    return
            time.sleep(0.1)

    def _published(self, writer: DurableClient) -> list[Outgoing]:
        return [message for message in writer.acknowledged if not message.retain]

    def _check_deliveries(self) -> None:
        outcome = self._outcome
        outcome.acknowledged = sum(len(writer.acknowledged) for writer in self._writers)
        outcome.wills = len(self._wills)
        expected: dict[str, list[int]] = {topic: [_number_of_will(topic)] for topic in self._wills}
        for writer in self._writers:
            for message in sorted(self._published(writer), key=lambda m: _number(m.payload)):
                expected.setdefault(message.topic, []).append(_number(message.payload))
        for reader in [*self._online, *self._offline]:
            outcome.delivered += len(reader.received)
            arrived: dict[str, list[int]] = {}
            for topic, payload, _ in reader.received:
                arrived.setdefault(topic, []).append(_number(payload))
            for topic, numbers in expected.items():
                mistake = _mistake(topic, numbers, arrived.get(topic, []))
                if mistake:
                    outcome.violations.append(f"{reader.client_id}: {mistake}")


def _mistake(topic: str, expected: list[int], arrived: list[int]) -> str:
    """What is wrong with the arrivals on one topic, or nothing."""
    exactly_once = topic.startswith("crash/wills/") or topic.split("/")[3] == "2"
    firsts = list(dict.fromkeys(arrived))
    missing = sorted(set(expected) - set(firsts))
    if missing:
        return f"{topic}: {len(missing)} of {len(expected)} lost, first {missing[:5]}"
    if exactly_once and len(arrived) != len(firsts):
        twice = [number for number in firsts if arrived.count(number) > 1]
        return f"{topic}: QoS 2 messages arrived more than once: {twice[:5]}"
    if firsts != sorted(firsts):
        wrong = next(b for a, b in itertools.pairwise(firsts) if b < a)
        return f"{topic}: out of order at {wrong}"
    return ""


def _number(payload: bytes) -> int:
    return int(payload.split(b":", 1)[0])


def _number_of_will(topic: str) -> int:
    return int(topic.rsplit("/", 1)[1])
