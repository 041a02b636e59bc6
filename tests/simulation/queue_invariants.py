"""What must hold in a work queue after every command, whatever came before (SPEC I1-I9).

Each unsettled message of a group which its lane has come to is in exactly one place, everything
which is counted equals what there is, and what the store is going to say covers what was done.
"""

from __future__ import annotations

from queuelake.engine.groups import Group
from queuelake.engine.kinds.durable import DurableQueue
from queuelake.engine.lane import Lane
from queuelake.engine.partition import Partition
from queuelake.engine.settled import BLOCK, Settled


def check_invariants(queue: DurableQueue) -> None:
    for partition in queue.partitions:
        check_settled(partition.gone)
        assert all(seq == entry.seq for seq, entry in partition.window.items())
    for group in queue.groups.values():
        for lane in group.lanes:
            _check_lane(queue, group, lane)
        unsettled = sum(lane.unsettled(queue.partitions[lane.number].last) for lane in group.lanes)
        assert group.unsettled == unsettled, (group.name, group.unsettled, unsettled)
        _check_consumers(group)
    loose = 0 if queue.groups else sum(partition.stored() for partition in queue.partitions)
    assert queue.loose == loose, (queue.loose, loose)
    depths = [group.unsettled for group in queue.groups.values()] or [queue.loose]
    assert queue.depth() == max(depths) + queue.delayed


def places(group: Group, lane: Lane) -> dict[str, list[int]]:
    """Where the messages of a lane are."""
    aside = [entry.seq for entries in lane.aside.values() for entry in entries]
    return {
        "held": list(lane.held),
        "returns": [entry.seq for entry in lane.returns],
        "waiting": [seq for _, seq, _ in lane.waiting],
        "aside": aside,
        "dying": list(lane.dying),
        "ranked": [
            seq
            for _, _, number, seq, _ in group.ranked
            if number == lane.number and seq in lane.unseen and seq not in aside
        ],
    }


def check_settled(settled: Settled) -> None:
    assert all(settled.blocks.values()), "a block without a bit"
    assert settled.count_above == sum(bits.bit_count() for bits in settled.blocks.values())
    if settled.blocks:
        block = min(settled.blocks)
        bits = settled.blocks[block]
        lowest = block * BLOCK + (bits & -bits).bit_length() - 1
        assert lowest > settled.upto + 1, (settled.upto, lowest)


def _check_lane(queue: DurableQueue, group: Group, lane: Lane) -> None:
    partition = queue.partitions[lane.number]
    check_settled(lane.settled)
    found = places(group, lane)
    everywhere = [seq for place in found.values() for seq in place]
    assert len(everywhere) == len(set(everywhere)), f"in two places: {found}"
    below = lane.settled.unsettled(1, lane.next - 1)
    assert sorted(seq for seq in everywhere if seq < lane.next) == below, (found, below, lane.next)
    assert {seq for seq in everywhere if seq >= lane.next} <= lane.ahead, (found, lane.ahead)
    assert all(seq >= lane.next for seq in lane.ahead), (lane.ahead, lane.next)
    assert lane.next <= partition.last + 1
    assert not [seq for seq in everywhere if seq in lane.settled]
    assert lane.aside_count == len(found["aside"])
    _check_gone(partition, lane)
    _check_what_the_store_is_told(lane, found)
    _check_keys(queue, lane)


def _check_gone(partition: Partition, lane: Lane) -> None:
    """Nothing is deleted which a group needs."""
    assert lane.settled.upto >= partition.gone.upto
    for block, bits in partition.gone.blocks.items():
        below = min(max(lane.settled.upto + 1 - block * BLOCK, 0), BLOCK)
        needed = bits & ~lane.settled.blocks.get(block, 0)
        assert not needed >> below, f"block {block}: gone, and not settled"


def _check_what_the_store_is_told(lane: Lane, found: dict[str, list[int]]) -> None:
    """After a crash, whatever was handed out is known to have been."""
    out = set(found["held"]) | set(found["returns"]) | set(found["waiting"])
    assert not out & lane.unseen, out & lane.unseen
    assert set(found["ranked"]) <= lane.unseen
    assert {seq for seq in out if seq >= lane.horizon} <= set(lane.tallies)
    assert set(found["returns"]) | set(found["waiting"]) <= set(lane.tallies)
    assert lane.horizon <= lane.next
    assert not [seq for seq in lane.unseen if seq < lane.horizon]
    assert not [seq for seq in lane.tallies if seq in lane.settled], "a tally of what is settled"
    known = max(lane.claimed, lane.claiming, lane.settled.upto + 1)
    assert lane.dirty or known >= lane.horizon
    for seq in lane.unseen:
        assert seq in found["aside"] or seq in found["ranked"], f"{seq} is in no line"


def _check_keys(queue: DurableQueue, lane: Lane) -> None:
    """A key waits while there is a reason, and not longer."""
    policy = queue.policy
    out: dict[int, int] = {}
    for held in lane.held.values():
        if held.entry.key and policy.key_inflight:
            out[held.entry.key] = out.get(held.entry.key, 0) + 1
    assert lane.out == out
    blocked = {key: 1 for key, count in out.items() if count >= policy.key_inflight}
    if queue.blocks_keys():
        for entry in [*lane.returns, *(entry for _, _, entry in lane.waiting)]:
            if entry.key:
                blocked[entry.key] = blocked.get(entry.key, 0) + 1
    assert lane.blocked == blocked, (lane.blocked, blocked)
    for key, entries in lane.aside.items():
        sequences = [entry.seq for entry in entries]
        assert sequences == sorted(sequences)
        assert key in blocked or (sequences[0], key) in lane.ready, f"key {key} is stuck"
    if queue.in_order():
        assert [entry.seq for entry in lane.returns] == sorted(e.seq for e in lane.returns)


def _check_consumers(group: Group) -> None:
    held: dict[str, int] = dict.fromkeys(group.consumers, 0)
    for lane in group.lanes:
        deadlines = [one.deadline_ms for one in lane.held.values()]
        assert deadlines == sorted(deadlines), "the first held is not the first to time out"
        for one in lane.held.values():
            held[one.consumer.name] = held.get(one.consumer.name, 0) + 1
    for name, consumer in group.consumers.items():
        assert consumer.held == held[name], (name, consumer.held, held[name])
    assert [consumer.name for consumer in group.order] == sorted(group.consumers)
    assert (group.absent_ms == 0) == bool(group.consumers)
