"""A message queue against a simple model: a list of what is there, and who has what in hand.

Values by key are a dict in the model. Limits are counted anew for each message which comes. The
model says what must be there, how many bytes that is, which answer each settlement gets, who may
get a message, and that nothing which may go is left while somebody has room for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from queuelake.engine import commands as c
from queuelake.engine.policy.settings import (
    LEAST_INFLIGHT,
    RANDOM,
    ROUND_ROBIN,
    STICKY_KEY,
    UNLIMITED,
)
from queuelake.engine.state import NOT_FOUND, NOT_HELD, TOO_LARGE
from tests.unit.engine_message_queue import DrivenMessageQueue

CONSUMERS = ("x", "y", "z")
STRATEGIES = (RANDOM, ROUND_ROBIN, LEAST_INFLIGHT, STICKY_KEY)
REDISPATCH_MS = 100
AGE_MS = 50_000
BYTES_MAX = 60


@dataclass
class Fate:
    """Of a message which is in the queue."""

    key: int
    size: int
    ts_ms: int
    attempts: int = 0
    holder: str = ""
    until_ms: int = 0  # not before, or not to `without` before
    without: str = ""
    is_dead: bool = False

    def may_go_to(self, consumer: str, now_ms: int) -> bool:
        if self.holder or self.is_dead:
            return False
        if now_ms >= self.until_ms:
            return True
        return self.without not in ("", consumer)


class AgainstModel(RuleBasedStateMachine):
    @initialize(
        strategy=st.sampled_from(STRATEGIES),
        is_last_value=st.booleans(),
        prefetch=st.sampled_from([1, 2, 10]),
        count_max=st.sampled_from([0, 0, 4]),
        bytes_max=st.sampled_from([0, 0, BYTES_MAX]),
        retries_max=st.sampled_from([UNLIMITED, 1]),
        timeout_ms=st.sampled_from([0, 1000]),
        age_ms=st.sampled_from([0, AGE_MS]),
    )
    def begin(
        self,
        strategy: int,
        is_last_value: bool,
        prefetch: int,
        count_max: int,
        bytes_max: int,
        retries_max: int,
        timeout_ms: int,
        age_ms: int,
    ) -> None:
        self.queue = DrivenMessageQueue(
            window_max=2,
            strategy=strategy,
            is_last_value=is_last_value,
            prefetch=prefetch,
            count_max=count_max,
            bytes_max=bytes_max,
            retries_max=retries_max,
            delivery_timeout_ms=timeout_ms,
            redispatch_ms=REDISPATCH_MS,
            retention_age_ms=age_ms,
        )
        self.policy = self.queue.machine.policy
        self.there: dict[int, Fate] = {}  # by sequence, oldest first
        self.in_hand: dict[int, tuple[str, int]] = {}  # who, deadline; also what has left
        self.values: dict[int, int] = {}  # key -> sequence
        self.consumers: set[str] = set()
        self.last = 0
        self.former: dict[int, int] = {}  # key -> the newest sequence which was handed out

    # Rules

    @rule(key=st.integers(0, 4), size=st.sampled_from([1, 10, 30, BYTES_MAX + 1]))
    def publish(self, key: int, size: int) -> None:
        reply = self.queue.publish(key, size=size)
        policy = self.policy
        if policy.bytes_max and size > policy.bytes_max:
            assert reply == TOO_LARGE
            return
        assert reply == 0
        self.last += 1
        if policy.is_last_value:
            if self.values.get(key) in self.there:
                del self.there[self.values[key]]
            self.values[key] = self.last
        self.there[self.last] = Fate(key, size, self.queue.now_ms)
        self._keep_limits()

    def _keep_limits(self) -> None:
        """Oldest first."""
        policy = self.policy
        while (policy.count_max and len(self.there) > policy.count_max) or (
            policy.bytes_max and self._bytes() > policy.bytes_max
        ):
            del self.there[min(self.there)]

    def _bytes(self) -> int:
        return sum(fate.size for fate in self.there.values())

    @rule(consumer=st.sampled_from(CONSUMERS))
    def join(self, consumer: str) -> None:
        self.queue.join(consumer)
        self.consumers.add(consumer)

    @rule(consumer=st.sampled_from(CONSUMERS))
    def leave(self, consumer: str) -> None:
        self.queue.leave(consumer)
        self.consumers.discard(consumer)
        for seq in [seq for seq, (who, _) in self.in_hand.items() if who == consumer]:
            self._put_back(seq, 0)

    def _put_back(self, seq: int, until_ms: int) -> None:
        del self.in_hand[seq]
        fate = self.there.get(seq)
        if fate is not None:
            fate.holder, fate.without, fate.until_ms = "", "", until_ms
            fate.attempts -= 1

    def _refused(self, seq: int) -> None:
        who, _ = self.in_hand.pop(seq)
        fate = self.there.get(seq)
        if fate is None:
            return
        fate.holder = ""
        if fate.attempts - 1 >= self.policy.retries_max:
            fate.is_dead = True
        else:
            fate.until_ms = self.queue.now_ms + REDISPATCH_MS
            fate.without = who if self.consumers - {who} else ""

    @rule(in_bulk=st.sampled_from([False, False, True]))
    def dispatch(self, in_bulk: bool) -> None:
        self.tick(0)
        for one in self.queue.dispatch(in_bulk=in_bulk):
            fate = self.there[one.seq]
            assert fate.may_go_to(one.consumer, self.queue.now_ms), (one, fate)
            assert one.consumer in self.consumers
            fate.holder = one.consumer
            fate.attempts += 1
            assert one.attempt == fate.attempts
            self.in_hand[one.seq] = (one.consumer, self.queue.now_ms)
            assert self._held_by(one.consumer) <= self.policy.prefetch
            if self.policy.is_last_value:
                assert one.seq >= self.former.get(fate.key, 0), "a value after its successor"
                self.former[fate.key] = one.seq
        if not in_bulk:
            self._check_nothing_is_left()

    def _expire(self) -> None:
        age_ms, now_ms = self.policy.retention_age_ms, self.queue.now_ms
        for seq in sorted(self.there):
            if not age_ms or now_ms - self.there[seq].ts_ms < age_ms:
                break
            del self.there[seq]

    def _held_by(self, consumer: str) -> int:
        return sum(who == consumer for who, _ in self.in_hand.values())

    def _check_nothing_is_left(self) -> None:
        room = [one for one in self.consumers if self._held_by(one) < self.policy.prefetch]
        if self.policy.strategy == STICKY_KEY and len(room) < len(self.consumers):
            return  # it may belong to one who is full
        for seq, fate in self.there.items():
            may_go = [one for one in room if fate.may_go_to(one, self.queue.now_ms)]
            assert not may_go, f"{seq} is left, and {may_go} may have it"

    @rule(
        which=st.integers(0, 20),
        outcome=st.sampled_from([c.ACK, c.ACK, c.NACK, c.REJECT]),
        delay_ms=st.sampled_from([0, 70]),
        consumer=st.sampled_from(CONSUMERS),
        as_holder=st.sampled_from([True, True, False]),
    )
    def settle(
        self, which: int, outcome: int, delay_ms: int, consumer: str, as_holder: bool
    ) -> None:
        some = sorted(self.in_hand) if as_holder and self.in_hand else range(1, self.last + 2)
        seq = some[which % len(some)]
        if as_holder and seq in self.in_hand:
            consumer = self.in_hand[seq][0]
        if seq > self.last or (
            seq not in self.there and seq not in self.in_hand and outcome != c.ACK
        ):
            expected = NOT_FOUND
        elif seq in self.in_hand:
            expected = 0 if self.in_hand[seq][0] == consumer else NOT_HELD
        else:
            expected = NOT_HELD if seq in self.there else 0
        assert self.queue.settle(outcome, seq, consumer, delay_ms=delay_ms) == expected
        if expected or seq not in self.in_hand:
            return
        if outcome == c.ACK:
            del self.in_hand[seq]
            self.there.pop(seq, None)
        elif outcome == c.NACK:
            self._put_back(seq, self.queue.now_ms + delay_ms)
        else:
            self._refused(seq)

    @rule(ms=st.sampled_from([1, 60, 100, 1000, 30_000]))
    def tick(self, ms: int) -> None:
        self.queue.after(ms)
        timeout_ms, now_ms = self.policy.delivery_timeout_ms, self.queue.now_ms
        for seq, (_, since_ms) in list(self.in_hand.items()):
            if timeout_ms and since_ms + timeout_ms <= now_ms:
                self._refused(seq)
        self._expire()

    @rule()
    def bury(self) -> None:
        self.queue.bury()
        for seq in [seq for seq, fate in self.there.items() if fate.is_dead]:
            del self.there[seq]

    @rule()
    def purge(self) -> None:
        self.queue.apply(c.Purge())
        for seq, fate in list(self.there.items()):
            if not fate.holder and not fate.is_dead:
                del self.there[seq]

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        upto = int(self.last * share)
        left = [seq for seq in self.there if seq <= upto]
        size = sum(self.there[seq].size for seq in left)
        self.queue.apply(c.Truncate(0, upto, size))
        for seq in left:
            del self.there[seq]

    @rule(strategy=st.sampled_from(STRATEGIES), count_max=st.sampled_from([0, 3]))
    def configure(self, strategy: int, count_max: int) -> None:
        self.queue.configure(strategy=strategy, count_max=count_max)
        self.policy = self.queue.machine.policy
        self._keep_limits()
        self.tick(0)

    # What must hold

    @invariant()
    def the_queue_has_what_the_model_has(self) -> None:
        if not hasattr(self, "queue"):
            return
        assert self.queue.live() == sorted(self.there)
        assert self.queue.machine.bytes == self._bytes()
        held = {seq: one.consumer.name for seq, one in self.queue.lane.held.items()}
        assert held == {seq: who for seq, (who, _) in self.in_hand.items()}
        if self.policy.is_last_value:
            values = {fate.key: seq for seq, fate in self.there.items()}
            assert len(values) == len(self.there), "two values of one key"


AgainstModel.TestCase.settings = settings(max_examples=50, stateful_step_count=50, deadline=None)
TestAgainstModel = AgainstModel.TestCase
