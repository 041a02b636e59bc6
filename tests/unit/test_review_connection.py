"""What a connection leaves behind, and what it may not say too early."""

from __future__ import annotations

import gc

from queuelake.broker.clock import TimerWheel
from queuelake.broker.connection import Connection
from tests.harness import packets as p
from tests.simulation.node import Node, Peer


def test_a_connection_which_is_over_is_forgotten_before_its_keep_alive() -> None:
    node = Node()

    def come_and_go() -> None:
        peer = Peer(node, "sleepy", 5)
        peer.transport.send(p.connect("sleepy", keepalive=65535))
        node.work()
        peer.hang_up()

    for _ in range(20):
        come_and_go()
    gc.collect()
    alive = [one for one in gc.get_objects() if type(one) is Connection]
    assert len([one for one in alive if one.broker is node.broker]) == 0


def test_cancelled_timers_take_no_space_until_they_are_due() -> None:
    wheel = TimerWheel(0)
    fired: list[int] = []
    wheel.arm(1000, fired.append)
    for number in range(100_000):
        wheel.arm(10**9 + number, fired.append).cancel()
    assert len(wheel) < 5000
    wheel.turn(2000)
    assert fired == [2000]


def test_a_discarded_session_is_gone_before_connack_says_so() -> None:
    node = Node()
    node.client("client").leave()
    again = Peer(node, "client", 5)
    again.connect(clean=True, expiry_s=0)
    node.loop.run_until_idle()
    assert again.take_all() == []
    node.work()
    assert not again.take().session_present
