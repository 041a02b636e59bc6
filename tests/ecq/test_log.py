"""The log of mailbox writes: every write in its order, for those who read mailboxes as a table."""

from __future__ import annotations

import pytest

from queuelake.ecq_settings import EcqConfig
from queuelake.storage import api
from queuelake.storage import log_tables as t
from queuelake.storage.check import problems
from queuelake.storage.ecq_tables import digest
from queuelake.tables import LOG_SHARDS
from tests.ecq.node import DAY_MS, MailboxNode
from tests.simulation.node import RETRY_MS


def shard(owner: str) -> int:
    return t.shard_of(digest(owner.encode()))


def reach(node: MailboxNode, owner: str) -> int:
    with node.store.view() as view:
        return t.log_range(view, api.ECQ_LOG, shard(owner))[1]


def read(node: MailboxNode, owner: str, after: int = 0) -> list[tuple[int, str, str]]:
    """Sequence, key and payload of what a reader of the owner's shard finds."""
    with node.store.view() as view:
        assert problems(view, 100_000) == []
        upto = t.log_range(view, api.ECQ_LOG, shard(owner))[1]
        found = list(t.read_mailboxes(view, shard(owner), after, upto))
    return [
        (one.seqno, one.key.decode(), one.payload.decode())
        for one in found
        if one.owner == owner.encode()
    ]


def logged(node: MailboxNode) -> int:
    with node.store.view() as view:
        return t.read_state(view, api.ECQ_LOG).entries


def test_writes_are_numbered_in_their_order() -> None:
    node = MailboxNode()
    for number, key in enumerate(["a", "b/c", "d"]):
        node.write("car", key, f"v{number}")
    assert read(node, "car") == [(1, "a", "v0"), (2, "b/c", "v1"), (3, "d", "v2")]
    assert read(node, "car", after=2) == [(3, "d", "v2")]


def test_an_overwritten_entry_is_absent_and_its_sequence_is_not_given_again() -> None:
    node = MailboxNode()
    for number in range(3):
        node.write("car", "a", f"v{number}")
    assert read(node, "car") == [(3, "a", "v2")]


def test_of_several_writes_to_a_key_in_one_commit_the_last_is_in_the_log() -> None:
    node = MailboxNode()
    peer = node.producer()
    for number in range(5):
        node.send_write(peer, "car", "a", f"v{number}")
    node.work()
    assert [one[2] for one in read(node, "car")] == ["v4"]
    assert logged(node) == 1


def test_one_commit_is_one_row_for_each_shard() -> None:
    node = MailboxNode()
    peer = node.producer()
    for number in range(300):
        node.send_write(peer, f"car{number}", "a", "v")
    node.work()
    assert node.rows("ecq_log") == [LOG_SHARDS]
    assert logged(node) == 300


def test_an_expired_entry_is_absent_when_it_was_collected() -> None:
    node = MailboxNode(ecq=EcqConfig(data_retention="1d", gc_interval="1h"))
    node.write("car", "a", "old")
    node.leap(2 * DAY_MS)
    node.write("car", "b", "new")
    assert read(node, "car") == [(2, "b", "new")]


def test_sequences_go_on_after_a_restart_even_when_the_log_is_empty() -> None:
    node = MailboxNode(ecq=EcqConfig(data_retention="1d", gc_interval="1h"))
    node.broker.mailboxes.cleaning.entries_spare = 0
    node.write("car", "a", "v1")
    node.write("car", "a", "v2")
    node.leap(2 * DAY_MS)
    assert node.rows("ecq_payload", "ecq_log") == [0, 0]
    node.crash()
    assert reach(node, "car") == 2
    node.write("car", "a", "v3")
    assert read(node, "car") == [(3, "a", "v3")]


def test_a_failed_commit_leaves_nothing_in_the_log_and_sequences_do_not_repeat() -> None:
    node = MailboxNode()
    node.write("car", "a", "v1")
    peer = node.producer()
    node.send_write(peer, "car", "b", "lost")
    node.fail_commit()
    node.pass_time(RETRY_MS)
    assert read(node, "car") == [(1, "a", "v1")]
    node.write("car", "b", "v2")
    found = read(node, "car")
    assert [one[1:] for one in found] == [("a", "v1"), ("b", "v2")]
    assert found[-1][0] > 1
    node.crash()
    assert read(node, "car") == found


def test_a_log_of_overwritten_entries_is_cleaned() -> None:
    node = MailboxNode()
    node.broker.mailboxes.cleaning.entries_spare = 50
    for number in range(200):
        node.write(f"car{number % 8}", f"k{number % 3}", str(number))
    for number in range(200, 260):
        node.write("car0", "k0", str(number))
    before = {owner: read(node, f"car{owner}") for owner in range(8)}
    node.pass_time(2_000)
    rows = node.rows("ecq_payload")[0]
    assert logged(node) <= 2 * rows + 50
    assert {owner: read(node, f"car{owner}") for owner in range(8)} == before


def test_a_row_of_the_log_most_of_which_is_gone_keeps_the_sequences_of_the_rest() -> None:
    node = MailboxNode()
    node.broker.mailboxes.cleaning.entries_spare = 0
    peer = node.producer()
    for number in range(40):
        node.send_write(peer, "car", f"k{number}", "v1")
    node.work()
    for number in range(36):
        node.write("car", f"k{number}", "v2")
    for number in range(20):
        node.write("car", f"k{number}", "v3")
    before = read(node, "car")
    assert [one[0] for one in before[:4]] == [37, 38, 39, 40]
    node.pass_time(2_000)
    assert logged(node) <= 2 * 40
    assert read(node, "car") == before
    assert read(node, "car", after=38)[:2] == before[2:4]


def test_cleaning_which_fails_is_done_again() -> None:
    node = MailboxNode()
    for number in range(100):
        node.write("car", "a", str(number))
    node.broker.mailboxes.cleaning.entries_spare = 10
    node.store.fail_commits = 1
    while not node.broker.runner.failure:
        node.pass_time(500)
    assert read(node, "car") == [(100, "a", "99")]
    for _ in range(5):
        node.pass_time(1_000)
    assert logged(node) <= 12
    assert read(node, "car") == [(100, "a", "99")]


@pytest.mark.parametrize("count", [1, 700, 1500])
def test_a_large_commit_is_split_into_rows_of_limited_size(count: int) -> None:
    node = MailboxNode()
    peer = node.producer()
    for number in range(count):
        node.send_write(peer, "car", f"k{number}", "v")
    node.work()
    sizes = [len(value) for value in node.store.tables[api.ECQ_LOG].values()]
    assert max(sizes) <= t.ROW_BYTES_MAX
    assert [one[0] for one in read(node, "car")] == list(range(1, count + 1))
