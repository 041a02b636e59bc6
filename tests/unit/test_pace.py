"""When a group is sealed: while clients send it collects, but nobody waits for long."""

from __future__ import annotations

import pytest

from queuelake.broker.pace import (
    ANSWERS_MAX,
    COLLECT_MS_MAX,
    COMPANY_MS_MAX,
    SETTLE_MS_MAX,
    Pace,
)
from queuelake.queue_settings import Performance, QueueSettings
from queuelake.settings import Queues, Settings
from tests.harness import packets as p
from tests.simulation.node import Node


def test_a_turn_which_brought_nothing_ends_the_wait() -> None:
    pace = Pace()
    pace.inputs += 1
    assert pace.expects_more(1, 1000)
    assert not pace.expects_more(1, 1000)


def test_publishers_are_waited_for_longer_than_settlements() -> None:
    for published, limit_ms in ((1, COLLECT_MS_MAX), (0, SETTLE_MS_MAX)):
        pace = Pace()
        for now_ms in range(1000, 1000 + limit_ms):
            pace.inputs += 1
            pace.published += published
            assert pace.expects_more(1, now_ms)
        pace.inputs += 1
        pace.published += published
        assert not pace.expects_more(1, 1000 + limit_ms)


def test_a_group_with_many_answers_does_not_wait() -> None:
    pace = Pace()
    pace.inputs += 1
    assert not pace.expects_more(ANSWERS_MAX, 1000)


def test_every_group_waits_for_those_who_send_and_not_only_the_first() -> None:
    node = Node()
    writer = node.client("writer")
    for n in range(1, 6, 2):
        node.pass_time(100)
        writer.publish("$queue/one", b"1", 1, n)
        node.loop.turn()
        assert not node.committer.is_busy()
        writer.publish("$queue/one", b"2", 1, n + 1)
        node.loop.turn()
        assert not node.committer.is_busy()
        node.loop.turn()
        assert node.committer.is_busy(), "nobody sends any more"
        node.work()
        assert [packet.packet_id for packet in writer.take_all()] == [n, n + 1]


def paced(commit_ms: int, gap_ms: int, groups: int = 50) -> tuple[Pace, int]:
    """After so many groups with messages, at this distance, which took that long; and when."""
    pace = Pace()
    now_ms = 1000
    for _ in range(groups):
        now_ms += gap_ms
        pace.sealed(1, now_ms)
        pace.committed(now_ms + commit_ms)
    return pace, now_ms


@pytest.mark.parametrize(
    ("commit_ms", "gap_ms", "waits"),
    [
        (0, 1, False),  # one node with a fast disk: a commit holds up nobody
        (2, 2, True),
        (2, 3, True),
        (2, 10, False),  # done long before the next message
        (10, 15, True),
        (10, 1000, False),
    ],
)
def test_settlements_wait_for_messages_where_a_commit_would_hold_one_up(
    commit_ms: int, gap_ms: int, waits: bool
) -> None:
    pace, now_ms = paced(commit_ms, gap_ms)
    wait_ms = pace.company_ms(now_ms + commit_ms)
    assert (wait_ms > 0) == waits
    assert wait_ms <= COMPANY_MS_MAX


def test_settlements_do_not_wait_when_messages_have_ceased_or_the_clock_has_jumped() -> None:
    pace, now_ms = paced(commit_ms=2, gap_ms=2)
    assert pace.company_ms(now_ms + 2)
    assert not pace.company_ms(now_ms + 100)
    assert not pace.company_ms(now_ms - 100)


class SlowQueue:
    """A queue with a message every four milliseconds, where a commit takes two."""

    def __init__(self, prefetch: int) -> None:
        defaults = QueueSettings(partitions=1, performance=Performance(prefetch=prefetch))
        self.node = Node(Settings(queues=Queues(defaults=defaults)))
        self.writer = self.node.client("writer")
        self.reader = self.node.client("reader")
        properties: p.Properties = {"user_property": [("consumer-group", "g")]}
        self.reader.transport.send(p.subscribe(1, [("$queue/q", 1)], properties=properties))
        self.node.work()
        self.reader.take_all()
        for n in range(1, 101):
            self.publish(n)
            self.commit()
            if prefetch > 1:
                self.settle()
                self.commit()

    def publish(self, packet_id: int) -> None:
        self.writer.publish("$queue/q", b"x", 1, packet_id)

    def settle(self, qos: int = 1) -> None:
        """What was delivered; it is not committed yet."""
        for packet in self.reader.take_all():
            if packet.type == p.PUBLISH:
                pair = ("message-id", dict(packet.user_properties)["message-id"])
                properties: p.Properties = {"user_property": [pair]}
                self.reader.transport.send(
                    p.publish("$queue/q/$ack", qos=qos, packet_id=9, properties=properties)
                )
        self.node.loop.run_until_idle()

    def commit(self) -> None:
        """What waits for it, two milliseconds later."""
        self.node.loop.run_until_idle()
        self.node.loop.advance(2)
        self.node.committer.commit()
        self.node.loop.run_until_idle()


def test_a_settlement_is_committed_with_the_next_message() -> None:
    queue = SlowQueue(prefetch=100)
    queue.publish(1000)
    queue.commit()
    queue.settle()
    assert not queue.node.committer.is_busy(), "it has company soon"
    queue.publish(1001)
    queue.node.loop.run_until_idle()
    assert queue.node.committer.is_busy()
    queue.commit()
    types = [packet.type for packet in queue.reader.take_all()]
    assert types == [p.PUBACK, p.PUBLISH], "both came of one commit"


def test_a_settlement_without_company_is_committed_alone() -> None:
    queue = SlowQueue(prefetch=100)
    queue.publish(1000)
    queue.commit()
    queue.settle()
    queue.node.loop.advance(COMPANY_MS_MAX)
    queue.node.loop.run_until_idle()
    assert queue.node.committer.is_busy()
    queue.commit()
    assert [packet.type for packet in queue.reader.take_all()] == [p.PUBACK]


def test_a_settlement_which_lets_the_next_message_go_does_not_wait() -> None:
    queue = SlowQueue(prefetch=1)
    queue.publish(1000)
    queue.commit()
    queue.settle()
    assert queue.node.committer.is_busy(), "the next message waits for it"


def test_a_settlement_nobody_answers_does_not_make_another_client_wait() -> None:
    queue = SlowQueue(prefetch=100)
    queue.publish(1000)
    queue.commit()
    queue.settle(qos=0)
    assert not queue.node.committer.is_busy()
    queue.writer.transport.send(p.subscribe(2, [("other", 1)]))
    queue.node.loop.run_until_idle()
    assert queue.node.committer.is_busy(), "a SUBACK waits for it"
