"""Who may be served: every consumer, or only the active one.

Where one is active, the others wait in line. When it leaves, is suspected or holds messages too
long, the next one takes over. One of higher priority takes over as well, but not before the active
one has settled all it holds: meanwhile that is `quiescing` and gets nothing new.
"""

from __future__ import annotations

from queuelake.engine.machine import Effect
from queuelake.engine.quorum.effects import ConsumerStatus
from queuelake.engine.quorum.sessions import Consumer, line_order
from queuelake.engine.quorum.state import QuorumState


def arrive(state: QuorumState, consumer: Consumer) -> None:
    """A new consumer, which is up."""
    if state.policy.single_active_consumer:
        consumer.waiting = True
        consumer.since = state.index
    changed(state, consumer)


def changed(state: QuorumState, consumer: Consumer) -> None:
    """A consumer became able to get messages, or unable, or it is another who must be asked."""
    if not consumer.may_be_served():
        state.service.leave(consumer)
    if state.policy.single_active_consumer:
        elect(state)
    state.service.enter(consumer)


def elect(state: QuorumState) -> None:
    """Let the right consumer be active; called when that may be another one."""
    active = state.active
    if active is not None and not active.is_up():
        _stand_down(state, active)
        active = None
    best = _first_in_line(state)
    if active is None:
        if best is not None:
            _activate(state, best)
    elif best is not None and best.priority > active.priority:
        if active.held:
            active.quiescing = True
            state.service.leave(active)
        else:
            _stand_down(state, active)
            _activate(state, best)
    elif active.quiescing:
        active.quiescing = False
        state.service.enter(active)


def realign(state: QuorumState) -> None:
    """The rule itself has changed."""
    single = state.policy.single_active_consumer
    state.active = None
    for consumer in state.consumers.values():
        consumer.quiescing = False
        consumer.waiting = single and not consumer.cancelled
        consumer.since = consumer.key
        state.service.leave(consumer)
        if not single:
            state.service.enter(consumer)
    if single:
        elect(state)


def waiting_line(state: QuorumState) -> list[Consumer]:
    """Those in line, the next one first."""
    return sorted([one for one in state.consumers.values() if one.waiting], key=line_order)


def _first_in_line(state: QuorumState) -> Consumer | None:
    line = waiting_line(state)
    return line[0] if line and line[0].is_up() else None


def _activate(state: QuorumState, consumer: Consumer) -> None:
    consumer.waiting = False
    state.active = consumer
    state.service.enter(consumer)
    _tell(state, consumer, True)


def _stand_down(state: QuorumState, consumer: Consumer) -> None:
    state.service.leave(consumer)
    state.active = None
    consumer.quiescing = False
    if not consumer.cancelled:
        consumer.waiting = True
        consumer.since = state.index
        _tell(state, consumer, False)


def told_active(state: QuorumState) -> list[Effect]:
    """What each consumer was told, as a new leader tells it again."""
    if not state.policy.single_active_consumer:
        return []
    return [
        _status(state, consumer, consumer is state.active)
        for consumer in state.consumers.values()
        if not consumer.cancelled
    ]


def _tell(state: QuorumState, consumer: Consumer, active: bool) -> None:
    state.effects.append(_status(state, consumer, active))


def _status(state: QuorumState, consumer: Consumer, active: bool) -> Effect:
    return ConsumerStatus(consumer.pid, consumer.tag, consumer.key, active, state.index)
