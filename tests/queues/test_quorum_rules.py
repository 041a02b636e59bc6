"""Rules of quorum queues which need time to pass, or several consumers: on a simulated broker."""

from __future__ import annotations

import pytest

from queuelake.settings import Limits
from tests.harness import packets as p
from tests.harness.packets import Packet
from tests.queues.client import QUOTA_EXCEEDED, SPECIFIC, SUCCESS
from tests.queues.node import QueueNode
from tests.simulation.node import Peer

QUORUM = {"type": "quorum"}
ADMINISTRATIVE_ACTION = 0x98
NO_MATCHING = 0x10
TOPIC_INVALID = 0x90


@pytest.fixture
def node() -> QueueNode:
    return QueueNode()


def deliveries(peer: Peer) -> list[Packet]:
    return [one for one in peer.take_all() if one.type == p.PUBLISH]


def payloads(peer: Peer) -> list[str]:
    return [one.payload.decode() for one in deliveries(peer)]


def counts(packet: Packet) -> tuple[str, str, str]:
    """Payload, how often it was handed out, and how often that failed."""
    found = dict(packet.user_properties)
    payload = packet.payload.decode()
    return payload, found["x-acquired-count"], found.get("x-delivery-count", "")


def settle(node: QueueNode, peer: Peer, packet: Packet, verdict: str, **user: str) -> None:
    said = {"message-id": dict(packet.user_properties)["message-id"]} | user
    properties = [("user_property", pair) for pair in said.items()]
    topic = f"{packet.topic}/${verdict}"
    peer.transport.send(p.publish(topic, b"", qos=1, packet_id=77, properties=properties))
    before = bytes(peer.transport.received)
    peer.transport.received.clear()
    node.work()
    answer = peer.take()  # it leaves with its commit, and before what that makes possible
    assert (answer.type, answer.reason_code) == (p.PUBACK, SUCCESS)
    peer.transport.received[:0] = before


def letters(node: QueueNode, queue: str = "q") -> list[tuple[str, str]]:
    """Payload and reason of its dead letters, which are settled by that."""
    watcher = node.consumer(f"dlq/{queue}", "g")
    found = []
    while packets := deliveries(watcher):
        for one in packets:
            found.append((one.payload.decode(), dict(one.user_properties)["dlq-reason"]))
            watcher.acknowledge(p.PUBACK, one.packet_id)
        node.work()
    watcher.leave()
    return found


# Consumers


@pytest.mark.rule("Q11")
def test_consumers_of_high_priority_come_first_and_equals_in_turn(node: QueueNode) -> None:
    node.make("q", **QUORUM)
    low = node.consumer("q", None, prefetch="9")
    high = [node.consumer("q", None, prefetch="2", priority="5") for _ in range(2)]
    for number in range(6):
        node.publish("q", str(number))
    assert [payloads(one) for one in (*high, low)] == [["0", "2"], ["1", "3"], ["4", "5"]]


@pytest.mark.rule("Q32", "Q21")
def test_priorities_are_strict_and_what_returns_keeps_none(node: QueueNode) -> None:
    node.make("q", **QUORUM)
    consumer = node.consumer("q", None, prefetch="1", ack_mode="publish")
    node.publish("q", "first")
    for payload, priority in (("low", "0"), ("usual", "4"), ("high", "31"), ("higher", "99")):
        node.publish("q", payload, user={"priority": priority})
    (first,) = deliveries(consumer)
    settle(node, consumer, first, "nack")
    order: list[str] = []
    while found := deliveries(consumer):
        order.append(found[0].payload.decode())
        settle(node, consumer, found[0], "ack")
    assert order == ["first", "high", "higher", "usual", "low"]


@pytest.mark.rule("Q31")
def test_one_consumer_is_active_and_the_next_takes_over(node: QueueNode) -> None:
    node.make("q", **QUORUM, single_active_consumer=True)
    first = node.client("first", clean=True, expiry_s=0)
    first.subscribe("$queue/q", qos=1)
    second = node.consumer("q", None)
    node.publish("q", "a")
    assert (payloads(first), payloads(second)) == (["a"], [])
    first.leave()
    assert payloads(second) == ["a"]


