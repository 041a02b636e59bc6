"""Commands of publishers: is a message new, is there room for it, where does it go."""

from __future__ import annotations

from queuelake.engine import commands as c
from queuelake.engine.dispatch import rank
from queuelake.engine.message import PRIORITY_DEFAULT, Entry
from queuelake.engine.partition import Partition
from queuelake.engine.policy.settings import NONE
from queuelake.engine.publishers import NEW, PARKED, REPEATED, PublisherSession
from queuelake.engine.state import DUPLICATE, FULL, OUT_OF_ORDER, TOO_LARGE, QueueState
from queuelake.engine.upkeep import remove


def enqueue(state: QueueState, command: c.Enqueue) -> None:
    session: PublisherSession | None = None
    if command.number:
        session = state.publishers.get(command.publisher) or PublisherSession()
        verdict = session.check(command.number)
        if verdict != NEW:
            if verdict == PARKED:
                session.parked[command.number] = command
                state.publishers[command.publisher] = session
            state.reply = DUPLICATE if verdict == REPEATED else OUT_OF_ORDER
            return
    entry = command.entry
    if command.cause == c.PUBLISHED:
        state.reply = _refusal(state, entry.size, command.dedupe)
        if state.reply:
            return
    elif command.cause == c.DUE:
        state.delayed -= 1
    _append(state, entry)
    if session is not None:
        _go_on(state, command.publisher, session)


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
    """One number further; what was parked behind it follows."""
    session.next += 1
    state.publishers[publisher] = session
    parked = session.take_parked()
    if parked is not None:
        assert isinstance(parked, c.Enqueue)
        enqueue(state, parked)
        state.reply = 0


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
        if not (policy.drop_head and _drop_oldest(state)):
            state.counters.refused += 1
            return FULL
    if dedupe and policy.dedupe_window_ms:
        state.ids.add(dedupe, state.now_ms, state.now_ms + policy.dedupe_window_ms)
    return 0


def missing_heads(state: QueueState) -> list[tuple[int, int]]:
    """Partition and sequence of the messages which must be loaded before one can be dropped."""
    policy = state.policy
    if not policy.drop_head or not policy.depth_max or state.depth() < policy.depth_max:
        return []
    missing: list[tuple[int, int]] = []
    for partition in state.partitions:
        seq = _first_unheld(state, partition)
        if seq and seq not in partition.window:
            missing.append((partition.number, seq))
    return missing


def _drop_oldest(state: QueueState) -> bool:
    """Make room: settle the oldest message which nobody holds, for every group."""
    oldest: Entry | None = None
    for partition in state.partitions:
        seq = _first_unheld(state, partition)
        entry = partition.window.get(seq) if seq else None
        if entry is not None and (oldest is None or entry.ts_ms < oldest.ts_ms):
            oldest = entry
    if oldest is None:
        return False
    remove(state, oldest.partition, oldest.seq)
    state.counters.dropped += 1
    return True


def _first_unheld(state: QueueState, partition: Partition) -> int:
    """The oldest sequence which is there and in nobody's hands; 0: none."""
    lanes = [group.lanes[partition.number] for group in state.groups.values()]
    seq = partition.gone.upto + 1
    while seq <= partition.last:
        if seq not in partition.gone and not any([seq in lane.held for lane in lanes]):
            if not lanes or not all([seq in lane.settled for lane in lanes]):
                return seq
        seq += 1
    return 0
