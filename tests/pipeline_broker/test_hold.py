"""Acceptance 8: a queue with `archive = true` deletes nothing the lake does not have."""

from __future__ import annotations

import pytest

from queuelake.errors import RefusedError
from queuelake.flight import ArchivedTold, Mark
from queuelake.storage import api, queue_space
from queuelake.storage.archive_tables import read_archived
from tests.pipeline_broker.node import PAYLOAD, ArchiveNode

ALL = list(range(1, 41))


def settled(node: ArchiveNode) -> None:
    node.archived()
    peer = node.consumer("q", "g")
    node.fill(40)
    assert len(node.settle_all(peer)) == 40
    peer.leave()


def expired(node: ArchiveNode) -> None:
    node.archived(limits={"message_ttl": "5s"})
    node.fill(40)
    node.after(10)


def expired_out_of_order(node: ArchiveNode) -> None:
    node.archived()
    node.fill(20)
    node.fill(20, expiry_s=3)
    node.after(20)
    node.drain("q")


def purged(node: ArchiveNode) -> None:
    node.archived()
    node.fill(40)
    assert node.host("q").purge(node.broker.clock.now_ms()) == 40
    node.work()


def group_forgotten(node: ArchiveNode) -> None:
    node.archived(group_expiry="5s")
    node.consumer("q", "g").leave()
    node.fill(40)
    node.drain("q", "h")
    node.after(10)


def retained(node: ArchiveNode) -> None:
    node.archived(type="stream", retention={"max_messages": 1})
    node.fill(41)
    node.after(5)
    assert len(node.replay("q")) == 1


def too_old(node: ArchiveNode) -> None:
    node.archived(type="stream", retention={"max_age": "5s"})
    node.fill(40)
    node.after(10)
    assert node.replay("q") == []


def head_dropped(node: ArchiveNode) -> None:
    node.archived(overflow="drop_head", limits={"max_queue_depth": 1})
    node.fill(41)
    node.after(3)
    assert len(node.drain("q")) == 1


DELETIONS = (
    settled,
    expired,
    expired_out_of_order,
    purged,
    group_forgotten,
    retained,
    too_old,
    head_dropped,
)


@pytest.mark.rule("acceptance 8")
@pytest.mark.parametrize("delete", DELETIONS)
def test_whatever_deletes_messages_the_archive_still_finds_them(delete) -> None:
    node = ArchiveNode()
    delete(node)
    node.after(3)
    assert node.stored()[:40] == ALL
    assert 40 * 30_000 < node.archive.held_bytes == node.held_in_store()
    node.crash()
    node.after(3)
    node.host("q")
    node.after(3)
    assert node.stored()[:40] == ALL
    assert 40 * 30_000 < node.archive.held_bytes == node.held_in_store()
    node.tell(25)
    node.after(2)
    assert node.stored()[0] == 26
    node.tell(40)
    node.after(2)
    assert [seq for seq in node.stored() if seq <= 40] == []
    assert node.archive.held_bytes == node.held_in_store()


@pytest.mark.parametrize("delete", DELETIONS)
def test_without_archive_the_same_messages_are_deleted(delete) -> None:
    """The test above could not fail otherwise."""
    node = ArchiveNode()
    node.archived = lambda **settings: node.make("q", partitions=1, **settings)  # type: ignore
    delete(node)
    node.after(3)
    assert [seq for seq in node.stored() if seq <= 40] == []


def test_compaction_waits_for_the_archive() -> None:
    node = ArchiveNode()
    compaction = {"enabled": True, "lag": "0s", "interval": "2s"}
    node.archived(type="stream", compaction=compaction)
    for _ in range(3):
        peer = [f"k{number}" for number in range(20)]
        for key in peer:
            node.publish("q", "x" * 500, key=key)
    node.after(6)
    assert len(node.replay("q")) == 20
    before = node.stored_bytes("q")
    assert before > 60 * 500
    node.tell(60)
    for _ in range(3):
        node.publish("q", "x" * 500, key="k0")
        node.after(3)
    assert node.stored_bytes("q") < before / 2


def test_held_messages_are_gone_for_consumers_also_after_a_restart() -> None:
    node = ArchiveNode()
    settled(node)
    node.crash()
    assert node.drain("q", "g") == []
    assert node.drain("q", "new") == []
    node.publish("q", "later")
    assert node.drain("q", "g") == ["later"]
    assert node.stored() == [*ALL, 41]


