"""A quorum queue against a simple model which says where every message is and whose turn it is."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from queuelake.engine.quorum import commands as c
from queuelake.engine.quorum import effects as e
from queuelake.engine.quorum import replies as r
from queuelake.engine.quorum.policy import RETRY_ALL
from queuelake.engine.quorum.sessions import node_of
from tests.quorum.driven import Driven
from tests.quorum.invariants import places
from tests.quorum.model import DEAD, DELAYED, DONE, HELD, READY, Fate, Model, Taker

PIDS = ("n1/p", "n2/p")
CONSUMERS = ("n1/a", "n2/b", "n3/c")
RETRY_MS = 1_000
DISCONNECTED_MS = 5_000


class AgainstModel(RuleBasedStateMachine):
    @initialize(
        delivery_limit=st.sampled_from([-1, 0, 2]),
        length_max=st.sampled_from([0, 3]),
        delays=st.booleans(),
    )
    def begin(self, delivery_limit: int, length_max: int, delays: bool) -> None:
        self.driven = Driven(
            delivery_limit=delivery_limit,
            length_max=length_max,
            dead_letter_target="dead",
            delayed_retry=RETRY_ALL if delays else 0,
            delayed_retry_min_ms=RETRY_MS,
            disconnected_timeout_ms=DISCONNECTED_MS,
        )
        self.model = Model(delivery_limit, length_max, RETRY_MS if delays else 0)
        self.model.now_ms = self.driven.now_ms
        self.away_ms: dict[int, int] = {}  # key -> until when it is waited for

    def apply(self, command: c.Command) -> r.Reply:
        """The model has done its part: now who got what, and what became of the rest."""
        reply = self.driven.apply(command)
        given = [
            (key, msg_id, index)
            for key, msg_id, index in self.driven.delivered()
            if msg_id >= self.model.takers[key].next_id  # what is held may be sent again
        ]
        for key, msg_id, index in sorted(given, key=self._turn):
            fate = self.model.give(key, msg_id, index)
            delivery = self._delivery(key, msg_id)
            assert (delivery.acquired, delivery.failures) == (fate.acquired, fate.failures)
        if self.model.can_give():
            self.model.expire_heads()
            assert not self.model.at(READY), "somebody has room"
        self.model.keep_length()
        for index, reason in self.driven.dead():
            (fate,) = [one for one in self.model.fates if one.index == index]
            assert (fate.place, fate.reason) == (DEAD, reason)
        return reply

    def _turn(self, given: tuple[int, int, int]) -> int:
        """Effects come consumer by consumer; the model wants them in order of hand-out."""
        line = [one.index for one in self.model.in_line()]
        return line.index(given[2])

    def _delivery(self, key: int, msg_id: int) -> e.Delivery:
        return next(
            delivery
            for effect in self.driven.found(e.Deliver)
            for delivery in effect.deliveries
            if (effect.key, delivery.msg_id) == (key, msg_id)
        )

    # Publishers

    @rule(
        pid=st.sampled_from(PIDS),
        ahead=st.sampled_from([0, 0, 0, 0, -1, 1, 2]),
        priority=st.sampled_from([4, 4, 9]),
        ttl_ms=st.sampled_from([-1, -1, 700]),
    )
    def enqueue(self, pid: str, ahead: int, priority: int, ttl_ms: int) -> None:
        seq = max(1, self.model.next_seq.get(pid, 1) + ahead)
        expires_ms = self.model.now_ms + ttl_ms if ttl_ms >= 0 else None
        index = self.driven.index + 1
        self.model.enqueue(Fate(index, pid, seq, 10, priority, expires_ms))
        assert self.apply(c.Enqueue(pid, seq, 10, priority, ttl_ms)).code == r.ACCEPTED

    @rule(pid=st.sampled_from(PIDS))
    def end_enqueuer(self, pid: str) -> None:
        self.model.end_of_enqueuer(pid)
        self.apply(c.Down(pid))

    # Consumers

    @rule(pid=st.sampled_from(CONSUMERS), prefetch=st.sampled_from([1, 2, 5]))
    def check_out(self, pid: str, prefetch: int) -> None:
        known = self.driven.queue.ids.get((pid, "t"))
        key = known or self.driven.index + 1
        taker = self.model.takers.setdefault(key, Taker(key, prefetch))
        taker.prefetch, taker.cancelled, taker.suspected = prefetch, False, False
        self.away_ms.pop(key, None)
        reply = self.apply(c.Checkout(pid, "t", prefetch))
        assert isinstance(reply, r.CheckedOut)
        assert reply.key == key

    @rule(pid=st.sampled_from(CONSUMERS), remove=st.booleans())
    def cancel(self, pid: str, remove: bool) -> None:
        key = self.driven.queue.ids.get((pid, "t"))
        if key is not None:
            self.model.takers[key].cancelled = True
            if remove:
                self._take_back(key, failed=False)
            self.away_ms.pop(key, None) if not self.model.held_by(key) else None
        self.apply(c.Cancel(pid, "t", remove))

    @rule(pid=st.sampled_from(CONSUMERS))
    def die(self, pid: str) -> None:
        key = self.driven.queue.ids.get((pid, "t"))
        if key is not None:
            self.model.takers[key].cancelled = True
            self._take_back(key, failed=True)
        self.apply(c.Down(pid))

    @rule(pid=st.sampled_from(CONSUMERS))
    def lose_node(self, pid: str) -> None:
        for (one, _), key in self.driven.queue.ids.items():
            taker = self.model.takers[key]
            if node_of(one) == node_of(pid) and not taker.suspected:
                taker.suspected = True
                self.away_ms[key] = self.model.now_ms + DISCONNECTED_MS
        self.apply(c.Down(pid, noconnection=True))

    @rule(pid=st.sampled_from(CONSUMERS))
    def regain_node(self, pid: str) -> None:
        for (one, _), key in self.driven.queue.ids.items():
            if node_of(one) == node_of(pid):
                self.model.takers[key].suspected = False
                self.away_ms.pop(key, None)
        self.apply(c.NodeUp(node_of(pid)))

    @precondition(lambda self: self.model.at(HELD))
    @rule(data=st.data(), what=st.sampled_from(["settle", "return", "fail", "discard"]))
    def answer(self, data: st.DataObject, what: str) -> None:
        key = data.draw(st.sampled_from(sorted({one.key for one in self.model.at(HELD)})))
        held = self.model.held_by(key)
        chosen = data.draw(st.lists(st.sampled_from(range(len(held))), min_size=1, unique=True))
        ids = [held[number].msg_id for number in chosen]
        for number in chosen:
            self._model_answer(held[number], what)
        if what == "settle":
            self.apply(c.Settle(key, [*ids, 9_999]))
        elif what == "return":
            self.apply(c.Return(key, ids))
        elif what == "fail":
            self.apply(c.Modify(key, ids, delivery_failed=True))
        else:
            self.apply(c.Discard(key, ids))

    def _model_answer(self, fate: Fate, what: str) -> None:
        if what == "settle":
            fate.place = DONE
        elif what == "discard":
            self.model.bury(fate, "rejected")
        else:
            self.model.come_back(fate, failed=what == "fail", wanted=True)

    def _take_back(self, key: int, failed: bool) -> None:
        for fate in sorted(self.model.held_by(key), key=lambda one: one.msg_id):
            self.model.come_back(fate, failed, wanted=False)
        self.away_ms.pop(key, None)

    # Time and orders

    @rule(ms=st.sampled_from([1, 300, 1_000, 6_000]))
    def time_passes(self, ms: int) -> None:
        """Timers go off late, and in any order is right: here each name once."""
        self.driven.now_ms += ms
        self.model.now_ms += ms
        for fate in sorted(self.model.at(DELAYED), key=lambda one: (one.due_ms, one.index)):
            if fate.due_ms <= self.model.now_ms:
                self.model.ready_again(fate)
        self.apply(c.Timeout(c.DELAYED))
        for key in sorted(self.away_ms, key=lambda one: (self.away_ms[one], one)):
            if self.away_ms[key] <= self.model.now_ms:
                self._take_back(key, failed=False)
        self.apply(c.Timeout(c.DISCONNECTED))

    @rule()
    def expire(self) -> None:
        """At the head of each line."""
        for level in {one.turn[0] for one in self.model.at(READY)}:
            for one in [one for one in self.model.in_line() if one.turn[0] == level]:
                if not self.model.is_expired(one):
                    break
                self.model.bury(one, "expired")
        self.apply(c.Timeout(c.EXPIRY))

    @rule()
    def purge(self) -> None:
        gone = [*self.model.at(READY), *self.model.at(DELAYED)]
        for fate in gone:
            fate.place = DONE
        reply = self.apply(c.Purge())
        assert isinstance(reply, r.Counted)
        assert reply.count == len(gone)

    @invariant()
    def every_message_is_where_the_model_has_it(self) -> None:
        if not hasattr(self, "driven"):
            return
        found = places(self.driven.queue)
        assert self.driven.ready() == [one.index for one in self.model.in_line()]
        for mine, theirs in (("held", HELD), ("delayed", DELAYED)):
            indexes = sorted(one.index for one in found[mine])
            assert indexes == sorted(one.index for one in self.model.at(theirs))


AgainstModel.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, derandomize=True
)
TestAgainstModel = AgainstModel.TestCase
