"""One row for each queue and minute, and how long rows and events are kept."""

from __future__ import annotations

from queuelake.settings import Lake, Queues, Settings
from queuelake.storage import api, archive_tables
from queuelake.storage import pipeline_tables as t
from queuelake.storage.api import Batch
from queuelake.storage.check import problems
from queuelake.storage.lmdb_store import read_only
from queuelake.tables import ECQ_QUEUE_ID, SDV_QUEUE_ID, STEPS
from tests.conftest import BrokerFactory
from tests.ecq.node import MailboxNode
from tests.queues.conftest import Connect
from tests.queues.node import QueueNode
from tests.queues.test_events import ONE, events, take, tell, worker
from tests.simulation.node import RETRY_MS, Node
from tests.unit.fanout_node import FanoutNode
from tests.unit.test_message_queues import a_node, connected, create, host_of, publish

MINUTE_S = 60


def minutes(node: Node, queue_id: int) -> list[t.Minute]:
    with node.store.view() as view:
        assert problems(view, 100_000) == []
        after, upto = t.record_range(view, api.STATS, queue_id)
        return [t.decode_minute(*row) for row in t.read_minutes(view, queue_id, after, upto)]


def counts(minute: t.Minute) -> dict[str, int]:
    """Those which are not zero."""
    return {step: count for step, count in zip(STEPS, minute.counts, strict=True) if count}


class LakeNode(QueueNode):
    """Queues which sleep soon, and limits for what they did."""

    def __init__(self, **lake: object) -> None:
        Node.__init__(self, Settings(queues=Queues(idle_unload_s=5.0), lake=Lake(**lake)))  # type: ignore[arg-type]
        self._packet_id = 0
        self._readers = 0


def fail_once(node: QueueNode, queue: str) -> None:
    peer = worker(node, queue)
    node.publish(queue, "x")
    tell(node, peer, queue, "reject", take(peer))
    peer.leave()


def test_a_minute_has_what_happened_in_it() -> None:
    node = QueueNode()
    queue = node.make(
        "q", **ONE, performance={"delivery_timeout": "10m", "heartbeat_timeout": "10m"}
    )
    peer = node.consumer(queue, "g")
    for payload in ("aa", "bbbb", "cc"):
        node.publish(queue, payload)
    node.settle_all(peer)
    node.publish(queue, "dd")
    node.after(MINUTE_S)
    node.settle_all(peer)
    node.after(MINUTE_S)
    first, second = minutes(node, node.host(queue).id)[:2]
    assert counts(first) == {"enqueued": 4, "delivered": 4, "acked": 3}
    assert (first.seqno, first.depth) == (1, 1)
    assert first.size > 0
    assert first.ts_ms % 60_000 == 0
    assert counts(second) == {"acked": 1}
    assert (second.seqno, second.ts_ms, second.depth) == (2, first.ts_ms + 60_000, 0)


def test_latencies_are_those_of_the_minute() -> None:
    node = QueueNode()
    queue = node.make("q", **ONE)
    node.publish(queue, "x")
    node.after(10)
    node.settle_all(node.consumer(queue, "g"))
    node.after(2 * MINUTE_S)
    first, second = minutes(node, node.host(queue).id)[:2]
    assert 10_000 <= first.latency_max_ms < 12_000
    assert 0 < first.latency_p50_ms <= first.latency_p99_ms <= first.latency_max_ms
    assert (second.latency_p50_ms, second.latency_max_ms) == (0, 0)


def test_counts_of_failures_equal_their_events() -> None:
    node = QueueNode()
    queue = node.make("q", **ONE)
    peer = worker(node, queue)
    node.publish(queue, "x")
    tell(node, peer, queue, "reject", take(peer))
    node.publish(queue, "y")
    tell(node, peer, queue, "nack", take(peer))
    node.after(MINUTE_S)
    number = node.host(queue).id
    found = counts(minutes(node, number)[0])
    told = [one.step for one in events(node, number)]
    assert {step: found[step] for step in ("nacked", "rejected", "dead_lettered")} == {
        step: told.count(step) for step in ("nacked", "rejected", "dead_lettered")
    }


