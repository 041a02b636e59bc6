"""One replica of a simulated quorum queue: its machine, its payloads and its last checkpoint."""

from __future__ import annotations

from queuelake.engine.machine import Command, Effect, Meta
from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import effects as e
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum.machine import QuorumQueue
from queuelake.engine.quorum.policy import QuorumPolicy
from queuelake.engine.quorum.querying import live_indexes
from queuelake.engine.quorum.snapshot import Snapshot, restore, state_hash, take
from tests.quorum.invariants import Watch


class Replica:
    def __init__(self, policy: QuorumPolicy, hashes: dict[int, bytes]) -> None:
        self.queue = QuorumQueue(policy)
        self.payloads: set[int] = set()  # indexes which are still needed
        self._checkpoint: Snapshot = take(self.queue)
        self._hashes = hashes  # of all replicas: index -> the hash there
        self._watch = Watch()

    @property
    def applied(self) -> int:
        return self.queue.index

    def apply(self, meta: Meta, command: Command) -> tuple[r.Reply, list[Effect]]:
        if isinstance(command, (c.Enqueue, c.Requeue)):
            self.payloads.add(meta.index)
        reply, effects = self.queue.apply(meta, command)
        self._watch.now_ms = max(self._watch.now_ms, meta.now_ms)
        found = self._hashes.get(meta.index)
        if found is None:
            self._watch.check(self.queue)
            self._hashes[meta.index] = state_hash(self.queue)
        else:
            assert state_hash(self.queue) == found, f"replicas differ at {meta.index}"
        self._check_payloads(effects)
        for effect in effects:
            if isinstance(effect, e.Release):
                for index in effect.indexes:
                    self.payloads.remove(index)
        return reply, effects

    def _check_payloads(self, effects: list[Effect]) -> None:
        """Whatever is sent can be read; so nothing settled is delivered again."""
        for effect in effects:
            if isinstance(effect, (e.Deliver, e.DeadLetterDeliver)):
                for delivery in effect.deliveries:
                    assert delivery.index in self.payloads, f"{delivery.index} was released"
            elif isinstance(effect, e.DeadLetter):
                assert effect.index in self.payloads

    def take_checkpoint(self) -> None:
        self._checkpoint = take(self.queue)
        assert set(self._checkpoint.live) == self.payloads

    def restart(self) -> None:
        """From its checkpoint; the log has what came after it."""
        self.queue = restore(self._checkpoint.state)
        assert self.queue.index == self._checkpoint.index
        assert live_indexes(self.queue) == self._checkpoint.live
        self.payloads = set(self._checkpoint.live)
        self._watch = Watch()
        self._watch.now_ms = self.queue.now_ms

    def install(self, other: Replica) -> None:
        """It fell behind, and gets the checkpoint of another one."""
        if other._checkpoint.index > self.applied:
            self._checkpoint = other._checkpoint
            self.restart()
