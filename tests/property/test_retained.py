"""Retained messages against a dict, and their matching against the naive matcher."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from queuelake.broker.retained import Retained
from queuelake.protocol.message import Message
from queuelake.protocol.topics import matches

MEMORY_BYTES_MAX = 200
LEVELS = st.sampled_from([b"", b"a", b"b", b"$SYS", b"$x", b"long" * 10])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map(b"/".join).filter(bool)
FILTER_LEVELS = st.sampled_from([b"", b"a", b"b", b"+", b"$SYS"])
FILTERS = (
    st.tuples(st.lists(FILTER_LEVELS, max_size=3), st.sampled_from([b"a", b"+", b"#", b""]))
    .map(lambda parts: b"/".join([*parts[0], parts[1]]))
    .filter(bool)
)


def message(topic: bytes, number: int, expires_ms: int = 0) -> Message:
    made = Message(topic, 1, True, b"%d" % number + bytes(30), 0, 0, "someone", 0)
    made.expires_ms = expires_ms
    return made


class RetainedAgainstDict(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[bytes, Message] = {}  # what a commit has made durable
        self.pending: dict[bytes, Message | None] = {}
        self.model: dict[bytes, Message] = {}
        self.volatile: set[bytes] = set()
        self.retained = Retained(MEMORY_BYTES_MAX, self.stored.get)
        self.number = 0
        self.group = 1
        self.now_ms = 0

    @rule(topic=TOPICS, expires=st.sampled_from([0, 0, 3, 10]), volatile=st.booleans())
    def publish(self, topic: bytes, expires: int, volatile: bool) -> None:
        self.number += 1
        made = message(topic, self.number, self.now_ms + expires if expires else 0)
        self.retained.set(made, self.group, volatile)
        self.model[topic] = made
        if volatile:
            self.volatile.add(topic)
        else:
            self.volatile.discard(topic)
            self.pending[topic] = made

    @rule(topic=TOPICS)
    def remove(self, topic: bytes) -> None:
        assert self.retained.remove(topic) == (topic in self.model)
        self.model.pop(topic, None)
        self.volatile.discard(topic)
        self.pending[topic] = None

    @rule()
    def commit(self) -> None:
        for topic, made in self.pending.items():
            if made is None:
                self.stored.pop(topic, None)
            else:
                self.stored[topic] = made
        self.pending.clear()
        self.retained.shrink(self.group)
        assert self.retained.memory_bytes <= MEMORY_BYTES_MAX
        self.group += 1

    @rule()
    def shrink_while_a_group_collects(self) -> None:
        self.retained.shrink(self.group - 1)

    @rule(passed=st.integers(1, 5))
    def time_passes(self, passed: int) -> None:
        self.now_ms += passed

    @rule()
    def drop_expired(self) -> None:
        gone = {
            topic
            for topic, made in self.model.items()
            if made.expires_ms and self.now_ms >= made.expires_ms
        }
        found = self.retained.expired(self.now_ms)
        assert sorted(found) == sorted(gone)
        for topic in found:
            self.remove(topic)

    @rule(topic_filter=st.one_of(FILTERS, TOPICS))
    def match(self, topic_filter: bytes) -> None:
        found = self.retained.match(topic_filter, self.now_ms)
        expected = {
            topic: made
            for topic, made in self.model.items()
            if matches(topic_filter, topic)
            and not (made.expires_ms and self.now_ms >= made.expires_ms)
        }
        assert len(found) == len(expected)
        assert {one.topic: one.body for one in found} == {
            topic: made.body for topic, made in expected.items()
        }

    @invariant()
    def the_index_is_the_dict(self) -> None:
        assert len(self.retained) == len(self.model)
        for topic in self.model:
            assert topic in self.retained


TestRetained = RetainedAgainstDict.TestCase
TestRetained.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.sets(TOPICS, max_size=12))
def test_nothing_is_left_when_everything_is_removed(topics: set[bytes]) -> None:
    retained = Retained(1 << 20, lambda topic: None)
    for number, topic in enumerate(topics):
        retained.set(message(topic, number), 1)
    for topic in topics:
        assert retained.remove(topic)
    assert len(retained) == 0
    assert retained.memory_bytes == 0
    assert retained.match(b"#", 0) == []
    assert retained._root.children == {}
