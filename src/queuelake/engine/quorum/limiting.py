"""How much a queue may hold, and for how long."""

from __future__ import annotations

from queuelake.engine.quorum.effects import QueueStatus
from queuelake.engine.quorum.policy import REJECT_PUBLISH
from queuelake.engine.quorum.state import EXPIRED, MAXLEN, QuorumState


def keep_limits(state: QuorumState) -> None:
    """Behind every command: drop what is too much, or tell publishers to stop, or to go on."""
    policy = state.policy
    if not policy.length_max and not policy.bytes_max and not state.rejecting:
        return
    rejects = policy.overflow == REJECT_PUBLISH
    if state.rejecting:
        if not rejects or policy.has_room(state.waiting_count(), state.waiting_bytes()):
            _tell_enqueuers(state, False)
    if rejects:
        if not state.rejecting and policy.is_over(state.waiting_count(), state.waiting_bytes()):
            _tell_enqueuers(state, True)
        return
    while state.lines.count and policy.is_over(state.waiting_count(), state.waiting_bytes()):
        state.bury(state.lines.take_oldest(), MAXLEN)


def expire(state: QuorumState) -> None:
    for message in state.lines.take_expired(state.now_ms):
        state.bury(message, EXPIRED)


def _tell_enqueuers(state: QuorumState, rejects: bool) -> None:
    state.rejecting = rejects
    for pid, enqueuer in state.enqueuers.items():
        enqueuer.blocked_index = state.index if rejects else 0
        state.effects.append(QueueStatus(pid, rejects, state.index))
