"""Mailboxes of a whole node against a model: a dict of keys, a counter, a position.

Every step is carried to its end, so the model says exactly what each owner gets and when: the next
batch in the order of the sequences, when all of the last one is answered. Crashes leave nothing but
the store, a failed commit leaves it as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from queuelake.ecq_settings import EcqConfig
from queuelake.settings import Settings
from queuelake.storage.check import problems
from tests.harness import packets as p
from tests.simulation.node import RETRY_MS, Node, Peer

OWNERS = ("o", "p")
KEYS = ("a", "b", "c/d", "e", "f", "g", "h")
REFUSED = 0x97

owners = st.sampled_from(OWNERS)
keys = st.sampled_from(KEYS)


@dataclass
class Model:
    """One mailbox, and what its owner has in hand."""

    batch: int
    next_seq: int = 1
    acked: int = 0
    live: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    peer: Peer | None = None
    out: dict[int, int] = field(default_factory=dict)  # packet id by sequence
    batch_end: int = 0

    def write(self, key: str, payload: bytes) -> None:
        self.live[key] = (self.next_seq, payload)
        self.next_seq += 1

    def next_batch(self) -> list[tuple[int, str, bytes]]:
        if self.peer is None or self.out:
            return []
        found = [(seq, key, payload) for key, (seq, payload) in self.live.items()]
        return sorted(one for one in found if one[0] > self.acked)[: self.batch]


class AgainstModel(RuleBasedStateMachine):
    @initialize(batch=st.sampled_from([1, 2, 5]), version=st.sampled_from([4, 5]))
    def begin(self, batch: int, version: int) -> None:
        self.version = version
        self.node = Node(Settings(ecq=EcqConfig(reader_batch_size=batch)))
        self.models = {name: Model(batch) for name in OWNERS}
        self.writer = self.node.client("writer")
        self.written = 0

    def settle(self) -> None:
        """The node comes to rest, and every owner has got what it must, and nothing else."""
        self.node.work()
        for name, model in self.models.items():
            due = model.next_batch()
            found = [] if model.peer is None else model.peer.take_all()
            got = [one for one in found if one.type == p.PUBLISH]
            topics = [f"$ECQ/{name}/{key}" for _, key, _ in due]
            assert [one.topic for one in got] == topics
            assert [one.payload for one in got] == [payload for _, _, payload in due]
            assert all(one.qos == 1 and not one.retain and not one.dup for one in got)
            if self.version == 5:
                numbers = [one.properties["user_property"] for one in got]
                assert numbers == [[("ecq-seqno", str(seq))] for seq, _, _ in due]
            for (seq, _, _), one in zip(due, got, strict=True):
                model.out[seq] = one.packet_id
                model.batch_end = seq

    def publish(self, name: str, key: str) -> bytes:
        self.written += 1
        payload = b"%d" % self.written
        self.writer.publish(f"$ECQ/w/{name}/{key}", payload, 1, self.written % 60_000 + 1)
        return payload

    @rule(writes=st.lists(st.tuples(owners, keys), min_size=1, max_size=8))
    def write_in_one_group(self, writes: list[tuple[str, str]]) -> None:
        for name, key in writes:
            self.models[name].write(key, self.publish(name, key))
        self.settle()
        assert [one.reason_code for one in self.writer.take_all()] == [0] * len(writes)

    @rule(writes=st.lists(st.tuples(owners, keys), min_size=1, max_size=3))
    def write_in_vain(self, writes: list[tuple[str, str]]) -> None:
        self.node.store.fail_commits = 1
        for name, key in writes:
            self.publish(name, key)
        self.settle()
        assert {one.reason_code for one in self.writer.take_all()} == {0x80}
        self.node.pass_time(RETRY_MS)
        self.settle()

    @rule(name=owners)
    def come(self, name: str) -> None:
        model = self.models[name]
        if model.peer is None:
            model.peer = self.node.client(name, self.version, clean=True, expiry_s=0)
            model.peer.subscribe(f"$ECQ/{name}/#", qos=1)
            self.settle()

    @rule(name=owners)
    def go(self, name: str) -> None:
        model = self.models[name]
        if model.peer is not None:
            model.peer.hang_up()
            model.peer = None
            model.out.clear()
            self.settle()

    @rule(name=owners, order=st.randoms(use_true_random=False), count=st.integers(1, 5))
    def answer(self, name: str, order: object, count: int) -> None:
        self._answer(name, order, count, None)
        self.settle()

    @rule(name=owners, order=st.randoms(use_true_random=False), count=st.integers(1, 5))
    def refuse(self, name: str, order: object, count: int) -> None:
        self._answer(name, order, count, REFUSED if self.version == 5 else None)
        self.settle()

    @rule(name=owners, order=st.randoms(use_true_random=False))
    def answer_while_the_store_fails(self, name: str, order: object) -> None:
        self.node.store.fail_commits = 1
        self._answer(name, order, 9, None)
        self.node.work()
        self.node.store.fail_commits = 0
        self.node.pass_time(RETRY_MS)
        self.settle()

    def _answer(self, name: str, order: object, count: int, reason: int | None) -> None:
        model = self.models[name]
        if model.peer is None:
            return
        waiting = sorted(model.out)
        order.shuffle(waiting)  # type: ignore[attr-defined]
        for seq in waiting[:count]:
            packet_id = model.out.pop(seq)
            model.peer.transport.send(p.acknowledge(p.PUBACK, packet_id, reason))
        if waiting and not model.out:
            model.acked = max(model.acked, model.batch_end)

    @rule(name=owners, data=st.data())
    def rewind(self, name: str, data: st.DataObject) -> None:
        model = self.models[name]
        seq = data.draw(st.integers(0, model.next_seq + 1))
        body = b'{"seqno": %d}' % seq
        self.writer.publish(f"$ECQ/{name}/$rewind", body, 1, 60_001)
        model.acked = min(max(0, seq - 1), model.next_seq - 1)
        model.out.clear()
        self.settle()
        assert [one.reason_code for one in self.writer.take_all()] == [0]

    @rule(name=owners)
    def rewind_in_vain(self, name: str) -> None:
        model = self.models[name]
        if model.next_seq == 1:
            return  # there is nothing to read again
        self.node.store.fail_commits = 1
        self.writer.publish(f"$ECQ/{name}/$rewind", b'{"to": "first"}', 1, 60_001)
        model.out.clear()  # what the owner had in hand comes again
        self.settle()
        assert [one.reason_code for one in self.writer.take_all()] == [0x80]
        self.node.pass_time(RETRY_MS)
        self.settle()

    @rule()
    def crash(self) -> None:
        self.node.crash()
        self.node.work()
        for model in self.models.values():
            model.peer = None
            model.out.clear()
        self.writer = self.node.client("writer")

    @rule()
    def time_passes(self) -> None:
        self.node.pass_time(31_000)
        self.settle()

    @invariant()
    def the_store_holds_together_and_has_what_is_live(self) -> None:
        if not hasattr(self, "node"):
            return
        with self.node.store.view() as view:
            assert problems(view, 10_000) == []
        for name, model in self.models.items():
            seqs = sorted(seq for seq, _ in model.live.values())
            inspected = self.node.broker.mailboxes.inspect(name)
            if not seqs:
                expected = "empty"
            elif len(seqs) < 3:
                expected = str(seqs).replace(" ", "")
            else:
                expected = f"[{seqs[0]},...,{seqs[-1]}]"
            assert inspected.queue == expected
            assert inspected.acked in (model.acked, "none")
            assert model.acked == 0 or inspected.acked == model.acked


AgainstModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestMailboxesAgainstModel = AgainstModel.TestCase