@pytest.mark.rule("Q31")
def test_one_of_higher_priority_takes_over_when_the_active_one_has_nothing_left(
    node: QueueNode,
) -> None:
    node.make("q", **QUORUM, single_active_consumer=True)
    first = node.consumer("q", None)
    node.publish("q", "a")
    better = node.consumer("q", None, priority="9")
    node.publish("q", "b")
    (held,) = deliveries(first)
    assert payloads(better) == []  # the active one is not done, and gets nothing new
    first.acknowledge(p.PUBACK, held.packet_id)
    node.work()
    assert (payloads(first), payloads(better)) == ([], ["b"])


# Failures


@pytest.mark.rule("Q16", "section 16")
def test_a_session_which_outlives_its_connection_keeps_what_it_holds_for_a_while(
    node: QueueNode,
) -> None:
    node.make("q", **QUORUM)
    consumer = node.consumer("q", None, client_id="stays", ack_mode="publish")
    node.publish("q", "x")
    assert counts(deliveries(consumer)[0]) == ("x", "1", "")
    other = node.consumer("q", None)
    consumer.hang_up()
    node.after(30)
    assert payloads(other) == []
    consumer = node.client("stays")
    assert counts(deliveries(consumer)[0]) == ("x", "1", "")  # the same delivery, once more
    consumer.hang_up()
    node.after(58)
    assert payloads(other) == []
    node.after(4)
    assert counts(deliveries(other)[0]) == ("x", "2", "")  # nobody's failure


@pytest.mark.rule("Q15", "section 16")
def test_a_session_which_ends_while_away_has_failed(node: QueueNode) -> None:
    node.make("q", **QUORUM, consumer_disconnected_timeout="1h")
    consumer = node.client("stays", expiry_s=20)
    consumer.subscribe("$queue/q", qos=1)
    node.publish("q", "x")
    other = node.consumer("q", None)
    consumer.hang_up()
    node.after(10)
    assert payloads(other) == []
    node.after(12)
    assert counts(deliveries(other)[0]) == ("x", "2", "1")


@pytest.mark.rule("Q19", "section 6")
def test_the_failure_above_the_limit_makes_a_dead_letter(node: QueueNode) -> None:
    node.make("q", **QUORUM, delivery_limit=2)
    node.publish("q", "x")
    for number in (1, 2, 3):
        consumer = node.client(f"c{number}", clean=True, expiry_s=0)
        consumer.subscribe("$queue/q", qos=1)
        failures = str(number - 1) if number > 1 else ""
        assert counts(deliveries(consumer)[0]) == ("x", str(number), failures)
        consumer.hang_up()
    assert letters(node) == [("x", "delivery_limit")]


@pytest.mark.rule("Q19", "section 6")
def test_a_nack_may_say_that_it_was_a_failure(node: QueueNode) -> None:
    node.make("q", **QUORUM, delivery_limit=1)
    node.publish("q", "x")
    consumer = node.consumer("q", None, ack_mode="publish")
    settle(node, consumer, deliveries(consumer)[0], "nack", **{"delivery-failed": "true"})
    (again,) = deliveries(consumer)
    assert counts(again) == ("x", "2", "1")
    settle(node, consumer, again, "nack", **{"delivery-failed": "true"})
    assert letters(node) == [("x", "delivery_limit")]


@pytest.mark.rule("Q22")
def test_a_retry_waits_longer_with_each_failure_where_that_is_set(node: QueueNode) -> None:
    retries = {"delayed_retry_type": "failed", "delayed_retry_min": "10s"}
    node.make("q", **QUORUM, **retries, delayed_retry_max="15s")
    node.publish("q", "x")
    consumer = node.consumer("q", None, ack_mode="publish")
    for before, until in ((9, 2), (14, 2)):
        settle(node, consumer, deliveries(consumer)[0], "nack", **{"delivery-failed": "true"})
        node.after(before)
        assert payloads(consumer) == []
        node.after(until)
    settle(node, consumer, deliveries(consumer)[0], "nack")  # no failure: at once
    assert payloads(consumer) == ["x"]


