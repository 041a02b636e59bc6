"""Commands of publishers: is a message new, is there room for it, where does it go."""

from __future__ import annotations

from queuelake.engine import commands as c
from queuelake.engine import events as e
from queuelake.engine.dispatch import rank
from queuelake.engine.groups import Group
from queuelake.engine.leaving import missing_head
from queuelake.engine.message import PRIORITY_DEFAULT, Entry
from queuelake.engine.partition import Partition
from queuelake.engine.policy.settings import NONE
from queuelake.engine.publishers import NEW, PARKED, REPEATED, PublisherSession
from queuelake.engine.state import DUPLICATE, FULL, LIMIT, OUT_OF_ORDER, TOO_LARGE, QueueState
from queuelake.engine.upkeep import remove


def enqueue(state: QueueState, command: c.Enqueue) -> None:
    session: PublisherSession | None = None
    if command.number:
        session = state.publishers.get(command.publisher) or PublisherSession()
        verdict = session.check(command.number)
        if verdict != NEW:
            if verdict == PARKED:
                session.parked[command.number] = command
                state.remember(command.publisher, session)
            state.reply = DUPLICATE if verdict == REPEATED else OUT_OF_ORDER
            return
    state.reply = _store(state, command)
    if session is not None and state.reply in (0, DUPLICATE):
        _go_on(state, command.publisher, session)


def _store(state: QueueState, command: c.Enqueue) -> int:
    """Append the message, or say why not."""
    entry = command.entry
    if command.cause == c.PUBLISHED:
        refusal = _refusal(state, entry.size, command.dedupe)
        if refusal:
            return refusal
    elif command.cause == c.DUE:
        state.delayed = max(0, state.delayed - 1)
    _append(state, entry)
    return 0


def accept(state: QueueState, command: c.Accept) -> None:
    """A delayed message is kept elsewhere until it is due, but counts from now on."""
    state.reply = _refusal(state, command.size, command.dedupe)
    if not state.reply:
        state.delayed += 1


def _append(state: QueueState, entry: Entry) -> None:
    state.partitions[entry.partition].append(entry)
    if entry.priority != PRIORITY_DEFAULT:
        # It goes before messages which are here longer: no lane waits until it comes to it.
        state.uses_priorities = True
        if state.policy.ordering == NONE:
            for group in state.groups.values():
                if not group.pattern:
                    rank(group, group.lanes[entry.partition], entry)
    if entry.expires_ms:
        state.expiry.added(entry, state.policy.ttl_ms)
    for group in state.groups.values():
        group.unsettled += 1
    if not state.groups:
        state.loose += 1
    state.counters.enqueued += 1


def _go_on(state: QueueState, publisher: str, session: PublisherSession) -> None:
    """One number further; what was parked behind it follows, as far as there is room."""
    state.remember(publisher, session)
    session.next += 1
    while (parked := session.take_parked()) is not None:
        assert isinstance(parked, c.Enqueue)
        if _store(state, parked) not in (0, DUPLICATE):
            return  # nobody was told that it is stored: it comes again
        session.next += 1


def _refusal(state: QueueState, size: int, dedupe: bytes) -> int:
    """Why a message is not stored; 0 makes room for it and remembers its id."""
    policy = state.policy
    if size > policy.message_bytes_max:
        state.counters.refused += 1
        return TOO_LARGE
    if dedupe and state.ids.is_known(dedupe, state.now_ms):
        state.counters.duplicates += 1
        return DUPLICATE
    if not policy.is_stream and policy.depth_max and state.depth() >= policy.depth_max:
        if not (policy.drop_head and make_room(state)):
            state.counters.refused += 1
            return FULL
    if dedupe and policy.dedupe_window_ms:
        state.ids.add(dedupe, state.now_ms, state.now_ms + policy.dedupe_window_ms)
    return 0


def missing_heads(state: QueueState, size: int = 0) -> list[tuple[int, int]]:
    """Partition and sequence of the messages which must be loaded before one can be dropped.

    In a message queue it depends on the size of the message which needs the room.
    """
    policy = state.policy
    if policy.is_message_queue:
        head = missing_head(state, size)
        return [(0, head)] if head else []
    if not policy.drop_head or not policy.depth_max or state.depth() < policy.depth_max:
        return []
    missing: list[tuple[int, int]] = []
    groups: list[Group | None] = [*_full_groups(state)] if state.groups else [None]
    for group in groups:
        for partition in state.partitions:
            seq = _first_unheld(state, group, partition)
            if seq and seq not in partition.window:
                missing.append((partition.number, seq))
    return missing


def make_room(state: QueueState) -> bool:
    """Drop the oldest message which nobody holds, of each group which has its full number."""
    oldest = [_oldest_unheld(state, group) for group in _full_groups(state)]
    if not state.groups:
        oldest = [_oldest_unheld(state, None)]
    if None in oldest or not oldest:
        return False
    for entry in oldest:
        assert entry is not None
        # One message may make room in many groups.
        is_gone = state.is_deleted(state.partitions[entry.partition], entry.seq)
        if not is_gone and state.depth() >= state.policy.depth_max:
            remove(state, entry.partition, entry.seq)
            state.counters.dropped += 1
            state.note(e.DROPPED, entry, reason=LIMIT)
    return True


def _full_groups(state: QueueState) -> list[Group]:
    room = state.policy.depth_max - state.delayed
    return [group for group in state.groups.values() if group.unsettled >= room]


def _oldest_unheld(state: QueueState, group: Group | None) -> Entry | None:
    oldest: Entry | None = None
    for partition in state.partitions:
        seq = _first_unheld(state, group, partition)
        entry = partition.window.get(seq) if seq else None
        if entry is not None and (oldest is None or entry.ts_ms < oldest.ts_ms):
            oldest = entry
    return oldest


def _first_unheld(state: QueueState, group: Group | None, partition: Partition) -> int:
    """The oldest sequence which the group needs and which is in nobody's hands; 0: none."""
    if group is None:
        seq = partition.gone.upto + 1
        return seq if seq <= partition.last else 0
    own = group.lanes[partition.number]
    lanes = [one.lanes[partition.number] for one in state.groups.values()]
    seq = own.first_unheld()
    while seq <= partition.last:
        if not any([seq in lane.held or seq in lane.dying for lane in lanes]):
            return seq
        seq = own.settled.next_unsettled(seq + 1)
    return 0
