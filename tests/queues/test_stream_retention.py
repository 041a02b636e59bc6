"""How much of a stream is kept, over partitions, restarts and readers in its middle (section 8)."""

from __future__ import annotations

import pytest

from queuelake.broker.queues import retention
from queuelake.storage import queue_tables
from queuelake.storage.api import ReadTransaction
from queuelake.storage.chunk import Record
from tests.harness import packets as p
from tests.queues.node import QueueNode

pytestmark = pytest.mark.rule("section 8")


def stream(node: QueueNode, partitions: int = 1, **limits: object) -> str:
    return node.make("s", type="stream", partitions=partitions, retention=limits)


def publish_numbers(node: QueueNode, queue: str, *numbers: int, size: int = 0) -> None:
    """Each with a key of its own, so that partitions take turns by the hash."""
    for number in numbers:
        node.publish(queue, f"{number}".ljust(size), key=f"k{number}")


def numbers_left(node: QueueNode, queue: str) -> list[int]:
    return sorted(map(int, node.replay(queue)))


# By number


@pytest.mark.parametrize("partitions", [1, 4])
def test_so_many_of_the_newest_are_left(partitions: int) -> None:
    node = QueueNode()
    queue = stream(node, partitions, max_messages=7)
    for number in range(30):
        publish_numbers(node, queue, number)
        node.pass_time(1)  # the newest of all partitions are told by their time
    node.after(1)
    assert numbers_left(node, queue) == list(range(23, 30))


def test_the_number_is_kept_over_a_restart() -> None:
    node = QueueNode()
    queue = stream(node, 4, max_messages=7)
    for number in range(20):
        publish_numbers(node, queue, number)
        node.pass_time(1)
    node.after(1)
    node.crash()
    assert numbers_left(node, queue) == list(range(13, 20))
    for number in range(20, 24):
        publish_numbers(node, queue, number)
        node.pass_time(1)
    node.after(1)
    assert numbers_left(node, queue) == list(range(17, 24))


def test_a_limit_set_later_holds_for_what_is_there() -> None:
    node = QueueNode()
    queue = node.make("s", type="stream", partitions=1)
    publish_numbers(node, queue, *range(10))
    node.crash()
    node.make("s", retention={"max_messages": 4})
    node.after(1)
    assert numbers_left(node, queue) == [6, 7, 8, 9]


def test_very_many_are_forgotten_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "CHUNKS_PER_TURN_MAX", 3)
    node = QueueNode()
    queue = node.make("s", type="stream", partitions=1)
    node.consumer(queue, "g")  # so that each message has a chunk of its own
    publish_numbers(node, queue, *range(20))
    node.make("s", retention={"max_messages": 1})
    node.after(1)
    assert 1 < node.host(queue).machine.partitions[0].stored() < 20
    node.after(10)
    assert numbers_left(node, queue) == [19]


# By age


@pytest.mark.parametrize("partitions", [1, 4])
def test_what_is_too_old_goes(partitions: int) -> None:
    node = QueueNode()
    queue = stream(node, partitions, max_age="10s")
    for number in range(20):
        publish_numbers(node, queue, number)
        node.after(1)
    left = numbers_left(node, queue)
    assert left == list(range(20 - len(left), 20))
    assert 9 <= len(left) <= 10
    node.after(10)
    assert numbers_left(node, queue) == []


def test_messages_of_one_chunk_are_forgotten_one_by_one() -> None:
    """Without a reader a slow stream lies in few chunks, each of which spans a long time."""
    node = QueueNode()
    queue = stream(node, max_age="30s")
    for number in range(6):
        publish_numbers(node, queue, number)
        node.after(10)
    assert numbers_left(node, queue)[0] >= 3
    assert numbers_left(node, queue)[-1] == 5


def test_age_counts_while_the_broker_is_down() -> None:
    node = QueueNode()
    queue = stream(node, max_age="1h")
    publish_numbers(node, queue, 1, 2)
    node.loop.now_ns += 3601 * 10**9
    node.crash()
    node.after(3)
    publish_numbers(node, queue, 3)
    assert numbers_left(node, queue) == [3]


def test_age_counts_while_a_stream_sleeps() -> None:
    node = QueueNode()
    queue = stream(node, max_age="1h")
    publish_numbers(node, queue, 1, 2)
    node.after(40)
    assert node.awake(queue) is None
    node.leap(3600)
    host = node.awake(queue)
    assert host is not None
    assert host.machine.partitions[0].stored() == 0


