"""What a review found in mailboxes, on a node whose time and commits are in our hand."""

from __future__ import annotations

from typing import NoReturn

import pytest

from queuelake.broker.ecq.garbage import POLL_AFTER_MS
from queuelake.ecq_settings import EcqConfig
from queuelake.errors import StorageError
from queuelake.settings import AclRule
from queuelake.storage import api
from queuelake.storage import ecq_tables as t
from queuelake.storage.check import problems
from queuelake.storage.chunk import Record
from tests.ecq.node import MailboxNode
from tests.harness import packets as p
from tests.harness.packets import Will
from tests.simulation.node import Peer

OWNERS = ("bad", "good1", "good2")
MINUTE_MS = 60_000


@pytest.mark.parametrize(("client_id", "again"), [("other", []), ("o", ["k=v"])])
def test_a_will_rewinds_the_mailbox_of_its_own_client_only(
    client_id: str, again: list[str]
) -> None:
    node = MailboxNode(acl=[AclRule("allow", ["$ECQ/#"], action="publish")])
    node.write("o", "k", "v")
    assert node.read("o") == ["k=v"]
    node.client(client_id, clean=True, will=Will("$ECQ/o/$rewind", b'{"to":"first"}', 1)).hang_up()
    node.pass_time(100)
    assert node.read("o") == again


def subscribe_together(node: MailboxNode) -> dict[str, Peer]:
    """All look into the store in one turn, the bad one first."""
    peers = {owner: node.client(owner, clean=True) for owner in OWNERS}
    for owner, peer in peers.items():
        peer.transport.send(p.subscribe(1, [(f"$ECQ/{owner}/#", 1)]))
    node.work()
    return peers


def test_a_row_which_cannot_be_read_stops_its_owner_only_and_is_tried_again() -> None:
    node = MailboxNode()
    for owner in OWNERS:
        node.write(owner, "k", "v")
    table = node.store.tables[api.ECQ_PAYLOAD]
    [key] = [one for one in table if one.startswith(t.digest(b"bad"))]
    row, table[key] = table[key], b"\0"
    peers = subscribe_together(node)
    assert [peers[owner].payloads() for owner in OWNERS] == [[], [b"v"], [b"v"]]
    table[key] = row
    for _ in range(3):
        node.pass_time(POLL_AFTER_MS // 2)
    assert peers["bad"].payloads() == [b"v"]


def test_owners_go_on_after_the_store_could_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> NoReturn:
        raise StorageError("store cannot be read: no place for readers")

    node = MailboxNode()
    peers = subscribe_together(node)
    mailboxes = node.broker.mailboxes._mailboxes
    for reader in mailboxes.readers.values():
        mailboxes.look(reader, 0)
    with monkeypatch.context() as patch:
        patch.setattr(node.store, "view", fail)
        mailboxes.act(0)
    for owner in OWNERS:
        node.write(owner, "k", "v")
    assert [peers[owner].payloads() for owner in OWNERS] == [[b"v"], [b"v"], [b"v"]]


class Broken(dict[int, Record]):
    """Entries of a batch, without room for one; works on a compiled reader too."""

    def __setitem__(self, seq: int, record: Record) -> None:
        raise MemoryError


def test_an_error_after_a_commit_stops_its_owner_only_and_is_made_good() -> None:
    node = MailboxNode()
    peers = subscribe_together(node)
    reader = node.broker.mailboxes._mailboxes.readers[b"bad"]
    reader.entries = Broken()
    writer = node.producer()
    for owner in OWNERS:
        node.send_write(writer, owner, "k", "v")
    node.work()
    assert [peers[owner].payloads() for owner in OWNERS] == [[], [b"v"], [b"v"]]
    reader.entries = {}
    for _ in range(3):
        node.pass_time(POLL_AFTER_MS // 2)
    assert peers["bad"].payloads() == [b"v"]


def test_what_was_counted_while_garbage_was_being_deleted_is_counted_again() -> None:
    limits = EcqConfig(max_keys_per_queue=2, data_retention="1h", gc_interval="30d")
    node = MailboxNode(ecq=limits)
    node.write("o", "a", "1")
    node.write("o", "b", "1")
    for _ in range(2):  # the first run finds nothing
        node.leap(40 * MINUTE_MS)
    writer = node.producer()
    node.broker.mailboxes.garbage.collect()
    node.loop.turn()  # the deletions are not committed
    node.send_write(writer, "o", "c", "1")
    node.work()
    assert writer.take().reason_code == 0x97  # they are still there
    for key in ("c", "d"):
        node.write("o", key, "1")
    assert node.read("o") == ["c=1", "d=1"]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_write_beside_the_deletion_of_the_last_entry_keeps_its_claim(is_sealed: bool) -> None:
    """E12: the entry came to lie above the number of its owner, which was asked for too early."""
    node = MailboxNode(ecq=EcqConfig(data_retention="1h", gc_interval="30d"))
    node.write("o", "a", "1")
    for _ in range(2):  # the first run finds nothing
        node.leap(40 * MINUTE_MS)
    node.crash()
    writer = node.producer()
    node.broker.mailboxes.garbage.collect()
    node.loop.turn()  # the deletion is not committed
    if is_sealed:
        node.loop.run_until_idle()
        assert node.committer.is_busy()
        assert node.broker.mailboxes.rewind("o", b'{"to":"first"}') == 0
        node.work()
    node.send_write(writer, "o", "b", "2")
    node.work()
    assert writer.take().reason_code == 0
    with node.store.view() as view:
        assert problems(view, 10_000) == []
    assert node.read("o") == ["b=2"]


def test_a_refused_entry_which_expired_meanwhile_does_not_come_again() -> None:
    """E33, E34."""
    node = MailboxNode(ecq=EcqConfig(reject_policy="retry"))
    owner = node.listener("o")
    node.write("o", "a", "1", message_expiry_interval=2)
    node.write("o", "b", "2")
    [refused] = owner.take_all()
    owner.transport.send(p.acknowledge(p.PUBACK, refused.packet_id, 0x80))
    node.pass_time(5_300)
    assert [f"{one.key}={one.payload}" for one in node.drain(owner)] == ["b=2"]


def test_an_owner_which_left_holds_no_entries_while_its_next_look_is_due() -> None:
    node = MailboxNode()
    owner = node.listener("o")
    reader = node.broker.mailboxes._mailboxes.readers[b"o"]
    for key in ("a", "b"):
        node.write("o", key, "x" * 1000)  # the first is in flight
    assert [record.key for record in reader.tail] == [b"a", b"b"]
    owner.hang_up()
    assert (reader.tail, reader.entries) == ([], {})
    assert node.read("o") == [f"{key}={'x' * 1000}" for key in ("a", "b")]
