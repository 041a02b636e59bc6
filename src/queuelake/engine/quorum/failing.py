"""Sessions which end, nodes which cannot be reached, consumers which keep messages too long."""

from __future__ import annotations

from queuelake.engine.quorum import burying, enqueuing
from queuelake.engine.quorum.activating import changed
from queuelake.engine.quorum.consuming import remove
from queuelake.engine.quorum.dispatching import held_again
from queuelake.engine.quorum.effects import ConsumerTimedOut, LeaderChange, Monitor, MonitorNode
from queuelake.engine.quorum.returning import FAILED, NEUTRAL, give_back, give_back_all
from queuelake.engine.quorum.sessions import Consumer, node_of
from queuelake.engine.quorum.state import QuorumState


def down(state: QuorumState, pid: str) -> None:
    """The session is over, and whoever had messages failed with them."""
    _end_sessions(state, pid, FAILED)


def disconnected(state: QuorumState, node: str) -> None:
    """All of that node may be alive: they keep what they have, for a while, and get nothing."""
    found = False
    for enqueuer in state.enqueuers.values():
        if node_of(enqueuer.pid) == node:
            enqueuer.suspected = found = True
    for consumer in _consumers_on(state, node):
        found = True
        if not consumer.suspected:
            consumer.suspected = True
            state.last_active_ms = state.now_ms  # it was in use so far
            due_ms = state.now_ms + state.policy.disconnected_timeout_ms
            state.suspicions.set(consumer.key, due_ms)
            changed(state, consumer)
    if found or node_of(state.worker) == node:
        state.effects.append(MonitorNode(node))


def node_up(state: QuorumState, node: str) -> None:
    """Monitors tell which sessions did not survive; enqueuers send again what may be lost."""
    pids: dict[str, None] = {}
    for enqueuer in state.enqueuers.values():
        if enqueuer.suspected and node_of(enqueuer.pid) == node:
            enqueuer.suspected = False
            pids[enqueuer.pid] = None
            state.effects.append(LeaderChange(enqueuer.pid))
    for consumer in _consumers_on(state, node):
        if consumer.suspected:
            consumer.suspected = False
            state.suspicions.clear(consumer.key)
            pids[consumer.pid] = None
            state.effects.extend(held_again(consumer))  # what was under way is lost
            changed(state, consumer)
    if state.worker and node_of(state.worker) == node:
        pids[state.worker] = None
    state.effects.extend([Monitor(pid) for pid in pids])


def purge_nodes(state: QuorumState, nodes: list[str]) -> None:
    """Nobody there comes back; that is no failure of theirs."""
    for pid in [pid for pid in state.sessions if node_of(pid) in nodes]:
        _end_sessions(state, pid, NEUTRAL)


def disconnected_too_long(state: QuorumState) -> None:
    """What they hold returns; they stay, and go on when their node is back."""
    for key in state.suspicions.take_due(state.now_ms):
        consumer = state.consumers[key]
        give_back_all(state, consumer, NEUTRAL)
        if consumer.cancelled:
            state.forget(consumer)


def held_too_long(state: QuorumState) -> None:
    """Taken back uncounted; the consumer gets nothing until it says what became of them."""
    for key in state.deadlines.take_due(state.now_ms):
        consumer = state.consumers[key]
        overdue: list[int] = []
        next_ms = 0
        for msg_id, message in consumer.held.items():
            lock_ms = message.lock_ms
            if 0 < lock_ms <= state.now_ms:
                overdue.append(msg_id)
            elif lock_ms and (not next_ms or lock_ms < next_ms):
                next_ms = lock_ms
        if next_ms:
            state.deadlines.set(key, next_ms)
        if overdue:
            _time_out(state, consumer, overdue)


def _time_out(state: QuorumState, consumer: Consumer, ids: list[int]) -> None:
    for msg_id in ids:
        message = state.let_go(consumer, msg_id)
        assert message is not None
        give_back(state, message, NEUTRAL)
    state.effects.append(ConsumerTimedOut(consumer.pid, consumer.tag, consumer.key, ids))
    consumer.refill()
    if not consumer.cancelled:
        consumer.timed_out.update(ids)
        changed(state, consumer)
    elif not consumer.held:
        state.forget(consumer)


def _end_sessions(state: QuorumState, pid: str, cause: int) -> None:
    enqueuer = state.enqueuers.get(pid)
    if enqueuer is not None:
        enqueuing.end(state, enqueuer)
    for consumer in [one for one in state.consumers.values() if one.pid == pid]:
        state.last_active_ms = state.now_ms
        remove(state, consumer, cause)
    if pid == state.worker:
        burying.dismiss(state)


def _consumers_on(state: QuorumState, node: str) -> list[Consumer]:
    return [one for one in state.consumers.values() if node_of(one.pid) == node]