def test_a_mark_frees_the_space_of_a_queue_which_sleeps() -> None:
    node = ArchiveNode(idle_unload_s=2.0)
    settled(node)
    node.leap(30)
    node.after(10)
    assert node.awake("q") is None
    assert node.stored() == ALL
    assert node.archive.held_bytes > 40 * 30_000
    node.tell(40)
    node.after(3)
    assert node.stored() == []
    assert node.archive.held_bytes == 0


def test_much_space_is_freed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    if not queue_space.__file__.endswith(".py"):
        pytest.skip("a compiled constant cannot be replaced")
    for module in ("queue_tables", "queue_space"):
        monkeypatch.setattr(f"queuelake.storage.{module}.TRIM_CHUNKS_MAX", 10)
    node = ArchiveNode()
    settled(node)
    node.after(2)
    node.tell(40)
    assert node.stored() == ALL[10:]
    node.after(1)
    assert node.stored() == ALL[20:]
    node.after(3)
    assert node.stored() == []


def test_a_queue_archived_later_promises_from_then_on() -> None:
    node = ArchiveNode()
    node.make("q", partitions=1)
    peer = node.consumer("q", "g")
    node.fill(20)
    node.settle_all(peer)
    node.after(2)
    assert node.stored() == []
    node.archived()
    node.fill(20)
    node.settle_all(peer)
    node.after(2)
    assert node.stored() == ALL[20:]


def test_without_the_promise_everything_goes_even_after_a_restart() -> None:
    node = ArchiveNode()
    settled(node)
    node.tell(10)
    node.broker.queues.configure("q", {"archive": False})
    node.work()
    assert node.stored() == ALL[10:]
    node.crash()
    node.after(10)
    assert node.stored() == []
    assert node.archive.held_bytes == 0


def test_deleting_a_queue_ends_the_promise_and_says_what_is_lost() -> None:
    node = ArchiveNode()
    settled(node)
    node.tell(30)
    assert node.archive.unarchived(node.broker.queues.get("q")) == 10
    node.broker.queues.delete("q")
    node.work()
    node.after(3)
    assert node.archive.lost == 10
    assert node.archive.held_bytes == 0
    assert node.store.tables[api.CHUNKS] == {}
    assert node.store.tables[api.ARCHIVED] == {}


# Bounded


@pytest.mark.rule("acceptance 8")
def test_over_the_limit_publishes_are_refused_until_the_lake_has_more() -> None:
    node = ArchiveNode(hold_bytes_max=600_000)
    node.archived()
    node.make("other", partitions=1)
    peer = node.consumer("q", "g")
    for number in range(40):
        if node.broker.queues.hold_full:
            break
        node.publish("q", f"{number}:{PAYLOAD}")
        node.settle_all(peer)
        node.after(1)
    assert 600_000 < node.archive.held_bytes < 640_000
    node.publish("q", "no", expected=0x97)
    problem = node.broker.queues.problem
    assert "lake.archive_hold_bytes_max = 600000" in problem
    assert "queuelake pipeline archive" in problem
    node.publish("other", "yes")
    assert node.archive.alarm()
    assert node.archive.lost == 0
    node.tell(10)
    assert not node.archive.alarm()
    node.publish("q", "yes")
    node.crash()
    node.after(3)
    node.host("q")
    node.after(3)
    assert 240_000 < node.archive.held_bytes < 360_000


def test_what_was_accepted_before_is_not_refused() -> None:
    node = ArchiveNode(hold_bytes_max=0)
    node.archived()
    node.publish("q", "later", user={"delay-ms": "3000"})
    peer = node.consumer("q", "g")
    node.publish("q", "now")
    node.settle_all(peer)
    node.after(1)
    assert node.broker.queues.hold_full
    node.after(4)
    assert node.settle_all(peer) == ["later"]


