"""The state of a quorum queue, and how a message moves between its places.

A message is in one place at a time: `lines`, `delayed`, the hands of a consumer, or among `letters`
on their way to the dead letters. Only the functions here move one, so the counters follow.

Whoever stores messages one by one needs to know little of that: a new message is stored once, and
`marks` say which were handed out for the first time. All that is rarer is in `noted`.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from queuelake.engine.machine import Effect
from queuelake.engine.quorum.alarms import Alarms
from queuelake.engine.quorum.commands import TIMERS
from queuelake.engine.quorum.effects import DeadLetter, Demonitor, Monitor
from queuelake.engine.quorum.lines import Lines
from queuelake.engine.quorum.message import DELAYED, HELD, LETTER, READY, RETURNED, Letter, Message
from queuelake.engine.quorum.policy import QuorumPolicy
from queuelake.engine.quorum.service import ServiceQueue
from queuelake.engine.quorum.sessions import Consumer, Enqueuer

# Why a message is a dead letter.
REJECTED: Final = "rejected"
EXPIRED: Final = "expired"
MAXLEN: Final = "maxlen"
DELIVERY_LIMIT: Final = "delivery_limit"


class QuorumState:
    __slots__ = (
        "active",
        "buried",
        "consumers",
        "deadlines",
        "delayed",
        "delayed_bytes",
        "delays",
        "deleted",
        "effects",
        "enqueuers",
        "held_bytes",
        "held_count",
        "ids",
        "index",
        "last_active_ms",
        "letters",
        "letters_bytes",
        "letters_held",
        "lines",
        "marks",
        "noted",
        "now_ms",
        "policy",
        "rejecting",
        "released",
        "released_bytes",
        "service",
        "sessions",
        "suspicions",
        "timers",
        "tokens",
        "total",
        "uses_expiry",
        "worker",
        "worker_next_id",
        "worker_prefetch",
    )

    def __init__(self, policy: QuorumPolicy) -> None:
        self.policy: QuorumPolicy = policy
        self.index: int = 0  # of the last command
        self.now_ms: int = 0
        self.last_active_ms: int = 0  # when a consumer came, went or asked; 0: before any command
        self.deleted: bool = False
        # Messages
        self.lines: Lines = Lines()
        self.delayed: dict[int, Message] = {}
        self.delays: Alarms = Alarms()  # by index; a deferred message may have none
        self.tokens: dict[str, list[int]] = {}  # under which messages are deferred
        self.delayed_bytes: int = 0
        self.held_count: int = 0
        self.held_bytes: int = 0
        self.total: int = 0
        self.uses_expiry: bool = False
        self.released_bytes: int = 0  # of all payloads nobody needs any more
        # Dead letters on their way
        self.letters: deque[Letter] = deque()
        self.letters_held: dict[int, Letter] = {}  # by the worker
        self.letters_bytes: int = 0
        self.worker: str = ""
        self.worker_prefetch: int = 0
        self.worker_next_id: int = 0
        # Sessions
        self.enqueuers: dict[str, Enqueuer] = {}
        self.rejecting: bool = False  # enqueuers were told not to publish
        self.consumers: dict[int, Consumer] = {}
        self.ids: dict[tuple[str, str], int] = {}  # pid and tag -> key
        self.sessions: dict[str, int] = {}  # pid -> how many it has here
        self.service: ServiceQueue = ServiceQueue()
        self.active: Consumer | None = None  # where only one is
        # Time
        self.deadlines: Alarms = Alarms()  # by key: no message of it is overdue before
        self.suspicions: Alarms = Alarms()  # by key: when it has been away too long
        self.timers: list[int] = [0] * TIMERS  # when each goes off; 0: not set
        # Of the current command
        self.effects: list[Effect] = []
        self.released: list[int] = []
        self.noted: list[Message] = []  # which came to another place, or were handed out again
        # Nothing of the rest is part of the state: it follows from the commands so far.
        self.marks: dict[int, int] = {}  # priority -> the last index handed out of its line
        self.buried: dict[str, int] = {}  # reason -> how many

    # Messages

    def stored(self, message: Message) -> None:
        """A new one."""
        self.lines.put(message)
        self.total += 1
        if message.expires_ms:
            self.uses_expiry = True

    def stored_aside(self, message: Message, due_ms: int) -> None:
        """A new one, which nobody gets before its time."""
        self.delay(message, due_ms)
        self.total += 1
        if message.expires_ms:
            self.uses_expiry = True

    def hold(self, consumer: Consumer, message: Message) -> int:
        """Into the hands of a consumer, from no place; returns its number there."""
        msg_id = consumer.next_id
        consumer.next_id = msg_id + 1
        consumer.held[msg_id] = message
        consumer.credit -= 1
        if consumer.credited:
            consumer.delivery_count += 1
        if message.acquired or message.place != READY:  # it is noted already, and in no order
            self.noted.append(message)
        elif message.index > self.marks.get(message.priority, 0):
            self.marks[message.priority] = message.index
        message.place = HELD
        message.acquired += 1
        self.held_count += 1
        self.held_bytes += message.size
        timeout_ms = consumer.timeout_ms
        if timeout_ms < 0:
            timeout_ms = self.policy.consumer_timeout_ms
        if timeout_ms:
            lock_ms = self.now_ms + timeout_ms
            message.lock_ms = lock_ms
            armed_ms = self.deadlines.due_ms.get(consumer.key, 0)
            if not armed_ms or lock_ms < armed_ms:
                self.deadlines.set(consumer.key, lock_ms)
        return msg_id

    def let_go(self, consumer: Consumer, msg_id: int) -> Message | None:
        """Out of the hands of a consumer; None: it does not hold it."""
        message = consumer.held.pop(msg_id, None)
        if message is not None:
            message.lock_ms = 0
            self.held_count -= 1
            self.held_bytes -= message.size
        return message

    def take_back(self, message: Message) -> None:
        """To the end of the line of returns, from no place."""
        message.place = RETURNED
        self.noted.append(message)
        self.lines.put_return(message)

    def delay(self, message: Message, due_ms: int, token: str = "") -> None:
        """Aside until then, or until somebody asks for it with a token (0: only so)."""
        message.place = DELAYED
        self.noted.append(message)
        self.delayed[message.index] = message
        self.delayed_bytes += message.size
        if due_ms:
            self.delays.set(message.index, due_ms)
        if token:
            message.token = token
            self.tokens.setdefault(token, []).append(message.index)

    def undelay(self, index: int) -> Message:
        """From aside to no place."""
        message = self.delayed.pop(index)
        self.delayed_bytes -= message.size
        self.delays.clear(index)
        if message.token:
            deferred = self.tokens[message.token]
            deferred.remove(index)
            if not deferred:
                del self.tokens[message.token]
            message.token = ""
        return message

    def end(self, message: Message) -> None:
        """Done with, and in no place."""
        self.total -= 1
        self.release(message.index, message.size)

    def release(self, index: int, size: int) -> None:
        self.released.append(index)
        self.released_bytes += size

    def bury(self, message: Message, reason: str) -> None:
        """A dead letter, and in no place: to the backlog, to the target if it can, or nowhere."""
        policy = self.policy
        self.buried[reason] = self.buried.get(reason, 0) + 1
        if policy.buries_surely():
            message.place = LETTER
            message.token = reason
            self.noted.append(message)
            self.letters.append(Letter(message, reason))
            self.letters_bytes += message.size
            return
        if policy.dead_letter_target:
            copy = message.delivery(0)
            self.effects.append(DeadLetter(message.index, copy, reason, self.now_ms))
        self.end(message)

    def waiting_count(self) -> int:
        """What counts to the limits: everything no consumer holds."""
        return self.total - self.held_count

    def waiting_bytes(self) -> int:
        return self.lines.size + self.delayed_bytes + self.letters_bytes

    # Sessions

    def begin_session(self, pid: str) -> None:
        count = self.sessions.get(pid, 0)
        self.sessions[pid] = count + 1
        if not count:
            self.effects.append(Monitor(pid))

    def end_session(self, pid: str) -> None:
        count = self.sessions[pid] - 1
        if count:
            self.sessions[pid] = count
        else:
            del self.sessions[pid]
            self.effects.append(Demonitor(pid))

    def forget(self, consumer: Consumer) -> None:
        """It holds nothing, and is not coming back."""
        assert not consumer.held
        self.service.leave(consumer)
        self.deadlines.clear(consumer.key)
        self.suspicions.clear(consumer.key)
        del self.consumers[consumer.key]
        del self.ids[(consumer.pid, consumer.tag)]
        self.end_session(consumer.pid)
