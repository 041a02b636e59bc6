"""Clients which exist to die: each has a will, and the world remembers what must come of it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.harness import packets as p
from tests.harness.reading import parse
from tests.harness.wire import _whole_packet
from tests.simulation.network import FakeTransport

WILL_TOPIC = "wills"


@dataclass
class Mortal:
    """One client with a will, for one connection."""

    number: int
    delay_s: int
    expiry_s: int
    transport: FakeTransport | None = None
    accepted: bool = False  # CONNACK has come: its will is a promise
    died_at: int = -1  # the step of the world
    said_goodbye: bool = False

    def connect(self, transport: FakeTransport) -> None:
        self.transport = transport
        will = p.Will(
            WILL_TOPIC,
            b"%d:" % self.number,
            qos=2,
            properties={"will_delay_interval": self.delay_s},
        )
        expiry = {"session_expiry_interval": self.expiry_s}
        transport.send(p.connect(f"mortal{self.number}", will=will, properties=expiry))

    def read(self) -> None:
        transport = self.transport
        if transport is None or self.accepted:
            return
        length = _whole_packet(transport.received)
        if length:
            packet = parse(bytes(transport.received[:length]), 5)
            assert packet.type == p.CONNACK
            assert packet.reason_code == 0
            self.accepted = True

    def die(self, step: int) -> None:
        """Without a word, if it ever lived."""
        if self.transport is not None:
            self.died_at = step
            self.transport.hang_up()
            self.transport = None

    def say_goodbye(self) -> None:
        if self.transport is not None and self.accepted:
            self.said_goodbye = True
            self.transport.send(p.disconnect())
            self.transport = None

    def broker_crashed(self, step: int) -> None:
        if self.transport is not None:
            self.died_at = step
            self.transport = None

    def mistake(self, arrivals: int, subscribed_at: int) -> str:
        """What is wrong with the number of times its will has arrived; or nothing."""
        if arrivals > 1:
            return f"will {self.number} arrived {arrivals} times"
        promised = self.accepted and 0 <= subscribed_at < self.died_at and not self.said_goodbye
        if promised and arrivals == 0:
            return f"will {self.number} (delay {self.delay_s} s) never arrived"
        return ""