@pytest.mark.rule("Q22")
def test_a_nack_may_ask_for_a_delay(node: QueueNode) -> None:
    node.make("q", **QUORUM)
    node.publish("q", "x")
    consumer = node.consumer("q", None, ack_mode="publish")
    settle(node, consumer, deliveries(consumer)[0], "nack", **{"delay-ms": "10000"})
    node.after(9)
    assert payloads(consumer) == []
    node.after(2)
    assert payloads(consumer) == ["x"]


@pytest.mark.rule("Q23", "section 16")
def test_who_holds_messages_too_long_loses_them_and_the_subscription(node: QueueNode) -> None:
    node.make("q", **QUORUM, consumer_timeout="20s")
    slow = node.client("slow", clean=True, expiry_s=0)
    slow.subscribe("$queue/q", qos=1)
    node.publish("q", "x")
    node.after(10)
    node.publish("q", "later")
    assert payloads(slow) == ["x", "later"]
    other = node.consumer("q", None)
    node.after(9)
    assert payloads(other) == []
    node.after(3)
    (last,) = slow.take_all()
    assert (last.type, last.reason_code) == (p.DISCONNECT, ADMINISTRATIVE_ACTION)
    # The one which had time left comes back as well, and is no failure either.
    assert [counts(one) for one in deliveries(other)] == [("x", "2", ""), ("later", "2", "")]


@pytest.mark.rule("Q23")
def test_a_consumer_may_have_a_timeout_of_its_own(node: QueueNode) -> None:
    node.make("q", **QUORUM)
    slow = node.consumer("q", None, ack_mode="publish", consumer_timeout="5000")
    node.publish("q", "x")
    node.after(7)
    assert slow.take_all()[-1].reason_code == ADMINISTRATIVE_ACTION


# Limits and age


@pytest.mark.rule("Q24")
def test_the_oldest_are_dropped_from_a_full_queue_by_default(node: QueueNode) -> None:
    node.make("q", **QUORUM, max_length=2)
    for payload in "abcd":
        node.publish("q", payload)
    assert node.drain("q") == ["c", "d"]
    assert letters(node) == [("a", "maxlen"), ("b", "maxlen")]


@pytest.mark.rule("Q24")
def test_bytes_are_limited_as_messages_are(node: QueueNode) -> None:
    node.make("q", **QUORUM, max_length_bytes=1000, overflow="reject_publish")
    node.publish("q", "x" * 600)
    node.publish("q", "x" * 600)
    node.publish("q", "x", expected=QUOTA_EXCEEDED)


@pytest.mark.rule("Q25")
def test_messages_expire_by_the_shorter_of_two_times(node: QueueNode) -> None:
    node.make("q", **QUORUM, message_ttl="60s")
    node.publish("q", "queue's")
    node.publish("q", "own", expiry_s=10)
    node.publish("q", "longer", expiry_s=1000)
    node.after(63)
    assert node.drain("q") == []
    assert {payload for payload, _ in letters(node)} == {"queue's", "own", "longer"}


@pytest.mark.rule("Q25")
def test_no_dead_letters_are_kept_where_there_is_no_queue_for_them(node: QueueNode) -> None:
    node.make("q", **QUORUM, message_ttl="5s", dead_letter_queue="")
    node.publish("q", "x")
    node.after(7)
    assert node.drain("q") == []
    assert not node.broker.queues.exists("dlq/q")


@pytest.mark.rule("Q26")
def test_a_queue_nobody_uses_is_deleted_and_a_new_setting_is_no_use(node: QueueNode) -> None:
    node.make("q", **QUORUM, expires="100s")
    node.after(60)
    node.make("q", delivery_limit=3)
    node.after(30)
    assert node.broker.queues.exists("q")
    node.after(12)
    assert not node.broker.queues.exists("q")


@pytest.mark.rule("Q26")
def test_a_consumer_keeps_a_queue_alive_and_the_clock_goes_on_in_sleep_and_crash(
    node: QueueNode,
) -> None:
    node.make("q", **QUORUM, expires="200s")
    consumer = node.consumer("q", None)
    node.after(250)
    assert node.broker.queues.exists("q")
    consumer.leave()
    node.broker.sessions.end(node.session(consumer.client_id))
    node.work()
    node.after(100)
    assert "q" not in node.broker.queues.quorum.hosts  # it sleeps
    node.crash()
    node.after(90)
    assert node.broker.queues.exists("q")
    node.after(15)
    assert not node.broker.queues.exists("q")