@pytest.mark.rule("P3", "acceptance 8")
def test_with_drop_the_oldest_go_and_the_store_says_what_was_lost() -> None:
    node = ArchiveNode(hold_bytes_max=610_000, hold="drop")
    settled(node)
    node.after(3)
    kept = node.stored()
    assert 18 <= len(kept) <= 20
    lost = kept[0] - 1
    assert node.row().lost == [(0, lost)]
    assert node.archive.lost == lost
    node.crash()
    node.after(3)
    assert node.row().lost == [(0, lost)]
    assert node.stored() == kept
    node.tell(40)
    node.fill(40)
    node.drain("q")
    node.after(3)
    assert node.row().lost == [(0, lost), (40, node.stored()[0] - 1)]
    assert node.row().upto == 40
    node.publish("q", "taken all the same")


def test_the_oldest_of_all_queues_go_first() -> None:
    node = ArchiveNode(hold_bytes_max=900_000, hold="drop")
    node.archived("old")
    node.archived("new")
    for queue in ("old", "new"):
        peer = node.consumer(queue, "g")
        node.fill(20, queue)
        node.settle_all(peer)
        node.after(2)
    assert node.stored("new") == list(range(1, 21))
    assert node.stored("old") == list(range(1, 21))[-len(node.stored("old")) :]
    assert 0 < len(node.stored("old")) < 12


def test_a_failed_commit_loses_neither_marks_nor_messages() -> None:
    node = ArchiveNode()
    settled(node)
    node.store.fail_commits = 1
    node.tell(20)
    assert node.stored() == ALL
    assert node.row().upto == 0
    node.after(5)
    assert node.row().upto == 20
    assert node.stored() == ALL[20:]
    assert 600_000 < node.archive.held_bytes < 610_000


# Marks


def test_a_mark_never_goes_down() -> None:
    node = ArchiveNode()
    settled(node)
    node.tell(20)
    node.tell(10)
    assert node.row().upto == 20


def test_a_mark_beyond_the_end_is_refused() -> None:
    node = ArchiveNode()
    settled(node)
    with pytest.raises(RefusedError, match="its last sequence is 40"):
        node.tell(41)
    with pytest.raises(RefusedError, match="may be 0 to 0"):
        node.tell(1, shard=1)


@pytest.mark.rule("P9")
def test_marks_of_another_lake_are_refused_unless_it_is_adopted() -> None:
    node = ArchiveNode()
    settled(node)
    node.tell(20)
    with pytest.raises(RefusedError, match="delta-1, not delta-2; adopt"):
        node.tell(30, lake="delta-2")
    assert node.row().upto == 20
    node.tell(25, lake="delta-2", adopt=True)
    assert node.row().upto == 25
    node.crash()
    node.after(2)
    with pytest.raises(RefusedError, match="delta-2, not delta-1"):
        node.tell(30)


def test_a_new_lake_which_is_behind_holds_from_its_own_mark() -> None:
    node = ArchiveNode()
    settled(node)
    node.tell(10)
    node.tell(5, lake="delta-2", adopt=True)
    node.after(2)
    assert node.row().upto == 5
    assert node.stored() == ALL[10:]
    assert node.archive.held_bytes > 30 * 30_000


def test_marks_of_queues_which_are_not_there_say_nothing() -> None:
    node = ArchiveNode()
    settled(node)
    node.broker.queues._ids["ghost"] = 999
    node.tell(5, "ghost")
    assert list(node.store.tables[api.ARCHIVED]) == []


def test_marks_of_events_are_stored_and_told_also_of_deleted_queues() -> None:
    node = ArchiveNode()
    node.archived()
    heard: list[tuple[str, int, int]] = []
    node.archive.on_archived = lambda *told: heard.append(told)
    number = node.broker.queues._ids["q"]
    marks = [Mark(node.archive.queue_id(one), 0, 7) for one in (number, 999)]
    node.archive.told(ArchivedTold("events", "delta-e", marks))
    node.work()
    assert sorted(heard) == [("events", 999, 7), ("events", number, 7)]
    with node.store.view() as view:
        assert read_archived(view, "events", number, 0).upto == 7
    assert len(node.store.tables[api.ARCHIVED]) == 1
    node.broker.queues.delete("q")
    node.work()
    assert node.store.tables[api.ARCHIVED] == {}


def test_ids_of_another_store_are_refused() -> None:
    node = ArchiveNode()
    settled(node)
    for queue_id in ("other-1", "-x", "", "-1x"):
        with pytest.raises(RefusedError, match="is none of store"):
            node.archive.told(ArchivedTold("messages", "delta-1", [Mark(queue_id, 0, 1)]))
