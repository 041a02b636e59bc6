"""The backlog of dead letters and the worker who empties it, where none may be lost."""

from __future__ import annotations

from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum.state import QuorumState


def checkout(state: QuorumState, command: c.DeadLetterCheckout) -> r.Reply:
    """A new worker begins with what the former one held."""
    if state.worker != command.pid:
        dismiss(state)
        state.worker = command.pid
        state.begin_session(command.pid)
    state.worker_prefetch = max(1, command.prefetch)
    return r.OK


def settle(state: QuorumState, command: c.DeadLetterSettle) -> r.Reply:
    if command.pid != state.worker:
        return r.Reply(r.NOT_FOUND)
    for msg_id in command.ids:
        letter = state.letters_held.pop(msg_id, None)
        if letter is not None:
            state.letters_bytes -= letter.message.size
            state.end(letter.message)
    return r.OK


def dismiss(state: QuorumState) -> None:
    """The worker is gone; what it held is first in line again."""
    if not state.worker:
        return
    for msg_id in sorted(state.letters_held, reverse=True):
        state.letters.appendleft(state.letters_held[msg_id])
    state.letters_held.clear()
    pid = state.worker
    state.worker = ""
    state.end_session(pid)


def drop_backlog(state: QuorumState) -> int:
    """Returns how many there were."""
    letters = [*state.letters_held.values(), *state.letters]
    for letter in letters:
        state.end(letter.message)
    state.letters.clear()
    state.letters_held.clear()
    state.letters_bytes = 0
    return len(letters)
