"""What a new leader does first: what the former one may have left undone.

All of it may have been done before; see `effects` why that does no harm.
"""

from __future__ import annotations

from queuelake.engine.machine import Effect
from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum.activating import told_active
from queuelake.engine.quorum.dispatching import held_again
from queuelake.engine.quorum.effects import (
    ConsumerTimedOut,
    DeadLetterDeliver,
    LeaderChange,
    Monitor,
    MonitorNode,
    QueueStatus,
    Timer,
)
from queuelake.engine.quorum.sessions import node_of
from queuelake.engine.quorum.state import QuorumState


def take_over(state: QuorumState) -> list[Effect]:
    """Changes nothing."""
    effects: list[Effect] = [Monitor(pid) for pid in state.sessions]
    nodes = {node_of(one.pid) for one in state.consumers.values() if one.suspected}
    nodes |= {node_of(one.pid) for one in state.enqueuers.values() if one.suspected}
    effects += [MonitorNode(node) for node in sorted(nodes)]
    for name in range(c.TIMERS):
        if state.timers[name]:
            effects.append(Timer(name, state.timers[name]))
    for pid, enqueuer in state.enqueuers.items():
        effects.append(QueueStatus(pid, enqueuer.blocked_index > 0, state.index))
        effects.append(LeaderChange(pid))
    for consumer in state.consumers.values():
        effects += held_again(consumer)
        if consumer.timed_out:
            ids = sorted(consumer.timed_out)
            effects.append(ConsumerTimedOut(consumer.pid, consumer.tag, consumer.key, ids))
    effects += told_active(state)
    if state.letters_held:
        letters = state.letters_held.items()
        deliveries = [letter.message.delivery(msg_id) for msg_id, letter in letters]
        reasons = [letter.reason for letter in state.letters_held.values()]
        effects.append(DeadLetterDeliver(state.worker, deliveries, reasons))
    return effects
