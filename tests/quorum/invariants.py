"""What must hold in a quorum queue after every command: I1 to I9, and a little more."""

from __future__ import annotations

from collections import Counter

from queuelake.engine.quorum.machine import QuorumQueue
from queuelake.engine.quorum.message import Message
from queuelake.engine.quorum.querying import live_indexes


class Watch:
    """What is known of earlier states of one queue."""

    def __init__(self) -> None:
        self.now_ms = 0  # the latest time of a command
        self._numbers: dict[str, int] = {}
        self._next_ids: dict[int, int] = {}

    def check(self, queue: QuorumQueue) -> None:
        check_places(queue)
        check_counters(queue)
        check_consumers(queue)
        check_sessions(queue)
        self._check_what_rises(queue)
        assert queue.now_ms == self.now_ms, "I9"
        assert not (queue.lines.count and queue.service.in_order()), "a message nobody is given"

    def _check_what_rises(self, queue: QuorumQueue) -> None:
        numbers = {pid: one.numbers.next for pid, one in queue.enqueuers.items()}
        for pid, number in numbers.items():
            assert number >= self._numbers.get(pid, 1), "I4"
        self._numbers = numbers
        for key, consumer in queue.consumers.items():
            assert consumer.next_id >= self._next_ids.get(key, 0), "I5"
            assert all(msg_id < consumer.next_id for msg_id in consumer.held), "I5"
            self._next_ids[key] = consumer.next_id


def places(queue: QuorumQueue) -> dict[str, list[Message]]:
    """Every message of the queue, by where it is."""
    return {
        "ready": queue.lines.in_order()[len(queue.lines.returns) :],
        "returns": list(queue.lines.returns),
        "delayed": list(queue.delayed.values()),
        "held": [one for consumer in queue.consumers.values() for one in consumer.held.values()],
        "letters": [one.message for one in (*queue.letters, *queue.letters_held.values())],
    }


def check_places(queue: QuorumQueue) -> None:
    found = places(queue)
    assert queue.total == sum(map(len, found.values())), "I1"
    live = live_indexes(queue)
    assert len(live) == len(set(live)), "I2"
    parked = sum(len(one.numbers.parked) for one in queue.enqueuers.values())
    assert len(live) == queue.total + parked, "I2"
    for message in found["ready"]:
        assert message.acquired == 0, "what was handed out is among the returns, not the ready"
    for level, line in queue.lines.levels.items():
        assert bool(line) == bool(queue.lines.mask >> level & 1)
        assert all(message.priority == level for message in line)
    deferred = [index for indexes in queue.tokens.values() for index in indexes]
    assert len(deferred) == len(set(deferred))
    assert set(deferred) | set(queue.delays.due_ms) == set(queue.delayed)


def check_counters(queue: QuorumQueue) -> None:
    found = {where: sum(one.size for one in place) for where, place in places(queue).items()}
    assert queue.lines.size == found["ready"] + found["returns"], "I6"
    assert queue.held_bytes == found["held"], "I6"
    assert queue.delayed_bytes == found["delayed"], "I6"
    assert queue.letters_bytes == found["letters"], "I6"
    assert queue.held_count == len(places(queue)["held"])
    assert queue.lines.count == len(queue.lines.in_order())


def check_consumers(queue: QuorumQueue) -> None:
    served = {one.key for one in queue.service.in_order()}
    assert len(served) == len(queue.service.in_order()), "in line twice"
    for key, one in queue.consumers.items():
        assert key == one.key
        assert one.credit >= 0, "I3"
        if not one.credited:
            assert one.credit == max(0, one.prefetch - len(one.held)), "I3"
        assert one.in_service == (key in served)
        assert one.in_service == one.may_be_served(), "I7"
        assert one.held or not one.cancelled, "cancelled, with nothing to settle"
        assert one.suspected or key not in queue.suspicions.due_ms
        locks = [message.lock_ms for message in one.held.values() if message.lock_ms]
        assert not locks or queue.deadlines.due_ms[key] <= min(locks), "a deadline is missed"
    up = [one for one in queue.consumers.values() if one.is_up() and not one.waiting]
    if queue.policy.single_active_consumer:
        assert len(up) <= 1, "I8"
        assert up == ([queue.active] if queue.active else []), "I8"
        if not up:
            assert not any(one.is_up() for one in queue.consumers.values()), "nobody is active"
    else:
        assert queue.active is None
        assert not any(one.waiting or one.quiescing for one in queue.consumers.values())


def check_sessions(queue: QuorumQueue) -> None:
    pids = Counter(one.pid for one in queue.consumers.values())
    pids.update(queue.enqueuers.keys())
    pids.update([queue.worker] if queue.worker else [])
    assert queue.sessions == dict(pids)
    assert {(one.pid, one.tag): key for key, one in queue.consumers.items()} == queue.ids
    for enqueuer in queue.enqueuers.values():
        assert bool(enqueuer.blocked_index) == queue.rejecting
        assert all(seq > enqueuer.numbers.next for seq in enqueuer.numbers.parked)
