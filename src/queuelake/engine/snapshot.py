"""A queue's whole state as bytes: the same state gives the same bytes, on every replica.

Counters are left out, they say what happened and not what is. What is known of the store (`dirty`,
`claimed`) is left out too: each replica has its own, and a restored queue is about to be written as
a whole.
"""

from __future__ import annotations

import hashlib
import heapq

import msgspec

from queuelake.engine.commands import Enqueue
from queuelake.engine.dispatch import push_ranked
from queuelake.engine.groups import Consumer, Group
from queuelake.engine.kinds.durable import DurableQueue
from queuelake.engine.kinds.message_queue import MessageQueue
from queuelake.engine.lane import Held, Lane, Tally
from queuelake.engine.message import Entry
from queuelake.engine.partition import Partition
from queuelake.engine.policy.settings import Policy
from queuelake.engine.publishers import PublisherSession
from queuelake.engine.settled import Settled
from queuelake.engine.state import QueueState


class _Entry(msgspec.Struct, array_like=True):
    partition: int
    seq: int
    size: int
    key: int
    ts_ms: int
    expires_ms: int
    priority: int
    rest: bytes


class _Settled(msgspec.Struct, array_like=True):
    upto: int
    blocks: list[tuple[int, bytes]]


class _Held(msgspec.Struct, array_like=True):
    entry: _Entry
    consumer: str
    attempt: int
    first_ms: int
    deadline_ms: int


class _Lane(msgspec.Struct, array_like=True):
    settled: _Settled
    next: int
    horizon: int
    held: list[_Held]
    out: list[tuple[int, int]]
    tallies: list[tuple[int, int, int, int, int, str]]
    returns: list[_Entry]
    waiting: list[tuple[int, _Entry]]
    blocked: list[tuple[int, int]]
    aside: list[tuple[int, list[_Entry]]]
    dying: list[_Entry]
    unseen: list[int]
    ahead: list[int]


class _Group(msgspec.Struct, array_like=True):
    name: str
    id: int
    derived: bool
    pattern: bytes
    consumers: list[tuple[str, int, int, int, int]]
    lanes: list[_Lane]
    absent_ms: int
    unsettled: int
    ranked: list[_Entry]
    is_ranked: bool
    turn: int


class _Partition(msgspec.Struct, array_like=True):
    last: int
    gone: _Settled
    loading: int
    head_seq: int
    head_expires_ms: int
    window: list[_Entry]


class _Parked(msgspec.Struct, array_like=True):
    number: int
    entry: _Entry
    dedupe: bytes


class _Queue(msgspec.Struct, array_like=True):
    policy: dict[str, int | float | bool]
    partitions: list[_Partition]
    groups: list[_Group]
    next_group_id: int
    publishers: list[tuple[str, int, list[_Parked]]]
    ids: list[tuple[bytes, int]]
    soon: list[_Entry]
    delayed: int
    loose: int
    uses_priorities: bool
    returned: int
    now_ms: int
    payload_bytes: int
    dice: int


def snapshot(queue: QueueState) -> bytes:
    """The state, without payloads."""
    return msgspec.msgpack.encode(
        _Queue(
            {name: getattr(queue.policy, name) for name in sorted(_POLICY_FIELDS)},
            [_partition(partition) for partition in queue.partitions],
            [_group(group) for group in queue.groups.values()],
            queue.next_group_id,
            [
                (name, session.next, [_parked(n, one) for n, one in sorted(session.parked.items())])
                for name, session in queue.publishers.items()
            ],
            sorted(_known_ids(queue), key=lambda item: (item[1], item[0])),
            [_entry(item[3]) for item in sorted(queue.expiry.soon, key=lambda item: item[:3])],
            queue.delayed,
            queue.loose,
            queue.uses_priorities,
            queue.returned,
            queue.now_ms,
            queue.bytes,
            queue.dice,
        )
    )


def state_hash(queue: QueueState) -> bytes:
    return hashlib.blake2b(snapshot(queue), digest_size=16).digest()


def restore(data: bytes) -> QueueState:
    """The queue whose snapshot this is."""
    found = msgspec.msgpack.decode(data, type=_Queue)
    policy = Policy()
    for name, value in found.policy.items():
        setattr(policy, name, value)
    queue: QueueState = MessageQueue(policy) if policy.is_message_queue else DurableQueue(policy)
    queue.grow(len(found.partitions))
    for partition, stored in zip(queue.partitions, found.partitions, strict=True):
        _restore_partition(partition, stored)
    for stored_group in found.groups:
        queue.groups[stored_group.name] = _restore_group(stored_group)
    queue.next_group_id = found.next_group_id
    for name, next_number, parked in found.publishers:
        session = queue.publishers[name] = PublisherSession(next_number)
        for one in parked:
            command = Enqueue(_to_entry(one.entry), one.dedupe, 0, name, one.number)
            session.parked[one.number] = command
    for digest, until_ms in found.ids:
        queue.ids.restore(digest, until_ms)
    for stored_entry in found.soon:
        entry = _to_entry(stored_entry)
        heapq.heappush(queue.expiry.soon, (entry.expires_ms, entry.partition, entry.seq, entry))
    queue.delayed = found.delayed
    queue.loose = found.loose
    queue.uses_priorities = found.uses_priorities
    queue.returned = found.returned
    queue.now_ms = found.now_ms
    queue.bytes = found.payload_bytes
    queue.dice = found.dice
    return queue


_POLICY_FIELDS = tuple(
    name for name in dir(Policy) if not name.startswith("_") and not callable(getattr(Policy, name))
)