# By bytes


@pytest.mark.parametrize("partitions", [1, 4])
def test_so_many_bytes_are_left(partitions: int) -> None:
    node = QueueNode()
    queue = stream(node, partitions, max_bytes=50_000)
    for number in range(100):
        publish_numbers(node, queue, number, size=1000)
        node.pass_time(1)
    node.after(5)
    left = numbers_left(node, queue)
    assert left == list(range(100 - len(left), 100))
    assert 40 <= len(left) <= 50
    assert node.stored_bytes(queue) <= 50_000 + partitions * 33_000


def test_bytes_are_counted_anew_after_a_restart() -> None:
    node = QueueNode()
    queue = stream(node, 2, max_bytes=50_000)
    for number in range(100):
        publish_numbers(node, queue, number, size=1000)
        node.pass_time(1)
    node.after(5)
    before = numbers_left(node, queue)
    node.crash()
    node.after(5)
    assert numbers_left(node, queue) == before
    for number in range(100, 110):
        publish_numbers(node, queue, number, size=1000)
    node.after(5)
    after = numbers_left(node, queue)
    assert after[-10:] == list(range(100, 110))
    assert abs(len(after) - len(before)) <= 2


def test_what_nobody_can_keep_goes_but_for_the_newest() -> None:
    node = QueueNode()
    queue = stream(node, max_bytes=5_000)
    publish_numbers(node, queue, *range(20), size=1000)
    node.after(2)
    left = numbers_left(node, queue)
    assert left
    assert left[-1] == 19
    assert len(left) <= 5


def test_long_messages_count_with_all_their_pieces() -> None:
    node = QueueNode()
    queue = stream(node, max_bytes=250_000)
    publish_numbers(node, queue, *range(6), size=100_000)
    node.after(2)
    assert numbers_left(node, queue) == [4, 5]


# Readers


def test_a_reader_in_the_middle_of_what_is_forgotten_goes_on_behind_it() -> None:
    node = QueueNode()
    queue = stream(node)
    publish_numbers(node, queue, *range(10))
    reader = node.consumer(queue, "g", prefetch="2", x_stream_offset="first")
    first, second = reader.take_all()
    assert [first.payload, second.payload] == [b"0", b"1"]
    node.make(queue, retention={"max_messages": 3})
    node.after(1)
    assert node.settle_all(reader) == ["7", "8", "9"]
    reader.acknowledge(p.PUBACK, first.packet_id)  # too late, and harmless
    node.work()
    publish_numbers(node, queue, 10)
    assert node.settle_all(reader) == ["10"]


def test_a_group_without_a_reader_goes_on_behind_what_is_forgotten() -> None:
    node = QueueNode()
    queue = stream(node)
    publish_numbers(node, queue, *range(10))
    reader = node.consumer(queue, "g", prefetch="2", x_stream_offset="first")
    reader.hang_up()
    node.make(queue, retention={"max_messages": 3})
    node.after(1)
    node.crash()
    assert node.drain(queue, "g") == ["7", "8", "9"]


def test_a_replay_from_below_the_start_begins_at_the_start() -> None:
    node = QueueNode()
    queue = stream(node, max_messages=3)
    publish_numbers(node, queue, *range(10))
    node.after(1)
    for start in ("first", "offset=0", "offset=2", "offset=8", "timestamp=0"):
        assert node.replay(queue, start) == ["7", "8", "9"], start
    assert node.replay(queue, "offset=9") == ["8", "9"]


def test_sequences_go_on_when_everything_is_forgotten() -> None:
    node = QueueNode()
    queue = stream(node, max_age="5s")
    publish_numbers(node, queue, 1, 2, 3)
    node.after(10)
    node.crash()
    publish_numbers(node, queue, 4)
    assert node.replay(queue, "offset=4") == ["4"]
    assert node.replay(queue, "offset=1") == ["4"]


def test_a_stream_within_its_limits_is_not_read_every_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = QueueNode()
    queue = stream(node, max_messages=1000, max_age="1h", max_bytes=10**9)
    node.consumer(queue, "g")
    publish_numbers(node, queue, *range(10))
    node.after(2)
    reads: list[int] = []
    real = queue_tables.read_chunk_at

    def read(view: ReadTransaction, queue_id: int, partition: int, seq: int) -> list[Record]:
        reads.append(seq)
        return real(view, queue_id, partition, seq)

    monkeypatch.setattr(queue_tables, "read_chunk_at", read)
    node.after(5)
    assert reads == []