def test_a_message_waits_as_long_as_its_publisher_says_over_crashes_too(node: QueueNode) -> None:
    node.make("q", **QUORUM)
    node.publish("q", "later", user={"delay-ms": "60000"})
    node.publish("q", "now")
    consumer = node.consumer("q", None, ack_mode="publish")
    assert payloads(consumer) == ["now"]
    node.crash()
    consumer = node.consumer("q", None, ack_mode="publish")
    assert [counts(one) for one in deliveries(consumer)] == [("now", "2", "")]
    node.publish("q", "new")
    node.after(62)
    assert payloads(consumer) == ["new", "later"]
    node.crash()  # what was handed out is known of each, though not in order
    found = [counts(one) for one in deliveries(node.consumer("q", None))]
    assert sorted(found) == [("later", "2", ""), ("new", "2", ""), ("now", "3", "")]


@pytest.mark.rule("Q22")
def test_a_deferred_message_is_fetched_by_its_token(node: QueueNode) -> None:
    node.make("q", **QUORUM)
    token = {"x-opt-deferral-token": "order 7"}
    consumer = node.consumer("q", None, ack_mode="publish")
    node.publish("q", "x")
    settle(node, consumer, deliveries(consumer)[0], "nack", **token)
    node.after(3600)
    assert payloads(consumer) == []
    node.crash()
    other = node.consumer("q", None, ack_mode="publish")
    assert payloads(other) == []

    def fetch(user: dict[str, str], queue: str = "q") -> int:
        said = [("user_property", pair) for pair in user.items()]
        topic = f"$queue/{queue}/$fetch"
        other.transport.send(p.publish(topic, b"", qos=1, packet_id=5, properties=said))
        node.work()
        return other.take().reason_code

    assert fetch({}) == SPECIFIC
    assert fetch({"x-opt-deferral-token": "order 8"}) == NO_MATCHING
    node.make("classic")
    assert fetch(token, "classic") == TOPIC_INVALID
    assert fetch(token, "none") == NO_MATCHING
    assert fetch(token) == SUCCESS
    assert [counts(one) for one in deliveries(other)] == [("x", "2", "")]


@pytest.mark.rule("Q9")
def test_a_message_id_is_stored_once_over_connections_and_crashes(node: QueueNode) -> None:
    node.make("q", **QUORUM)
    for _ in range(2):
        node.publish("q", "x", user={"message-id": "1"})
    node.crash()
    node.publish("q", "x", user={"message-id": "1"})
    assert node.drain("q") == ["x"]
    node.after(130)
    node.publish("q", "y", user={"message-id": "1"})  # its window is over
    assert node.drain("q") == ["y"]


# Dead letters


@pytest.mark.rule("Q27")
@pytest.mark.parametrize("strategy", ["at_most_once", "at_least_once"])
def test_a_dead_letter_whose_queue_is_full_is_lost_or_waits(node: QueueNode, strategy: str) -> None:
    node.make("full", **QUORUM, max_length=1, overflow="reject_publish")
    node.make(
        "q",
        **QUORUM,
        overflow="reject_publish",
        dead_letter_queue="$queue/full",
        dead_letter_strategy=strategy,
    )
    for payload in ("1", "2"):
        node.publish("full", payload)  # one over its limit: it takes no more
    node.publish("q", "x")
    consumer = node.consumer("q", None, ack_mode="publish")
    settle(node, consumer, deliveries(consumer)[0], "reject")
    node.crash()
    waits = strategy == "at_least_once"
    host = node.broker.queues.quorum.find("q")
    assert host is not None
    assert host.machine.total == int(waits)
    assert node.drain("full") == ["1", "2"]
    node.after(8)
    assert host.machine.total == 0
    assert node.drain("full") == (["x"] if waits else [])


