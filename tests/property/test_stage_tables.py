"""Pointers and plain chunks of one partition read like one log, against a list."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from queuelake.storage import api
from queuelake.storage import queue_tables as t
from queuelake.storage.api import Batch
from queuelake.storage.memory import MemoryStore
from tests.contract.chunks import KIB, P, Q, put, record, trim
from tests.contract.staged import hidden, show, stage

sizes = st.lists(st.sampled_from([0, 1, 100, 33 * KIB]), min_size=1, max_size=4)


class OneLog(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.log: list[tuple[int, bytes, int]] = []  # sequence, payload, time
        self.chunks: list[tuple[int, int]] = []  # first and last sequence, as they were written
        self.last = 0
        self.now_ms = 1000
        self.stages = 0

    def _note(self, payloads: list[bytes]) -> None:
        for payload in payloads:
            self.last += 1
            self.log.append((self.last, payload, self.now_ms))

    @rule(sizes=sizes)
    def publish(self, sizes: list[int]) -> None:
        for size in sizes:
            one = record(self.last + 1, size=size, ts_ms=self.now_ms)
            put(self.store, self.last + 1, [one])
            self._note([one.payload])
            self.chunks.append((self.last, self.last))

    @rule(batch=st.lists(sizes, min_size=1, max_size=3))
    def commit_a_batch(self, batch: list[list[int]]) -> None:
        self.stages += 1
        first = self.last + 1
        chunks = []
        for sizes in batch:
            records = [record(n, size=size) for n, size in enumerate(sizes)]
            chunks.append(hidden(records))
            self._note([one.payload for one in records])
            self.chunks.append((self.last - len(sizes) + 1, self.last))
        stage(self.store, self.stages, chunks)
        show(self.store, self.stages, chunks, [len(one) for one in batch], first, self.now_ms)

    @rule(sizes=sizes)
    def stage_and_forget(self, sizes: list[int]) -> None:
        self.stages += 1
        stage(self.store, self.stages, [hidden([record(0, size=size)]) for size in sizes])

    @rule(ms=st.integers(1, 100))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @rule(share=st.floats(0, 1))
    def trim(self, share: float) -> None:
        upto = int(self.last * share)
        trim(self.store, upto)
        self.chunks = [chunk for chunk in self.chunks if chunk[1] > upto]
        left = self.chunks[0][0] if self.chunks else self.last + 1
        self.log = [one for one in self.log if one[0] >= left]

    @rule(share=st.floats(0, 1), ms=st.integers(0, 500))
    def search(self, share: float, ms: int) -> None:
        seq = 1 + int(self.last * share)
        with self.store.view() as view:
            found = t.read_ahead(view, Q, P, seq, 40 * KIB)
            at_time = t.first_at_time(view, Q, P, 1000 + ms)
        expected = next((one[0] for one in self.log if one[0] >= seq), 0)
        assert bool(found) == bool(expected)
        assert not found or found[0].seq <= expected <= found[-1].seq
        later = [one[0] for one in self.log if one[2] >= 1000 + ms]
        assert at_time == (later[0] if later else self.log[-1][0] + 1 if self.log else 1)

    @invariant()
    def reads_like_a_list(self) -> None:
        found = []
        seq = 0
        with self.store.view() as view:
            while records := t.read_chunk_at(view, Q, P, seq):
                found += [(one.seq, one.payload, one.ts_ms) for one in records]
                seq = records[-1].seq + 1
            assert t.last_sequence(view, Q, P) == (self.log[-1][0] if self.log else 0)
        assert found == self.log

    def teardown(self) -> None:
        trim(self.store, self.last)
        batch = Batch()
        batch.drop_queue(Q)
        batch.sweep(10_000)
        self.store.commit(batch)
        assert not self.store.tables[api.CHUNKS]


TestOneLog = OneLog.TestCase
TestOneLog.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