def test_a_queue_which_falls_asleep_writes_its_part_and_sequences_go_on() -> None:
    node = LakeNode()
    queue = node.make("q", **ONE)
    number = node.host(queue).id
    node.publish(queue, "x")
    assert node.drain(queue) == ["x"]
    node.after(20)
    assert node.awake(queue) is None
    (asleep,) = minutes(node, number)
    assert counts(asleep) == {"enqueued": 1, "delivered": 1, "acked": 1}
    node.after(2 * MINUTE_S)
    assert len(minutes(node, number)) == 1, "a queue which sleeps does not change"
    node.crash()
    node.publish(queue, "y")
    node.after(MINUTE_S)
    found = minutes(node, number)
    assert [one.seqno for one in found] == [1, 2]
    assert counts(found[1]) == {"enqueued": 1}


def test_a_clean_stop_writes_what_the_minute_has_so_far() -> None:
    node = QueueNode()
    queue = node.make("q", **ONE)
    number = node.host(queue).id
    node.publish(queue, "x")
    node.broker.records.finish()
    node.work()
    assert [counts(one) for one in minutes(node, number)] == [{"enqueued": 1}]


def test_a_row_whose_commit_failed_is_written_again() -> None:
    node = QueueNode()
    queue = node.make("q", **ONE)
    number = node.host(queue).id
    node.publish(queue, "x")
    node.store.fail_commits = 1
    while not node.broker.runner.failure:
        node.after(1)
    node.pass_time(RETRY_MS)
    node.after(1)
    (minute,) = minutes(node, number)
    assert counts(minute) == {"enqueued": 1}


def test_what_a_reloaded_queue_did_before_is_not_forgotten() -> None:
    node = QueueNode()
    queue = node.make("q", **ONE)
    node.publish(queue, "x")
    node.publish(queue, "y")
    node.store.fail_commits = 1
    node.broker.queues.get(queue).changed()
    node.work()
    node.pass_time(RETRY_MS)
    node.after(MINUTE_S)
    assert counts(minutes(node, node.host(queue).id)[0]) == {"enqueued": 2}


def test_a_deleted_queue_writes_its_part() -> None:
    node = QueueNode()
    queue = node.make("q", **ONE)
    number = node.host(queue).id
    node.publish(queue, "x")
    node.broker.queues.delete(queue)
    node.work()
    assert [counts(one) for one in minutes(node, number)] == [{"enqueued": 1}]


def test_message_queues_have_minutes() -> None:
    node = a_node()
    create(node)
    publish(node, connected(node, "pub"), b"abc", b"de")
    number = host_of(node).id
    node.broker.records.finish()
    node.work()
    (minute,) = minutes(node, number)
    assert (counts(minute), minute.depth, minute.size) == ({"enqueued": 2}, 2, 5)


def test_all_mailboxes_are_one_queue_and_so_are_all_vehicles() -> None:
    mailboxes = MailboxNode()
    mailboxes.write("car", "a", "v")
    mailboxes.write("bus", "a", "v")
    assert len(mailboxes.read("car")) == 1
    mailboxes.leap(61_000)
    minute = minutes(mailboxes, ECQ_QUEUE_ID)[0]
    assert (counts(minute), minute.depth) == ({"enqueued": 2, "delivered": 1, "acked": 1}, 2)
    node = FanoutNode()
    node.data("d", b"payload")
    node.trigger(["v1", "v2"], "r", "d")
    node.drain(node.vehicle("v1"))
    node.leap(61_000)
    minute = minutes(node, SDV_QUEUE_ID)[0]
    assert (counts(minute), minute.depth) == ({"enqueued": 2, "delivered": 1, "acked": 1}, 1)


def test_a_broker_whose_devices_do_nothing_writes_nothing_for_them() -> None:
    node = QueueNode()
    node.after(3 * MINUTE_S)
    assert node.store.tables[api.STATS] == {}