def _known_ids(queue: QueueState) -> list[tuple[bytes, int]]:
    """Without those whose time is over: when they are forgotten makes no difference."""
    return [(digest, until) for digest, until in queue.ids.until.items() if until > queue.now_ms]


def _entry(entry: Entry) -> _Entry:
    return _Entry(
        entry.partition,
        entry.seq,
        entry.size,
        entry.key,
        entry.ts_ms,
        entry.expires_ms,
        entry.priority,
        entry.rest,
    )


def _to_entry(e: _Entry) -> Entry:
    return Entry(e.partition, e.size, e.key, e.ts_ms, e.expires_ms, e.priority, e.rest, e.seq)


def _parked(number: int, command: object) -> _Parked:
    assert isinstance(command, Enqueue)
    return _Parked(number, _entry(command.entry), command.dedupe)


def _settled(settled: Settled) -> _Settled:
    blocks = [(block, bits.to_bytes(128, "little")) for block, bits in settled.blocks.items()]
    return _Settled(settled.upto, sorted(blocks))


def _to_settled(stored: _Settled) -> Settled:
    settled = Settled(stored.upto)
    for block, bits in stored.blocks:
        settled.restore(block, int.from_bytes(bits, "little"))
    return settled


def _partition(partition: Partition) -> _Partition:
    return _Partition(
        partition.last,
        _settled(partition.gone),
        partition.loading,
        partition.head_seq,
        partition.head_expires_ms,
        [_entry(entry) for entry in partition.window.values()],
    )


def _restore_partition(partition: Partition, stored: _Partition) -> None:
    partition.last = stored.last
    partition.gone = _to_settled(stored.gone)
    partition.loading = stored.loading
    partition.head_seq = stored.head_seq
    partition.head_expires_ms = stored.head_expires_ms
    partition.window = {one.seq: _to_entry(one) for one in stored.window}


def _lane(lane: Lane) -> _Lane:
    return _Lane(
        _settled(lane.settled),
        lane.next,
        lane.horizon,
        [
            _Held(_entry(h.entry), h.consumer.name, h.attempt, h.first_ms, h.deadline_ms)
            for h in lane.held.values()
        ],
        sorted(lane.out.items()),
        [_tally(seq, lane.tallies[seq]) for seq in sorted(lane.tallies)],
        [_entry(entry) for entry in lane.returns],
        [(item[0], _entry(item[2])) for item in sorted(lane.waiting, key=lambda item: item[:2])],
        sorted(lane.blocked.items()),
        [(key, [_entry(entry) for entry in lane.aside[key]]) for key in sorted(lane.aside)],
        [_entry(lane.dying[seq]) for seq in sorted(lane.dying)],
        sorted(lane.unseen),
        sorted(lane.ahead),
    )


def _tally(seq: int, tally: Tally) -> tuple[int, int, int, int, int, str]:
    return seq, tally.attempts, tally.due_ms, tally.first_ms, tally.line, tally.without


def _group(group: Group) -> _Group:
    return _Group(
        group.name,
        group.id,
        group.derived,
        group.pattern,
        [(one.name, one.prefetch, one.tag, one.held, one.turn) for one in group.order],
        [_lane(lane) for lane in group.lanes],
        group.absent_ms,
        group.unsettled,
        [_entry(item[4]) for item in sorted(group.ranked, key=lambda item: item[:4])],
        group.is_ranked,
        group.turn,
    )


def _restore_group(stored: _Group) -> Group:
    group = Group(stored.name, stored.id, stored.derived, stored.pattern)
    for name, prefetch, tag, held, turn in stored.consumers:
        consumer = group.consumers[name] = Consumer(name, prefetch, tag)
        consumer.held = held
        consumer.turn = turn
    former: dict[str, Consumer] = {}  # left, and still have something in hand
    group.lanes = [
        _restore_lane(number, lane, group, former) for number, lane in enumerate(stored.lanes)
    ]
    group.absent_ms = stored.absent_ms
    group.unsettled = stored.unsettled
    for item in stored.ranked:
        push_ranked(group, _to_entry(item))
    group.is_ranked = stored.is_ranked
    group.turn = stored.turn
    group.rebalance()
    return group


def _restore_lane(number: int, stored: _Lane, group: Group, former: dict[str, Consumer]) -> Lane:
    lane = Lane(number, _to_settled(stored.settled))
    lane.next = stored.next
    lane.horizon = stored.horizon
    for one in stored.held:
        consumer = group.consumers.get(one.consumer) or former.get(one.consumer)
        if consumer is None:
            consumer = former[one.consumer] = Consumer(one.consumer, 0, 0)
        if one.consumer in former:
            consumer.held += 1
        entry = _to_entry(one.entry)
        lane.held[entry.seq] = Held(entry, consumer, one.attempt, one.first_ms, one.deadline_ms)
    lane.out = dict(stored.out)
    for seq, attempts, due_ms, first_ms, line, without in stored.tallies:
        tally = lane.tallies[seq] = Tally(attempts, due_ms, first_ms)
        tally.line = line
        tally.without = without
    lane.returns = [_to_entry(one) for one in stored.returns]
    for due_ms, waiting in stored.waiting:
        lane.wait(_to_entry(waiting), due_ms)
    lane.blocked = dict(stored.blocked)
    for key, entries in stored.aside:
        lane.aside[key] = [_to_entry(one) for one in entries]
        lane.aside_count += len(entries)
    lane.list_ready()
    lane.dying = {one.seq: _to_entry(one) for one in stored.dying}
    lane.unseen = set(stored.unseen)
    lane.ahead = set(stored.ahead)
    return lane