@pytest.mark.rule("Q28")
def test_the_backlog_of_dead_letters_goes_when_they_need_not_be_kept(node: QueueNode) -> None:
    node.make("full", **QUORUM, max_length=1, overflow="reject_publish")
    settings = {"overflow": "reject_publish", "dead_letter_queue": "$queue/full"}
    node.make("q", **QUORUM, **settings, dead_letter_strategy="at_least_once", message_ttl="2s")
    for payload in ("1", "2"):
        node.publish("full", payload)
    for payload in ("a", "b"):
        node.publish("q", payload)
    node.after(4)
    host = node.broker.queues.quorum.find("q")
    assert host is not None
    assert (host.machine.total, host.machine.lines.count) == (2, 0)
    node.make("q", dead_letter_strategy="at_most_once")
    assert host.machine.total == 0


@pytest.mark.rule("Q29")
def test_a_dead_letter_which_dies_again_tells_how_often_and_how_it_began(node: QueueNode) -> None:
    node.make("a", **QUORUM, dead_letter_queue="$queue/b")
    node.make("b", **QUORUM, dead_letter_queue="$queue/c", delivery_limit=0)
    node.make("c", **QUORUM, dead_letter_queue="$queue/d", max_length=1)
    node.make("d", **QUORUM)
    invented = {"dlq-count": "x", "dlq-first-queue": "$queue/z", "colour": "red"}
    node.publish("a", "x", user=invented)
    consumers = {name: node.consumer(name, None, ack_mode="publish") for name in "abd"}
    (first,) = deliveries(consumers["a"])
    assert dict(first.user_properties).keys().isdisjoint({"dlq-count", "dlq-first-queue"})
    settle(node, consumers["a"], first, "reject")
    (second,) = deliveries(consumers["b"])
    assert "dlq-count" not in dict(second.user_properties)
    settle(node, consumers["b"], second, "nack", **{"delivery-failed": "true"})
    node.publish("c", "y")
    (last,) = deliveries(consumers["d"])
    found = dict(last.user_properties)
    assert (found["dlq-count"], found["colour"]) == ("3", "red")
    assert (found["dlq-first-queue"], found["dlq-first-reason"]) == ("$queue/a", "rejected")
    assert (found["dlq-original-queue"], found["dlq-reason"]) == ("$queue/c", "maxlen")
    assert found["dlq-first-moved-at"] <= found["dlq-moved-at"]
    assert len(last.user_properties) == len(found)


def test_queues_which_are_dead_letter_queues_of_each_other_come_to_an_end(
    node: QueueNode,
) -> None:
    node.make("a", **QUORUM, max_length=1, dead_letter_queue="$queue/b")
    node.make("b", **QUORUM, max_length=1, dead_letter_queue="$queue/a")
    for number in range(4):
        node.publish("a", str(number))
    hosts = node.broker.queues.quorum.hosts
    assert [hosts[name].machine.total for name in "ab"] == [1, 1]


@pytest.mark.rule("Q30")
def test_a_client_with_too_much_which_is_not_applied_is_not_read() -> None:
    node = QueueNode(limits=Limits(unconfirmed_bytes_per_client_max=1000))
    node.make("q", **QUORUM)
    host = node.broker.queues.quorum.find("q")
    assert host is not None
    worker = node.consumer("q", None, ack_mode="publish")
    for number in range(5):
        node.publish("q", str(number))
    held = deliveries(worker)
    worker.transport.send(p.publish("$queue/q", bytes(2000), qos=1, packet_id=1))
    assert not worker.transport.is_read()
    for packet_id, one in enumerate(held, 2):
        said = [("user_property", ("message-id", dict(one.user_properties)["message-id"]))]
        packet = p.publish("$queue/q/$ack", b"", qos=1, packet_id=packet_id, properties=said)
        worker.transport.send(packet)
    worker.transport.send(p.publish("$queue/q", b"later", qos=1, packet_id=9))
    node.loop.run_until_idle()
    assert (host.counters.enqueued, host.counters.acked) == (6, 0)  # the rest waits in the socket
    node.committer.commit()
    node.loop.run_until_idle()  # what waited is one group now, settlements and all
    assert (host.counters.enqueued, host.counters.acked) == (7, 5)
    assert worker.transport.is_read()
    node.work()
    assert host.machine.total == 2
