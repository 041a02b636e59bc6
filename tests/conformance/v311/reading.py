"""What several 3.1.1 tests read from a connection."""

from __future__ import annotations

import pytest

from tests.harness import packets as p
from tests.harness.packets import Packet, WireError
from tests.harness.wire import Wire

# MQTT 3.1 has DUP and QoS bits in PUBREL, SUBSCRIBE and UNSUBSCRIBE where 3.1.1 has fixed flags.
only_level_4 = pytest.mark.parametrize("level", [4], indirect=True, ids=["3.1.1"])


def drain(wire: Wire) -> list[Packet]:
    """Everything the server had to send before a PINGRESP."""
    wire.send(p.PINGREQ_BYTES)
    found: list[Packet] = []
    while (packet := wire.receive()).type != p.PINGRESP:
        found.append(packet)
    return found


def expect_refused_subscription(wire: Wire) -> None:
    """SUBACK 0x80 or a close: the standard leaves the choice for a filter which is no filter."""
    try:
        suback = wire.expect(p.SUBACK)
    except WireError as error:
        assert "closed" in str(error), error
        return
    assert suback.reason_codes == [0x80]


def answer_or_close(wire: Wire) -> Packet | None:
    """The next packet, or None when the server closed instead."""
    try:
        return wire.receive()
    except WireError as error:
        assert "closed" in str(error), error
        return None
