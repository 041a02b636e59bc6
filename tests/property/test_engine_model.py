"""A queue machine against a simple model: for each group, what became of each message.

The model says who may get which message and when, which answer each settlement gets, and what must
have been handed out after a dispatch; it does not say in which of several ways. States of a message
in a group: queued, held, waiting, dead (on its way to the dead letters), settled.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from queuelake.engine import commands as c
from queuelake.engine.policy import settings as p
from queuelake.engine.policy.retry import backoff_ms
from queuelake.engine.snapshot import state_hash
from queuelake.engine.state import DUPLICATE, FULL, NOT_FOUND, NOT_HELD, TOO_LARGE
from tests.simulation.queue_invariants import places
from tests.unit.engine_queue import DrivenQueue

GROUPS = ("a", "b")
CONSUMERS = ("x", "y", "z")
PARTITIONS = 2
SIZE_MAX = 1000
DEPTH_MAX = 25
TIMEOUT_MS = 30_000
WINDOW_MS = 5_000
RETRIES_MAX = 2

QUEUED, HELD, WAITING, DEAD, SETTLED = "queued", "held", "waiting", "dead", "settled"


@dataclass
class Fate:
    """Of one message in one group."""

    key: int
    state: str = QUEUED
    attempts: int = 0
    consumer: str = ""
    until_ms: int = 0  # deadline when held, due when waiting


class Model:
    """One group."""

    def __init__(self) -> None:
        self.fates: dict[tuple[int, int], Fate] = {}
        self.consumers: set[str] = set()

    def unsettled(self) -> int:
        return sum(fate.state != SETTLED for fate in self.fates.values())

    def held_by(self, consumer: str) -> int:
        return sum(fate.state == HELD and fate.consumer == consumer for fate in self.fates.values())

    def fail(self, fate: Fate, due_ms: int, now_ms: int) -> None:
        if fate.attempts - 1 >= RETRIES_MAX:
            fate.state = DEAD
        else:
            fate.state = WAITING if due_ms > now_ms else QUEUED
            fate.until_ms = due_ms


class AgainstModel(RuleBasedStateMachine):
    @initialize(
        ordering=st.sampled_from([p.NONE, p.PARTITION]),
        retry_blocks=st.sampled_from([p.BLOCKS_NOTHING, p.BLOCKS_KEY, p.BLOCKS_PARTITION]),
        key_inflight=st.integers(0, 2),
        prefetch=st.sampled_from([1, 2, 10]),
    )
    def begin(self, ordering: int, retry_blocks: int, key_inflight: int, prefetch: int) -> None:
        self.queue = DrivenQueue(
            window_max=2,
            partitions=PARTITIONS,
            ordering=ordering,
            retry_blocks=retry_blocks,
            key_inflight=key_inflight,
            prefetch=prefetch,
            retries_max=RETRIES_MAX,
            message_bytes_max=SIZE_MAX,
            depth_max=DEPTH_MAX,
            dedupe_window_ms=WINDOW_MS,
        )
        self.queue.after(0)  # the clock is part of the state
        self.policy = self.queue.machine.policy
        self.models: dict[str, Model] = {}
        self.ids: dict[bytes, int] = {}
        self.all: dict[tuple[int, int], int] = {}  # place -> key, of what is stored
        self.last = [0] * PARTITIONS

    # Rules

    @rule(
        partition=st.integers(0, PARTITIONS - 1),
        key=st.integers(0, 2),
        size=st.sampled_from([1, SIZE_MAX, SIZE_MAX + 1]),
        dedupe=st.sampled_from([b"", b"", b"m", b"n"]),
        priority=st.sampled_from([4, 4, 4, 0, 31]),
    )
    def publish(self, partition: int, key: int, size: int, dedupe: bytes, priority: int) -> None:
        depths = [model.unsettled() for model in self.models.values()] or [len(self.all)]
        if size > SIZE_MAX:
            expected = TOO_LARGE
        elif dedupe and self.ids.get(dedupe, 0) > self.queue.now_ms:
            expected = DUPLICATE
        else:
            expected = FULL if max(depths) >= DEPTH_MAX else 0
        before = state_hash(self.queue.machine)
        reply = self.queue.publish(
            key, partition=partition, size=size, dedupe=dedupe, priority=priority
        )
        assert reply == expected
        if expected:
            assert state_hash(self.queue.machine) == before
            return
        if dedupe:
            self.ids[dedupe] = self.queue.now_ms + WINDOW_MS
        self.last[partition] += 1
        place = (partition, self.last[partition])
        self.all[place] = key
        for model in self.models.values():
            model.fates[place] = Fate(key)

    @rule(group=st.sampled_from(GROUPS), consumer=st.sampled_from(CONSUMERS))
    def join(self, group: str, consumer: str) -> None:
        self.queue.join(consumer, group=group)
        if group not in self.models:
            self.models[group] = model = Model()
            model.fates = {place: Fate(key) for place, key in self.all.items()}
        self.models[group].consumers.add(consumer)

    @rule(group=st.sampled_from(GROUPS), consumer=st.sampled_from(CONSUMERS), gone=st.booleans())
    def leave(self, group: str, consumer: str, gone: bool) -> None:
        self.queue.leave(consumer, group=group, gone=gone)
        model = self.models.get(group)
        if model is None:
            return
        model.consumers.discard(consumer)
        for fate in model.fates.values():
            if gone and fate.state == HELD and fate.consumer == consumer:
                model.fail(fate, 0, self.queue.now_ms)

    @rule()
    def dispatch(self) -> None:
        for one in self.queue.dispatch():
            model = self.models[one.group]
            fate = model.fates[(one.partition, one.seq)]
            assert fate.state == QUEUED, (one, fate)
            assert one.consumer in model.consumers
            fate.state, fate.consumer = HELD, one.consumer
            fate.attempts += 1
            fate.until_ms = self.queue.now_ms + TIMEOUT_MS
            assert one.attempt == fate.attempts
            assert model.held_by(one.consumer) <= self.policy.prefetch
            self._check_order(model, (one.partition, one.seq), fate)
        for model in self.models.values():
            self._check_nothing_is_left(model)

    def _check_order(self, model: Model, place: tuple[int, int], fate: Fate) -> None:
        partition, seq = place
        of_partition = {at: f for (n, at), f in model.fates.items() if n == partition}
        if fate.key and self.policy.key_inflight:
            out = [f for f in of_partition.values() if f.key == fate.key and f.state == HELD]
            assert len(out) <= self.policy.key_inflight
        if self.policy.ordering == p.NONE or fate.attempts > 1:
            return
        others = {f.consumer for f in of_partition.values() if f.state == HELD} - {fate.consumer}
        assert not others, "two consumers have messages of one partition"
        for at, earlier in of_partition.items():
            if at < seq and earlier.key == fate.key:
                assert earlier.attempts or earlier.state == SETTLED, f"{seq} overtakes {at}"
                blocks = self.policy.retry_blocks == p.BLOCKS_PARTITION
                blocks = blocks or (self.policy.retry_blocks == p.BLOCKS_KEY and fate.key != 0)
                assert not blocks or earlier.state != WAITING, f"{at} waits, {seq} does not"

    def _check_nothing_is_left(self, model: Model) -> None:
        """Who has room gets what is free."""
        room = [one for one in model.consumers if model.held_by(one) < self.policy.prefetch]
        if self.policy.ordering != p.NONE or self.policy.key_inflight or not room:
            return
        waiting = {(n, f.key) for (n, _), f in model.fates.items() if f.state == WAITING}
        for (number, seq), fate in model.fates.items():
            waits = self.policy.retry_blocks == p.BLOCKS_KEY and (number, fate.key) in waiting
            assert fate.state != QUEUED or (waits and fate.key), f"{number}:{seq} is left over"

    @rule(
        group=st.sampled_from((*GROUPS, "nobody")),
        which=st.integers(0, 40),
        outcome=st.sampled_from([c.ACK, c.ACK, c.NACK, c.REJECT]),
        delay_ms=st.sampled_from([0, 700]),
        consumer=st.sampled_from(CONSUMERS),
        as_holder=st.booleans(),
    )
    def settle(
        self, group: str, which: int, outcome: int, delay_ms: int, consumer: str, as_holder: bool
    ) -> None:
        model = self.models.get(group)
        fates = {} if model is None else model.fates
        held = sorted(place for place, fate in fates.items() if fate.state == HELD)
        some = held if as_holder and held else [*sorted(fates), (0, 0), (0, 99), (9, 1)]
        place = some[which % len(some)]
        fate = fates.get(place)
        if as_holder and fate is not None and fate.state == HELD:
            consumer = fate.consumer
        if fate is None or (fate.state == SETTLED and outcome != c.ACK):
            expected = NOT_FOUND
        elif fate.state == SETTLED or (fate.state == HELD and fate.consumer == consumer):
            expected = 0
        else:
            expected = NOT_HELD
        before = state_hash(self.queue.machine)
        command = c.Settle(group, consumer, place[0], place[1], outcome, delay_ms)
        assert self.queue.apply(command) == expected
        if expected:
            assert state_hash(self.queue.machine) == before
        elif fate is not None and model is not None and fate.state == HELD:
            now_ms = self.queue.now_ms
            if outcome == c.NACK:
                model.fail(fate, now_ms + delay_ms, now_ms)
            else:
                fate.state = SETTLED if outcome == c.ACK else DEAD
            self._forget_what_all_settled()

    @rule(ms=st.sampled_from([1, 700, 6_000, 31_000]))
    def tick(self, ms: int) -> None:
        self.queue.after(ms)
        now_ms = self.queue.now_ms
        for model in self.models.values():
            for fate in model.fates.values():
                if fate.state == WAITING and fate.until_ms <= now_ms:
                    fate.state = QUEUED
                elif fate.state == HELD and fate.until_ms <= now_ms:
                    model.fail(fate, now_ms + backoff_ms(self.policy, fate.attempts), now_ms)

    @rule()
    def bury(self) -> None:
        self.queue.bury()
        for model in self.models.values():
            for fate in model.fates.values():
                if fate.state == DEAD:
                    fate.state = SETTLED
        self._forget_what_all_settled()

    @rule()
    def purge(self) -> None:
        self.queue.apply(c.Purge())
        for model in self.models.values():
            for fate in model.fates.values():
                if fate.state in (QUEUED, WAITING):
                    fate.state = SETTLED
        if not self.models:
            self.all.clear()
        self._forget_what_all_settled()

    def _forget_what_all_settled(self) -> None:
        """Nobody who comes later will see it."""
        for place in list(self.all):
            fates = [model.fates[place] for model in self.models.values()]
            if fates and all(fate.state == SETTLED for fate in fates):
                del self.all[place]

    # What must hold

    @invariant()
    def every_message_is_where_the_model_says(self) -> None:
        if not hasattr(self, "queue"):
            return
        for name, model in self.models.items():
            group = self.queue.machine.groups[name]
            assert group.unsettled == model.unsettled()
            found: dict[str, set[tuple[int, int]]] = {HELD: set(), WAITING: set(), DEAD: set()}
            for lane in group.lanes:
                where = places(group, lane)
                for state, place in ((HELD, "held"), (WAITING, "waiting"), (DEAD, "dying")):
                    found[state] |= {(lane.number, seq) for seq in where[place]}
            for state, there in found.items():
                assert there == {at for at, fate in model.fates.items() if fate.state == state}
            for (number, seq), fate in model.fates.items():
                assert (seq in group.lanes[number].settled) == (fate.state == SETTLED)


AgainstModel.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestAgainstModel = AgainstModel.TestCase
