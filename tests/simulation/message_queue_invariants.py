"""What must hold in a message queue after every command, whatever came before.

As in `queue_invariants`, but for what a message queue does otherwise: a message which left the
queue may still be in hand, and what is set aside is set aside for a consumer.
"""

from __future__ import annotations

from queuelake.engine.dispatch import ASIDE_MAX
from queuelake.engine.groups import GROUP, Group
from queuelake.engine.kinds.message_queue import MessageQueue
from queuelake.engine.lane import Lane
from queuelake.engine.policy.settings import STICKY_KEY
from queuelake.engine.policy.strategy import home_of
from tests.simulation.queue_invariants import check_settled


def check_message_queue(queue: MessageQueue) -> None:
    assert list(queue.groups) == [GROUP]
    assert len(queue.partitions) == 1
    (partition,) = queue.partitions
    group = queue.groups[GROUP]
    (lane,) = group.lanes
    check_settled(lane.settled)
    check_settled(partition.gone)
    assert partition.gone.upto == lane.settled.upto
    assert group.unsettled == lane.unsettled(partition.last) == queue.depth()
    assert all(seq == entry.seq for seq, entry in partition.window.items())
    assert queue.bytes >= 0
    assert group.unsettled or not queue.bytes
    _check_places(lane, partition.last)
    _check_what_the_store_is_told(lane)
    _check_consumers(group, lane)
    _check_homes(queue, group, lane)


def places_of(lane: Lane) -> dict[str, list[int]]:
    """Where the messages are which the lane has come to and which are in the queue."""
    return {
        "held": [seq for seq in lane.held if seq not in lane.settled],
        "returns": [entry.seq for entry in lane.returns],
        "waiting": [seq for _, seq, _ in lane.waiting],
        "aside": [entry.seq for entries in lane.aside.values() for entry in entries],
        "dying": list(lane.dying),
    }


def _check_places(lane: Lane, last: int) -> None:
    found = places_of(lane)
    everywhere = [seq for place in found.values() for seq in place]
    assert len(everywhere) == len(set(everywhere)), f"in two places: {found}"
    below = lane.settled.unsettled(1, lane.next - 1)
    assert sorted(seq for seq in everywhere if seq < lane.next) == below, (found, below, lane.next)
    assert {seq for seq in everywhere if seq >= lane.next} <= lane.ahead, (found, lane.ahead)
    assert all(seq >= lane.next for seq in lane.ahead), (lane.ahead, lane.next)
    assert lane.next <= last + 1
    assert not [seq for seq in everywhere if seq in lane.settled]
    assert lane.aside_count == len(found["aside"])
    assert all(lane.aside.values()), "an empty line"


def _check_what_the_store_is_told(lane: Lane) -> None:
    """After a crash, whatever was handed out is known to have been."""
    found = places_of(lane)
    out = set(found["held"]) | set(found["returns"]) | set(found["waiting"])
    assert not out & lane.unseen, out & lane.unseen
    assert {seq for seq in out if seq >= lane.horizon} <= set(lane.tallies)
    assert set(found["returns"]) | set(found["waiting"]) <= set(lane.tallies)
    assert lane.horizon <= lane.next
    assert not [seq for seq in lane.unseen if seq < lane.horizon]
    assert lane.unseen <= set(found["aside"])
    assert set(found["aside"]) - lane.unseen <= set(lane.tallies)
    assert not [seq for seq in lane.tallies if seq in lane.settled], "a tally of what is settled"
    known = max(lane.claimed, lane.claiming, lane.settled.upto + 1)
    assert lane.dirty or known >= lane.horizon


def _check_consumers(group: Group, lane: Lane) -> None:
    held: dict[str, int] = dict.fromkeys(group.consumers, 0)
    for one in lane.held.values():
        held[one.consumer.name] += 1  # nobody who left holds anything
    for name, consumer in group.consumers.items():
        assert consumer.held == held[name], (name, consumer.held, held[name])
    assert [consumer.name for consumer in group.order] == sorted(group.consumers)
    deadlines = [one.deadline_ms for one in lane.held.values()]
    assert deadlines == sorted(deadlines), "the first held is not the first to time out"


def _check_homes(queue: MessageQueue, group: Group, lane: Lane) -> None:
    """What is set aside waits for its consumer, in order."""
    for slot, entries in lane.aside.items():
        sequences = [entry.seq for entry in entries]
        assert sequences == sorted(sequences)
        if queue.policy.strategy != STICKY_KEY or not group.order:
            assert slot == 0
        elif len(group.order) > 1:
            for entry in entries:
                tally = lane.tallies.get(entry.seq)
                without = "" if tally is None else tally.without
                assert home_of(entry.key, group.order, without) == slot
    assert len(lane.unseen) <= ASIDE_MAX
