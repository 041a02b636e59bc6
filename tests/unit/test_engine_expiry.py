"""Messages which nobody took in time (D28)."""

from __future__ import annotations

from queuelake.engine import commands as c
from queuelake.engine.expiry import SOON_MAX, Expiry
from queuelake.engine.message import Entry
from tests.unit.engine_queue import DrivenQueue

TTL_MS = 10_000


def test_an_expired_message_is_not_delivered() -> None:
    queue = DrivenQueue(ttl_ms=0)
    queue.join()
    queue.publish(ttl_ms=1000)
    queue.publish()
    queue.now_ms += 1000  # no tick yet
    assert queue.sequences() == [2]
    assert queue.machine.counters.expired == 1
    assert queue.machine.depth() == 1


def test_an_expired_message_is_removed_in_the_background() -> None:
    queue = DrivenQueue(ttl_ms=TTL_MS)
    queue.join()
    queue.leave()
    for _ in range(3):
        queue.publish(ttl_ms=TTL_MS)
    queue.after(TTL_MS - 1)
    assert queue.machine.depth() == 3
    queue.after(1)
    assert queue.machine.depth() == 0
    assert queue.machine.partitions[0].stored() == 0


def test_a_short_life_ends_behind_a_long_one() -> None:
    queue = DrivenQueue(ttl_ms=TTL_MS)
    queue.join()
    queue.leave()
    queue.publish(ttl_ms=TTL_MS)
    queue.publish(ttl_ms=500)
    queue.after(500)
    assert queue.machine.depth() == 1


def test_messages_of_a_queue_without_a_group_expire() -> None:
    queue = DrivenQueue(ttl_ms=TTL_MS)
    queue.publish(ttl_ms=TTL_MS)
    queue.publish(ttl_ms=500)
    queue.after(500)
    assert queue.machine.depth() == 1
    queue.after(TTL_MS)
    assert queue.machine.depth() == 0
    assert queue.machine.counters.expired == 2
    assert queue.machine.partitions[0].gone.upto == 2


def test_heads_which_are_not_in_memory_expire_too() -> None:
    queue = DrivenQueue(window_max=2, ttl_ms=TTL_MS)
    queue.join()
    queue.leave()
    for _ in range(20):
        queue.publish(ttl_ms=TTL_MS)
    queue.now_ms += TTL_MS
    for _ in range(20):
        queue.after(1000)
    assert queue.machine.depth() == 0


def test_a_message_in_hand_does_not_expire() -> None:
    queue = DrivenQueue()
    queue.join()
    queue.publish(ttl_ms=500)
    queue.dispatch()
    queue.after(500)
    assert queue.ack(1) == 0
    assert queue.machine.counters.expired == 0


def test_a_message_which_returns_too_late_expires() -> None:
    queue = DrivenQueue()
    queue.join()
    queue.publish(ttl_ms=500)
    queue.dispatch()
    queue.after(500)
    queue.nack(1)
    assert queue.dispatch() == []
    assert queue.machine.depth() == 0


def test_a_message_expires_while_it_waits_for_its_retry_and_frees_its_key() -> None:
    queue = DrivenQueue(prefetch=1)
    queue.join()
    queue.publish(key=5, ttl_ms=500)
    queue.publish(key=5)
    queue.dispatch()
    queue.nack(1, delay_ms=60_000)
    assert queue.dispatch() == []
    queue.after(500)
    assert queue.sequences() == [2]


def test_an_expired_message_becomes_one_dead_letter_however_many_groups_there_are() -> None:
    queue = DrivenQueue(expire_to_dlq=True)
    queue.join(group="a")
    queue.join(group="b")
    queue.leave(group="a")
    queue.leave(group="b")
    queue.publish(ttl_ms=500)
    queue.after(500)
    assert [(dead.reason, dead.attempts) for dead in queue.dead] == [("expired", 0)]
    assert queue.machine.depth() == 1  # until the copy is stored
    queue.bury()
    assert queue.machine.depth() == 0


def test_an_expired_message_of_a_queue_without_a_group_becomes_a_dead_letter() -> None:
    queue = DrivenQueue(expire_to_dlq=True)
    queue.publish(ttl_ms=500)
    queue.after(500)
    assert [(dead.group, dead.reason) for dead in queue.dead] == [("", "expired")]
    assert queue.machine.depth() == 0


def test_an_expired_message_is_dead_wherever_its_lane_has_come() -> None:
    queue = DrivenQueue(expire_to_dlq=True, key_inflight=1)
    queue.join()
    for _ in range(3):
        queue.publish(key=5, ttl_ms=500)
    queue.publish(key=5)
    assert queue.sequences() == [1]  # 2 and 3 are set aside
    queue.after(500)
    assert [dead.entry.seq for dead in queue.dead] == [2, 3]
    queue.ack(1)
    assert queue.sequences() == [4]
    queue.bury()
    queue.ack(4)
    assert queue.machine.depth() == 0


def test_a_dead_letter_which_expires_is_no_dead_letter_again() -> None:
    queue = DrivenQueue(expire_to_dlq=True, dlq_enabled=False)
    queue.publish(ttl_ms=500)
    queue.after(500)
    assert queue.dead == []


# What was found in the store


def stored_entry(queue: DrivenQueue, seq: int) -> Entry:
    return queue.stored[(0, seq)]


def test_an_entry_found_in_the_store_expires_when_its_time_is_over() -> None:
    queue = DrivenQueue()
    queue.publish_many(3)
    entry = stored_entry(queue, 2)
    entry.expires_ms = queue.now_ms + 500  # as if the machine had never heard of it
    queue.apply(c.Expire([entry]))
    assert queue.machine.depth() == 3
    queue.now_ms += 500
    queue.apply(c.Expire([entry]))
    queue.apply(c.Expire([entry]))
    assert queue.machine.depth() == 2
    assert queue.machine.counters.expired == 1
    queue.join()
    assert queue.sequences() == [1, 3]


def test_an_entry_found_in_the_store_which_somebody_holds_stays() -> None:
    queue = DrivenQueue()
    queue.join()
    queue.publish()
    queue.publish(ttl_ms=500)
    assert queue.sequences() == [1, 2]
    queue.now_ms += 500
    queue.apply(c.Expire([stored_entry(queue, 2)]))
    assert queue.machine.depth() == 2
    assert queue.ack(2) == 0


def test_what_there_is_no_room_to_remember_is_said() -> None:
    found = Expiry()
    for seq, expires_ms in enumerate([100] * SOON_MAX + [400, 300, 500], 1):
        found.added(Entry(0, 1, 0, 0, expires_ms, seq=seq), TTL_MS)
    assert len(found.soon) == SOON_MAX
    assert found.missed_ms == 300


def test_a_held_message_which_expires_behind_others_is_not_forgotten() -> None:
    queue = DrivenQueue()
    queue.join()
    queue.publish()
    queue.publish(ttl_ms=500)
    queue.dispatch()
    queue.after(500)
    assert queue.machine.expiry.missed_ms == queue.now_ms


def test_a_queue_waits_for_what_expires_within_a_minute() -> None:
    queue = DrivenQueue()
    queue.publish(ttl_ms=120_000)
    queue.after(1)
    assert not queue.machine.is_waiting()
    queue.after(60_000)
    assert queue.machine.is_waiting()
