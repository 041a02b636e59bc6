"""A quorum queue with a log and a clock the test owns.

After every command the invariants are checked, and a second queue, made of a snapshot right before
it, must have come to the same state, the same reply and the same effects.
"""

from __future__ import annotations

from typing import Any, TypeVar

from queuelake.engine.machine import Command, Effect, Meta
from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import effects as e
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum.machine import QuorumQueue
from queuelake.engine.quorum.policy import QuorumPolicy
from queuelake.engine.quorum.querying import live_indexes
from queuelake.engine.quorum.snapshot import encode, restore
from tests.quorum.invariants import Watch

START_MS = 1_000_000
P = "n1/publisher"
C1, C2, C3 = "n1/c1", "n2/c2", "n3/c3"

Kind = TypeVar("Kind")


def policy_with(**settings: Any) -> QuorumPolicy:
    policy = QuorumPolicy()
    for name, value in settings.items():
        assert hasattr(policy, name), name
        setattr(policy, name, value)
    return policy


def described(thing: object) -> object:
    """An effect or a reply as plain values, to be compared."""
    if isinstance(thing, (list, tuple)):
        return [described(one) for one in thing]
    if isinstance(thing, (Effect, r.Reply, e.Delivery)):
        names = [name for name in dir(thing) if not name.startswith("_")]
        values = {name: getattr(thing, name) for name in names}
        plain = {name: described(one) for name, one in values.items() if not callable(one)}
        return type(thing).__name__, plain
    return thing


class Driven:
    def __init__(self, **settings: Any) -> None:
        self.queue = QuorumQueue(policy_with(**settings))
        self.now_ms = START_MS
        self.log: list[tuple[Meta, Command]] = []
        self.effects: list[Effect] = []  # of the last command
        self.payloads: set[int] = set()  # indexes which were not released
        self._watch = Watch()
        self._seqs: dict[str, int] = {}

    @property
    def index(self) -> int:
        return len(self.log)

    def apply(self, command: Command) -> r.Reply:
        meta = Meta(self.index + 1, self.now_ms)
        shadow = restore(encode(self.queue))
        self.log.append((meta, command))
        reply, self.effects = self.queue.apply(meta, command)
        self._watch.now_ms = max(self._watch.now_ms, self.now_ms)
        self._watch.check(self.queue)
        again, effects = shadow.apply(meta, command)
        assert encode(shadow) == encode(self.queue), f"{command!r} of a restored queue differs"
        assert described((again, effects)) == described((reply, self.effects))
        self._check_releases(meta.index, command)
        return reply

    def _check_releases(self, index: int, command: Command) -> None:
        """A payload is released once, when no message needs it."""
        if isinstance(command, (c.Enqueue, c.Requeue)):
            self.payloads.add(index)
        for effect in self.found(e.Release):
            for released in effect.indexes:
                self.payloads.remove(released)
        assert sorted(self.payloads) == live_indexes(self.queue)

    def found(self, kind: type[Kind]) -> list[Kind]:
        """Effects of the last command."""
        return [one for one in self.effects if isinstance(one, kind)]

    # Shorter words for tests

    def enqueue(self, pid: str = P, size: int = 10, **more: int) -> int:
        """The next message of this enqueuer; returns its index."""
        self._seqs[pid] = self._seqs.get(pid, 0) + 1
        reply = self.apply(c.Enqueue(pid, self._seqs[pid], size, **more))
        assert reply.code == r.ACCEPTED
        return self.index

    def checkout(self, pid: str = C1, tag: str = "t", prefetch: int = 1, **more: Any) -> int:
        """Returns the key."""
        reply = self.apply(c.Checkout(pid, tag, prefetch, **more))
        assert isinstance(reply, r.CheckedOut)
        return reply.key

    def settle(self, key: int, *ids: int) -> None:
        assert self.apply(c.Settle(key, list(ids))).code == r.ACCEPTED

    def give(self, key: int, *ids: int) -> None:
        assert self.apply(c.Return(key, list(ids))).code == r.ACCEPTED

    def fail(self, key: int, *ids: int) -> None:
        reply = self.apply(c.Modify(key, list(ids), delivery_failed=True))
        assert reply.code == r.ACCEPTED

    def configure(self, **settings: Any) -> None:
        self.apply(c.UpdateConfig(policy_with(**settings)))

    def later(self, ms: int) -> None:
        """Time passes, and timers which are due go off, in order."""
        until = self.now_ms + ms
        while True:
            due = [(at, name) for name, at in enumerate(self.queue.timers) if 0 < at <= until]
            if not due:
                break
            self.now_ms = max(self.now_ms, min(due)[0])
            self.apply(c.Timeout(min(due)[1]))
        self.now_ms = until

    def delivered(self) -> list[tuple[int, int, int]]:
        """Key, number and index of what the last command handed out."""
        return [
            (one.key, delivery.msg_id, delivery.index)
            for one in self.found(e.Deliver)
            for delivery in one.deliveries
        ]

    def held(self, key: int) -> dict[int, int]:
        """Number -> index."""
        held = self.queue.consumers[key].held
        return {msg_id: message.index for msg_id, message in held.items()}

    def ready(self) -> list[int]:
        """Indexes of what is ready, in order of hand-out."""
        return [message.index for message in self.queue.lines.in_order()]

    def dead(self) -> list[tuple[int, str]]:
        """Index and reason of dead letters which the last command sent off."""
        return [(one.index, one.reason) for one in self.found(e.DeadLetter)]
