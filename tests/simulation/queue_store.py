"""A store for one simulated queue: what a group commit writes, and the machine built from it.

It holds what the lanes say it must (see `engine/lane.py`): messages, what is settled, how far
hand-outs were claimed, tallies. `rebuild` is the reference for reading a queue back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from queuelake.engine.groups import Group
from queuelake.engine.kinds.durable import DurableQueue
from queuelake.engine.kinds.message_queue import MessageQueue
from queuelake.engine.lane import Lane, Tally
from queuelake.engine.message import Entry
from queuelake.engine.policy.settings import Policy
from queuelake.engine.settled import Settled
from queuelake.engine.settling import line_up
from queuelake.engine.state import QueueState

Row: TypeAlias = tuple[Any, ...]
Key: TypeAlias = tuple[Any, ...]
Change: TypeAlias = tuple[str, Key, Row | None]

OF_GROUPS = ("lanes", "settled", "tallies")
TABLES = ("queue", "messages", "partitions", "gone", "groups", "ids", *OF_GROUPS)


class Store:
    """Rows by table and key."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[Key, Row]] = {name: {} for name in TABLES}

    def commit(self, changes: Iterable[Change]) -> None:
        for table, key, row in changes:
            if row is None:
                self.tables[table].pop(key, None)
                if table == "groups":
                    self._forget_group(key[0])
            else:
                self.tables[table][key] = row

    def _forget_group(self, group_id: int) -> None:
        for name in OF_GROUPS:
            rows = self.tables[name]
            self.tables[name] = {key: row for key, row in rows.items() if key[0] != group_id}

    def below(self, table: str, *prefix: int) -> list[tuple[int, Row]]:
        """The last part of the key, and the row, of all keys which begin so."""
        rows = self.tables[table]
        return sorted((key[-1], rows[key]) for key in rows if key[:-1] == prefix)


# Writing


def changes_of(queue: QueueState, fresh: list[Entry], forgotten: list[int]) -> list[Change]:
    """What a group commit writes: only what is marked as different."""
    changes: list[Change] = [("messages", (e.partition, e.seq), row_of(e)) for e in fresh]
    changes.append(("queue", (), (queue.next_group_id, queue.uses_priorities)))
    for group_id in forgotten:
        changes.append(("groups", (group_id,), None))
    for partition in queue.partitions:
        gone = partition.gone
        changes.append(("partitions", (partition.number,), (gone.upto, partition.last)))
        changes += _blocks("gone", (partition.number,), gone)
    for group in queue.groups.values():
        if group.dirty:
            group.dirty = False
            row = (group.name, group.derived, group.absent_ms)
            changes.append(("groups", (group.id,), row))
        for lane in group.lanes:
            if lane.dirty or (not group.consumers and lane.claimed > lane.horizon):
                changes += _lane(group, lane, queue.partitions[lane.number].last)
    changes += [("ids", (digest,), (queue.ids.until[digest],)) for digest in queue.ids.added]
    queue.ids.added.clear()
    return changes


def _lane(group: Group, lane: Lane, last: int) -> list[Change]:
    lane.dirty = False
    key = (group.id, lane.number)
    claimed = lane.claim(last, bool(group.consumers))
    changes: list[Change] = [("lanes", key, (lane.settled.upto, claimed))]
    changes += _blocks("settled", key, lane.settled)
    for seq in lane.dirty_tallies:
        tally = lane.tallies.get(seq)
        row = None if tally is None else (tally.attempts, tally.due_ms, tally.first_ms)
        changes.append(("tallies", (*key, seq), row))
    lane.dirty_tallies.clear()
    return changes


def _blocks(table: str, key: tuple[int, ...], settled: Settled) -> list[Change]:
    changes: list[Change] = []
    for block in settled.dirty:
        bits = settled.blocks.get(block)
        changes.append((table, (*key, block), None if bits is None else (bits,)))
    settled.dirty.clear()
    return changes


def tallies_of(queue: QueueState) -> dict[Key, Row]:
    """What the store must say of how messages fared."""
    return {
        (group.id, lane.number, seq): (tally.attempts, tally.due_ms, tally.first_ms)
        for group in queue.groups.values()
        for lane in group.lanes
        for seq, tally in lane.tallies.items()
    }


def row_of(e: Entry) -> Row:
    return (e.partition, e.size, e.key, e.ts_ms, e.expires_ms, e.priority, e.rest, e.seq)


def entry_of(row: Row) -> Entry:
    return Entry(*row)


# Reading


def rebuild(store: Store, policy: Policy, now_ms: int) -> QueueState:
    """The machine of a queue from its rows: nobody holds anything now."""
    queue: QueueState = MessageQueue(policy) if policy.is_message_queue else DurableQueue(policy)
    queue.now_ms = now_ms
    if row := store.tables["queue"].get(()):
        queue.next_group_id, queue.uses_priorities = row
    for partition in queue.partitions:
        upto, partition.last = store.tables["partitions"].get((partition.number,), (0, 0))
        partition.gone = _settled(store, upto, "gone", partition.number)
    for key, row in sorted(store.tables["groups"].items()):
        name, derived, absent_ms = row
        group = Group(name, key[0], derived, b"")
        group.absent_ms = absent_ms or now_ms
        queue.groups[group.name] = group
        for partition in queue.partitions:
            lane = _rebuild_lane(store, queue, group, partition.number)
            group.unsettled += lane.unsettled(partition.last)
    if not queue.groups:
        queue.loose = sum(partition.stored() for partition in queue.partitions)
    for key, row in store.tables["ids"].items():
        queue.ids.until[key[0]] = row[0]
    return queue


def _rebuild_lane(store: Store, queue: QueueState, group: Group, number: int) -> Lane:
    """Everything below `claimed`, and everything with a tally, may have been handed out."""
    partition = queue.partitions[number]
    row = store.tables["lanes"].get((group.id, number))
    if row is None:
        lane = Lane(number, partition.gone.copy())
    else:
        lane = Lane(number, _settled(store, row[0], "settled", group.id, number))
        lane.claimed = row[1]
        lane.next = lane.horizon = max(lane.claimed, lane.settled.upto + 1)
    group.lanes.append(lane)
    for seq, tally in store.below("tallies", group.id, number):
        lane.tallies[seq] = Tally(*tally)
    for seq in sorted({*lane.settled.unsettled(1, lane.next - 1), *lane.tallies}):
        entry = entry_of(store.tables["messages"][(number, seq)])
        if seq >= lane.next:
            lane.ahead.add(seq)
        if seq not in lane.tallies:
            lane.come_back(entry, 1, 0, 0)
        line_up(queue, lane, entry, lane.tallies[seq].due_ms)
    return lane


def _settled(store: Store, upto: int, table: str, *prefix: int) -> Settled:
    settled = Settled(upto)
    for block, row in store.below(table, *prefix):
        settled.restore(block, row[0])
    return settled