def test_what_is_archived_goes_and_sequences_do_not_repeat() -> None:
    node = LakeNode()
    queue = node.make("q", **ONE)
    number = node.host(queue).id
    for _ in range(3):
        fail_once(node, queue)
    node.after(3 * MINUTE_S)
    last = minutes(node, number)[-1].seqno
    assert len(events(node, number)) == 6
    node.broker.records.archived("events", number, 4)
    node.after(3)
    assert [one.seqno for one in events(node, number)] == [5, 6]
    node.broker.records.archived("events", number, 6)
    node.broker.records.archived("stats", number, last)
    node.after(3)
    assert events(node, number) == []
    assert len(minutes(node, number)) <= 1
    node.crash()
    with node.store.view() as view:
        assert t.record_range(view, api.EVENTS, number)[1] == 6
    fail_once(node, queue)
    assert [one.seqno for one in events(node, number)] == [7, 8]
    node.after(MINUTE_S)
    assert minutes(node, number)[-1].seqno > last


def test_what_the_store_knows_to_be_archived_goes_after_a_restart() -> None:
    node = LakeNode()
    queue = node.make("q", **ONE)
    number = node.host(queue).id
    for _ in range(2):
        fail_once(node, queue)
    batch = Batch()
    batch.put(api.META, archive_tables.lake_key("events"), b"lake")
    mark = archive_tables.archived_value(archive_tables.Archived(2, "lake"))
    batch.put(api.ARCHIVED, archive_tables.archived_key("events", number, 0), mark)
    node.store.commit(batch)
    node.crash()
    node.after(2 * MINUTE_S)
    assert [one.seqno for one in events(node, number)] == [3, 4]


def test_what_is_too_old_goes() -> None:
    node = LakeNode(events_age_max="1h")
    queue = node.make("q", **ONE)
    number = node.host(queue).id
    fail_once(node, queue)
    node.after(2 * MINUTE_S)
    assert len(events(node, number)) == 2
    node.leap(3600)
    fail_once(node, queue)
    node.after(2 * MINUTE_S)
    assert [one.seqno for one in events(node, number)] == [3, 4]


def test_what_is_too_much_goes_the_oldest_first() -> None:
    node = LakeNode(events_bytes_max=4_000)
    queues = [node.make(f"q{number}", **ONE) for number in range(3)]
    numbers = [node.host(queue).id for queue in queues]
    for _ in range(30):
        for queue in queues:
            fail_once(node, queue)
        node.after(10)
    node.after(2 * MINUTE_S)
    for _ in range(30):
        node.after(10)
    assert node.broker.queues.ledger.bytes <= 4_000
    found = [one for number in numbers for one in events(node, number)]
    assert all(one.seqno > 20 for one in found)


def test_nothing_stays_of_a_deleted_queue_when_it_is_archived() -> None:
    node = LakeNode()
    queue = node.make("q", **ONE)
    number = node.host(queue).id
    fail_once(node, queue)
    node.broker.queues.delete(queue)
    node.work()
    upto = {name: t.record_range(node.store.view(), table, number)[1] for name, table in TABLES}
    for name, last in upto.items():
        node.broker.records.archived(name, number, last)
    node.after(3)
    node.after(2 * MINUTE_S)
    for _, table in TABLES:
        assert [key for key in node.store.tables[table] if t.read_key(key)[0] == number] == []


def test_a_deletion_whose_commit_failed_is_done_again() -> None:
    node = LakeNode()
    queue = node.make("q", **ONE)
    number = node.host(queue).id
    fail_once(node, queue)
    fail_once(node, queue)
    node.store.fail_commits = 1
    node.broker.records.archived("events", number, 2)
    while not node.broker.runner.failure:
        node.after(1)
    assert len(events(node, number)) == 4
    node.after(2 * MINUTE_S)
    assert [one.seqno for one in events(node, number)] == [3, 4]


TABLES = (("events", api.EVENTS), ("stats", api.STATS))


def test_a_broker_which_ends_cleanly_writes_what_the_minute_has(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker()
    assert connect(of=broker).publish("q", "x") == 0
    broker.stop()
    with read_only(broker.data_dir) as view:
        (number,) = t.recorded_queues(view, api.STATS)
        rows = [t.decode_minute(*row) for row in t.read_minutes(view, number, 0, 100)]
    assert sum(counts(one)["enqueued"] for one in rows if counts(one)) == 1
