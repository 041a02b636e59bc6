"""The half of the protocol of whoever sends commands to a quorum queue, without any I/O.

Commands are numbered and kept until they were applied. When a later one was applied before, an
earlier one was lost on the way and is sent again; when the leader changes, all of them are, in
order. The queue knows a message again by its number and a settlement by what it settles, so
nothing happens twice. While too many wait, the caller is asked to stop, and settlements are
collected, to be sent as one command for each kind and consumer.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from queuelake.engine.machine import Command
from queuelake.engine.message import PRIORITY_DEFAULT
from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum.policy import UNSET

SOFT_LIMIT: Final = 32  # commands which were not applied
TIMEOUT_MS: Final = 30_000

# What to do with messages which are held.
SETTLE: Final = 0
RETURN: Final = 1
DISCARD: Final = 2


@mypyc_attr(acyclic=True)
class Action:
    """What the caller is to do."""

    __slots__ = ()


@final
@mypyc_attr(acyclic=True)
class Send(Action):
    """Send a command to the leader; its number comes back when it is applied."""

    __slots__ = ("command", "number")

    def __init__(self, number: int, command: Command) -> None:
        self.number: int = number
        self.command: Command = command


@final
@mypyc_attr(acyclic=True)
class Confirm(Action):
    """The message is in the queue, whatever happens now: the publisher may know."""

    __slots__ = ("correlation",)

    def __init__(self, correlation: int) -> None:
        self.correlation: int = correlation


@final
@mypyc_attr(acyclic=True)
class Refuse(Action):
    """The message is not in the queue, and will not be. `gone`: for lack of a queue."""

    __slots__ = ("correlation", "gone")

    def __init__(self, correlation: int, gone: bool) -> None:
        self.correlation: int = correlation
        self.gone: bool = gone


@final
class Block(Action):
    """Take nothing more from the publisher for now."""

    __slots__ = ()


@final
class Unblock(Action):
    __slots__ = ()


@final
@mypyc_attr(acyclic=True)
class _Pending:
    __slots__ = ("command", "correlation", "sent_before", "sent_ms")

    def __init__(self, command: Command, correlation: int, sent_before: int, sent_ms: int) -> None:
        self.command: Command = command
        self.correlation: int = correlation
        self.sent_before: int = sent_before  # it was sent before any command of this number
        self.sent_ms: int = sent_ms


@final
class Sender:
    """One session: `pid` is never used by another, not even after this one."""

    __slots__ = (
        "_collected",
        "_next_number",
        "_next_seq",
        "_pending",
        "_pid",
        "_status_index",
        "gone",
        "is_blocked",
        "rejects",
    )

    def __init__(self, pid: str) -> None:
        self._pid: str = pid
        self._next_number: int = 1
        self._next_seq: int = 1
        self._pending: dict[int, _Pending] = {}  # by number, in order
        self._collected: dict[tuple[int, int], list[int]] = {}  # (kind, key) -> ids
        self._status_index: int = 0
        self.is_blocked: bool = False
        self.rejects: bool = False  # the queue is full
        self.gone: bool = False  # the queue is deleted

    def pending_count(self) -> int:
        return len(self._pending)

    def enqueue(
        self,
        correlation: int,
        size: int,
        now_ms: int,
        priority: int = PRIORITY_DEFAULT,
        ttl_ms: int = UNSET,
    ) -> list[Action]:
        """`correlation` is the caller's own number for the message."""
        if self.rejects or self.gone:
            return [Refuse(correlation, self.gone)]
        command = c.Enqueue(self._pid, self._next_seq, size, priority, ttl_ms)
        self._next_seq += 1
        return self._send(command, correlation, now_ms)

    def answer(self, kind: int, key: int, ids: list[int], now_ms: int) -> list[Action]:
        """Settle, return or discard messages which a consumer holds."""
        if self.gone:
            return []
        if self.is_blocked:
            self._collected.setdefault((kind, key), []).extend(ids)
            return []
        return self._send(_answer(kind, key, ids), 0, now_ms)

    def command(self, command: Command, now_ms: int) -> list[Action]:
        """Anything else which does no harm when it is applied twice: `Modify`, `Credit`."""
        return [] if self.gone else self._send(command, 0, now_ms)

    def applied(self, results: list[tuple[int, int]], now_ms: int) -> list[Action]:
        """Numbers of commands which were applied, in order, each with the code of its reply."""
        actions: list[Action] = []
        highest = 0
        for number, code in results:
            highest = max(highest, number)
            pending = self._pending.get(number)
            if pending is None:
                continue  # sent twice, applied twice
            if code == r.NOT_ENQUEUED:
                pending.sent_before = 0  # too far ahead of one which was lost
                continue
            del self._pending[number]
            if isinstance(pending.command, c.Enqueue):
                if code == r.GONE:
                    actions.append(Refuse(pending.correlation, True))
                else:
                    actions.append(Confirm(pending.correlation))
        self._send_lost(highest, now_ms, actions)
        self._unblock(now_ms, actions)
        return actions

    def leader_changed(self, now_ms: int) -> list[Action]:
        """Whatever was not applied may be lost."""
        actions: list[Action] = []
        for number, pending in self._pending.items():
            self._send_again(number, pending, now_ms, actions)
        return actions

    def tick(self, now_ms: int) -> list[Action]:
        """When the oldest command waits too long for its answer, as if the leader had changed."""
        for pending in self._pending.values():
            if now_ms - pending.sent_ms >= TIMEOUT_MS:
                return self.leader_changed(now_ms)
            break
        return []

    def queue_status(self, rejects: bool, index: int) -> None:
        """May come late or twice: the newest counts."""
        if index >= self._status_index:
            self._status_index = index
            self.rejects = rejects

    def eol(self) -> list[Action]:
        """The queue is deleted."""
        self.gone = True
        actions: list[Action] = [
            Refuse(pending.correlation, True)
            for pending in self._pending.values()
            if isinstance(pending.command, c.Enqueue)
        ]
        self._pending.clear()
        self._collected.clear()
        if self.is_blocked:
            self.is_blocked = False
            actions.append(Unblock())
        return actions

    def _send(self, command: Command, correlation: int, now_ms: int) -> list[Action]:
        number = self._next_number
        self._next_number = number + 1
        self._pending[number] = _Pending(command, correlation, number + 1, now_ms)
        actions: list[Action] = [Send(number, command)]
        if not self.is_blocked and len(self._pending) >= SOFT_LIMIT:
            self.is_blocked = True
            actions.append(Block())
        return actions

    def _send_lost(self, highest: int, now_ms: int, actions: list[Action]) -> None:
        """What was sent before a command which is applied now, and is not applied itself."""
        for number, pending in self._pending.items():
            if number > highest:
                break
            if pending.sent_before <= highest:
                self._send_again(number, pending, now_ms, actions)

    def _send_again(
        self, number: int, pending: _Pending, now_ms: int, actions: list[Action]
    ) -> None:
        pending.sent_before = self._next_number
        pending.sent_ms = now_ms
        actions.append(Send(number, pending.command))

    def _unblock(self, now_ms: int, actions: list[Action]) -> None:
        """What was collected goes first: it may make room."""
        if not self.is_blocked or len(self._pending) >= SOFT_LIMIT:
            return
        collected = self._collected
        self._collected = {}
        for (kind, key), ids in collected.items():
            actions += self._send(_answer(kind, key, ids), 0, now_ms)
        if len(self._pending) < SOFT_LIMIT:
            self.is_blocked = False
            actions.append(Unblock())


def _answer(kind: int, key: int, ids: list[int]) -> Command:
    if kind == SETTLE:
        return c.Settle(key, ids)
    return c.Return(key, ids) if kind == RETURN else c.Discard(key, ids)
