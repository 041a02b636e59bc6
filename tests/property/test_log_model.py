"""Logs of writes against a model, through overwrites, deletions, cleaning, failures and crashes.

The model remembers each write which was confirmed. A reader which goes through the shards at any
moments must in the end have found each row which is still there, and never a row twice.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from queuelake.ecq_settings import EcqConfig
from queuelake.storage import api
from queuelake.storage import log_tables as t
from queuelake.storage.check import problems
from queuelake.tables import LOG_SHARDS
from tests.ecq.node import MailboxNode
from tests.simulation.node import RETRY_MS

DAY_MS = 86_400_000


class LogAgainstModel(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.node = MailboxNode(ecq=EcqConfig(data_retention="1d", gc_interval="1h"))
        self.clean_early()
        self.written = 0
        self.positions = [0] * LOG_SHARDS
        self.rows: dict[tuple[int, int], bytes] = {}  # shard and sequence of what was read

    def clean_early(self) -> None:
        self.node.broker.mailboxes.cleaning.entries_spare = 5

    @rule(writes=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2)), max_size=30))
    def write(self, writes: list[tuple[int, int]]) -> None:
        peer = self.node.producer()
        for owner, key in writes:
            self.written += 1
            self.node.send_write(peer, f"car{owner}", f"k{key}", str(self.written))
        self.node.work()
        peer.leave()

    @rule()
    def write_and_fail(self) -> None:
        peer = self.node.producer()
        self.written += 1
        self.node.send_write(peer, "car1", "k1", str(self.written))
        self.node.fail_commit()
        self.node.pass_time(RETRY_MS)
        peer.hang_up()

    @rule()
    def clean(self) -> None:
        self.node.pass_time(1_500)

    @rule()
    def clean_and_fail(self) -> None:
        self.node.store.fail_commits = 1
        self.node.pass_time(1_500)
        self.node.store.fail_commits = 0
        self.node.pass_time(RETRY_MS)

    @rule()
    def crash(self) -> None:
        self.node.crash()
        self.clean_early()

    @rule()
    def expire(self) -> None:
        self.node.leap(DAY_MS + 1)

    @rule(shard=st.integers(0, LOG_SHARDS - 1))
    def read(self, shard: int) -> None:
        with self.node.store.view() as view:
            after = self.positions[shard]
            first, upto = t.log_range(view, api.ECQ_LOG, shard)
            assert first <= upto
            assert after <= upto, "a log never goes back"
            for one in t.read_mailboxes(view, shard, after, upto):
                place = (shard, one.seqno)
                assert after < one.seqno <= upto
                assert place not in self.rows
                self.rows[place] = one.payload
        self.positions[shard] = upto

    @invariant()
    def the_log_agrees_with_the_rows(self) -> None:
        with self.node.store.view() as view:
            assert problems(view, 1_000_000) == []
            found: list[bytes] = []
            for shard in range(LOG_SHARDS):
                upto = t.log_range(view, api.ECQ_LOG, shard)[1]
                for one in t.read_mailboxes(view, shard, 0, upto):
                    found.append(one.payload)
                    known = self.rows.get((shard, one.seqno))
                    assert known is None or known == one.payload, "a sequence means one write"
                    assert known is not None or one.seqno > self.positions[shard], "not skipped"
            assert len(found) == view.count(api.ECQ_PAYLOAD)

    @invariant()
    def the_log_is_bounded(self) -> None:
        self.node.work()
        with self.node.store.view() as view:
            state = t.read_state(view, api.ECQ_LOG)
        assert self.node.broker.mailboxes._mailboxes.writes.log.state.entries == state.entries


TestLog = LogAgainstModel.TestCase
TestLog.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
