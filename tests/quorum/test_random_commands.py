"""Commands thrown at random, also such as no client sends: whatever comes, the queue stays whole.

`Driven` checks the invariants, every release, and that a restored queue does the same.
"""

from __future__ import annotations

import random

import pytest

from queuelake.engine.machine import Command
from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum.leading import take_over
from queuelake.engine.quorum.machine import QuorumQueue
from queuelake.engine.quorum.snapshot import encode, state_hash
from tests.quorum.driven import Driven, policy_with
from tests.simulation.quorum_policies import throw_policy

SEEDS = 60
SEEDS_PER_TEST = 10
STEPS = 120
PIDS = ("n1/a", "n1/b", "n2/c")


class Script:
    """Commands from a seed; `driven` has applied them."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.driven = Driven()
        self.driven.queue.policy = throw_policy(self.dice)

    def play(self) -> None:
        throws = [self._publish, self._consume, self._answer, self._fail, self._order]
        for _ in range(STEPS):
            self.driven.now_ms += self.dice.choice([0, 0, 1, 600, 3_000, -500])
            (throw,) = self.dice.choices(throws, [30, 15, 30, 10, 15])
            self.driven.apply(throw())
            if self.dice.random() < 0.05:
                before = state_hash(self.driven.queue)
                take_over(self.driven.queue)
                assert state_hash(self.driven.queue) == before

    def _publish(self) -> Command:
        dice = self.dice
        pid, ttl_ms = dice.choice([*PIDS, ""]), dice.choice([-1, -1, 0, 1_000])
        seq = dice.choice([0, *range(1, 40)])
        if (enqueuer := self.driven.queue.enqueuers.get(pid)) and dice.random() < 0.8:
            seq = enqueuer.numbers.next
        due_ms = self.driven.now_ms + 500 if dice.random() < 0.1 else 0
        size, priority = dice.choice([0, 10, 30]), dice.randrange(-1, 34)
        return c.Enqueue(pid, seq, size, priority, ttl_ms, due_ms)

    def _consume(self) -> Command:
        dice = self.dice
        pid, tag = dice.choice(PIDS), dice.choice("tu")
        if dice.random() < 0.25:
            return c.Cancel(pid, tag, dice.random() < 0.5)
        if dice.random() < 0.15:
            return c.Dequeue(pid, dice.choice("tuv"), dice.random() < 0.5)
        if dice.random() < 0.3:
            return c.Credit(
                self._key(), dice.randrange(-1, 5), dice.randrange(9), dice.random() < 0.3
            )
        timeout_ms = dice.choice([-1, 0, 2_000])
        prefetch, priority = dice.choice([0, 1, 3]), dice.randrange(-1, 2)
        return c.Checkout(pid, tag, prefetch, priority, timeout_ms, dice.random() < 0.3)

    def _key(self) -> int:
        return self.dice.choice([99_999, *self.driven.queue.consumers])

    def _answer(self) -> Command:
        dice = self.dice
        key = self._key()
        consumer = self.driven.queue.consumers.get(key)
        known = [*consumer.held, *consumer.timed_out] if consumer is not None else []
        ids = [*dice.sample(known, dice.randint(0, len(known))), *dice.choice([[], [0, 0], [777]])]
        which = dice.randrange(8)
        if which < 3:
            return c.Settle(key, ids)
        if which == 3:
            return c.Return(key, ids)
        if which == 4:
            return c.Discard(key, ids)
        if which == 5:
            return c.Requeue(key, ids[0] if ids else 0, 20)
        notes = {"x": "y"}
        if dice.random() < 0.5:
            notes[c.DELIVERY_TIME] = str(self.driven.now_ms + dice.choice([-5, 0, 900]))
        if dice.random() < 0.5:
            notes[c.DEFERRAL_TOKEN] = dice.choice("ab")
        return c.Modify(key, ids, dice.random() < 0.5, dice.random() < 0.1, notes)

    def _fail(self) -> Command:
        dice = self.dice
        which = dice.randrange(6)
        if which < 3:
            return c.Down(dice.choice([*PIDS, "n2/worker"]), noconnection=which > 0)
        if which == 5 and dice.random() < 0.3:
            return c.PurgeNodes([dice.choice(["n1", "n2"])])
        return c.NodeUp(dice.choice(["n1", "n2"]))

    def _order(self) -> Command:
        dice = self.dice
        return dice.choice(
            [
                *[c.Timeout(name) for name in range(c.TIMERS)],
                c.UpdateConfig(throw_policy(dice)),
                c.UpdateConfig(policy_with(expires_ms=2_000)),
                c.DelayedRetry(dice.randrange(3)),
                c.AssignDeferred(self._key(), ["a", "b"]),
                c.DeadLetterCheckout(dice.choice(["n1/worker", "n2/worker"]), dice.randrange(3)),
                c.DeadLetterSettle("n1/worker", list(self.driven.queue.letters_held)[:2]),
                c.GarbageCollection(),
                c.RegisterEnqueuer(dice.choice(PIDS)),
                c.Purge() if dice.random() < 0.2 else c.GarbageCollection(),
                c.Delete() if dice.random() < 0.02 else c.GarbageCollection(),
            ]
        )


@pytest.mark.rule("Q1", "Q2", "section 18")
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_the_queue_stays_whole_and_a_replay_reaches_the_same(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        script = Script(seed)
        script.play()
        replica = QuorumQueue(throw_policy(random.Random(seed)))
        for meta, command in script.driven.log:
            replica.apply(meta, command)
        assert encode(replica) == encode(script.driven.queue)
