"""Mailboxes of a node whose time and commits are in our hand."""

from __future__ import annotations

import msgspec
import pytest

from queuelake.broker.ecq.letters import letters_name
from queuelake.broker.ecq.owners import OWNERS_MAX, Owners
from queuelake.broker.ecq.topics import WriteTopic, rewound_owner, subscription_problem
from queuelake.ecq_settings import BadEcqSettingsError, EcqConfig, RejectPolicy, read_config
from queuelake.settings import Settings
from queuelake.storage import api
from queuelake.storage.check import problems
from queuelake.storage.memory import MemoryStore
from tests.harness import packets as p
from tests.harness.packets import Packet
from tests.simulation.node import RETRY_MS, Node, Peer

DAY_MS = 86_400_000


def node_with(**keys: object) -> Node:
    return Node(Settings(ecq=msgspec.convert(keys, EcqConfig)))


def write(node: Node, writer: Peer, key: str, payload: bytes = b"x", owner: str = "o") -> int:
    """Write and return the reason code."""
    writer.publish(f"$ECQ/w/{owner}/{key}", payload, 1, 77)
    node.work()
    return writer.take().reason_code


def reader(node: Node, name: str = "o", version: int = 5) -> Peer:
    peer = node.client(name, version, clean=True, expiry_s=0)
    peer.subscribe(f"$ECQ/{name}/#", qos=1)
    return peer


def deliveries(peer: Peer) -> list[Packet]:
    return [one for one in peer.take_all() if one.type == p.PUBLISH]


def acknowledge(node: Node, peer: Peer, packets: list[Packet], reason: int | None = None) -> None:
    for packet in packets:
        peer.transport.send(p.acknowledge(p.PUBACK, packet.packet_id, reason))
    node.work()


def rows(node: Node) -> tuple[int, ...]:
    tables = (api.ECQ_SEQNO, api.ECQ_STATE, api.ECQ_INDEX, api.ECQ_PAYLOAD)
    return tuple(len(node.store.tables[table]) for table in tables)


def problems_of(node: Node) -> list[str]:
    with node.store.view() as view:
        return problems(view, 10_000)


# The write deadline


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("success", [0, 0x10])
def test_a_write_which_waited_too_long_is_refused_and_leaves_no_gap(qos: int, success: int) -> None:
    node = node_with(write_timeout="5s", puback_no_match=success == 0x10)
    writer = node.client("writer")
    writer.publish("$ECQ/w/o/a", b"1", qos, 1)
    node.loop.run_until_idle()  # its commit has begun
    writer.publish("$ECQ/w/o/b", b"2", qos, 2)
    writer.publish("other", b"", 1, 3)
    node.loop.advance(6_000)
    writer.publish("$ECQ/w/o/c", b"3", qos, 4)
    node.work()
    answers = {one.packet_id: one.reason_code for one in writer.take_all()}
    assert answers == {1: success, 2: 0x80, 3: 0x10, 4: success}
    got = deliveries(reader(node))
    assert [one.payload for one in got] == [b"1", b"3"]
    assert node.broker.mailboxes.inspect("o").queue == "[1,2]"


def test_a_311_writer_whose_write_waited_too_long_is_closed_without_an_answer() -> None:
    node = node_with(write_timeout="5s")
    other, writer = node.client("other"), node.client("writer", 4)
    other.publish("$ECQ/w/o/a", b"1", 1, 1)
    node.loop.run_until_idle()
    writer.publish("$ECQ/w/o/b", b"2", 1, 2)
    node.loop.advance(6_000)
    node.work()
    assert writer.take_all() == []
    assert writer.transport.closed_by_broker()
    assert node.broker.mailboxes.inspect("o").queue == "[1]"


# Refusals of the owner


def refusing(policy: RejectPolicy) -> tuple[Node, Peer, Peer]:
    node = node_with(reject_policy=policy)
    return node, node.client("writer"), reader(node)


def test_a_refused_entry_comes_again_after_a_while() -> None:
    node, writer, owner = refusing("retry")
    write(node, writer, "a", b"1")
    acknowledge(node, owner, deliveries(owner), 0x80)
    write(node, writer, "b", b"2")
    assert deliveries(owner) == []
    node.pass_time(5_300)
    (again,) = deliveries(owner)
    assert again.payload == b"1"
    acknowledge(node, owner, [again])
    assert [one.payload for one in deliveries(owner)] == [b"2"]


def test_a_refused_entry_which_was_replaced_meanwhile_does_not_come_again() -> None:
    node, writer, owner = refusing("retry")
    write(node, writer, "a", b"1")
    acknowledge(node, owner, deliveries(owner), 0x80)
    write(node, writer, "a", b"2")
    node.pass_time(5_300)
    assert [one.payload for one in deliveries(owner)] == [b"2"]


def test_a_refused_entry_is_a_dead_letter_with_its_story() -> None:
    node, writer, owner = refusing("dlq")
    write(node, writer, "a/b", b"1")
    acknowledge(node, owner, deliveries(owner), 0x97)
    assert node.broker.mailboxes.inspect("o").acked == 1
    undertaker = node.client("undertaker")
    undertaker.subscribe("$queue/dlq/ecq/o", qos=1)
    (letter,) = deliveries(undertaker)
    story = dict(letter.properties["user_property"])
    assert letter.payload == b"1"
    assert story["dlq-original-queue"] == "$ECQ/o"
    assert story["dlq-original-topic"] == "$ECQ/o/a/b"
    assert story["dlq-reason-text"] == "refused with reason 0x97"


def test_a_dead_letter_whose_commit_fails_is_delivered_again() -> None:
    node, writer, owner = refusing("dlq")
    write(node, writer, "a", b"1")
    node.store.fail_commits = 1
    acknowledge(node, owner, deliveries(owner), 0x97)
    node.pass_time(RETRY_MS)
    (again,) = deliveries(owner)
    acknowledge(node, owner, [again], 0x97)
    undertaker = node.client("undertaker")
    undertaker.subscribe("$queue/dlq/ecq/o", qos=1)
    assert len(deliveries(undertaker)) == 1


def test_dead_letters_of_any_client_id_have_a_queue() -> None:
    assert letters_name(b"o") == "dlq/ecq/o"
    assert letters_name(b"$o%") == "dlq/ecq/%24o%25"
    assert len(letters_name(b"o" * 1000)) == len("dlq/ecq/%") + 32


# Time


def test_what_is_too_old_is_not_delivered_and_goes_from_the_store() -> None:
    node = node_with(data_retention="10m", gc_interval="20m")
    writer = node.client("writer")
    write(node, writer, "a")
    node.pass_time(11 * 60_000)
    assert deliveries(reader(node)) == []
    assert rows(node)[2:] == (1, 1)
    node.pass_time(10 * 60_000)
    assert rows(node)[2:] == (0, 0)
    assert node.broker.mailboxes.figures().expired == 1


def test_an_expiry_interval_which_is_shorter_wins() -> None:
    node = Node()
    writer = node.client("writer")
    properties: p.Properties = {"message_expiry_interval": 60}
    writer.transport.send(p.publish("$ECQ/w/o/a", b"1", qos=1, packet_id=1, properties=properties))
    node.work()
    node.pass_time(20_000)
    (one,) = deliveries(reader(node))
    assert one.properties["message_expiry_interval"] == 40
    node.pass_time(41_000)
    assert deliveries(reader(node)) == []


def test_garbage_of_many_owners_goes_in_slices_with_pauses() -> None:
    node = node_with(data_retention="1s")
    writer = node.client("writer")
    for number in range(250):
        writer.publish(f"$ECQ/w/o{number}/a", b"", 1, number + 1)
    node.work()
    node.pass_time(2_000)
    assert node.broker.mailboxes.collect_garbage()
    assert not node.broker.mailboxes.collect_garbage()
    node.work()
    assert rows(node)[2:] == (245, 245), "a client has just sent something"
    node.pass_time(3)
    assert rows(node)[2:] == (226, 226)
    writer.publish("plain", b"", 0, 0)
    node.work()
    node.pass_time(1)
    assert rows(node)[2:] == (221, 221)
    node.pass_time(30)
    assert rows(node) == (250, 0, 0, 0)


def test_sequences_are_claimed_ahead_and_none_is_left_out_after_a_crash() -> None:
    """E12."""
    node = node_with()
    writer = node.client("writer")
    write(node, writer, "a")
    [claimed] = node.store.tables[api.ECQ_SEQNO].values()
    for _ in range(10):
        write(node, writer, "a")
    assert list(node.store.tables[api.ECQ_SEQNO].values()) == [claimed]
    node.crash()
    write(node, node.client("writer"), "a")
    assert node.broker.mailboxes.inspect("o").queue == "[12]"


@pytest.mark.parametrize("crashes", [False, True])
def test_an_emptied_mailbox_goes_on_where_it_ended(crashes: bool) -> None:
    """E12: a claim is given back when no entry says any more how far it was used."""
    node = node_with(data_retention="1s")
    writer = node.client("writer")
    for _ in range(3):
        write(node, writer, "a")
    node.pass_time(2_000)
    assert node.broker.mailboxes.collect_garbage()
    node.pass_time(50)
    assert rows(node) == (1, 0, 0, 0)
    if crashes:
        node.crash()
        writer = node.client("writer")
    write(node, writer, "a")
    assert node.broker.mailboxes.inspect("o").queue == "[4]"
    assert problems_of(node) == []


def test_a_mailbox_which_is_forgotten_never_uses_a_sequence_again() -> None:
    node = node_with(data_retention="1d", state_retention="2d", gc_interval="1h")
    writer = node.client("writer")
    for _ in range(5):
        write(node, writer, "a")
    owner = reader(node)
    acknowledge(node, owner, deliveries(owner))
    owner.hang_up()
    node.broker.timers.turn(node.broker.clock.now_ms())
    node.loop.now_ns += 3 * DAY_MS * 1_000_000
    for _ in range(2):
        node.broker.mailboxes.collect_garbage()
        node.work()
        node.loop.advance(50)
        node.work()
    assert rows(node) == (0, 0, 0, 0)
    node.crash()
    writer = node.client("writer")
    write(node, writer, "b")
    (one,) = deliveries(reader(node))
    assert one.properties["user_property"] == [("ecq-seqno", "6")]


def test_a_hint_which_was_lost_is_made_good_by_a_look_after_half_a_minute() -> None:
    node = Node()
    writer, owner = node.client("writer"), reader(node)
    box = node.broker.mailboxes._mailboxes
    attached = box.readers.pop(b"o")  # the notification finds nobody
    write(node, writer, "a", b"1")
    box.readers[b"o"] = attached
    node.pass_time(29_000)
    assert deliveries(owner) == []
    node.pass_time(2_000)
    assert [one.payload for one in deliveries(owner)] == [b"1"]


def test_a_change_of_the_interval_collects_at_once() -> None:
    node = Node()
    config = read_config(node.broker.mailboxes.config, {"gc_interval": "2h"})
    node.broker.mailboxes.configure(config)
    assert node.broker.mailboxes.figures().gc_runs == 1
    node.work()
    node.crash()
    assert node.broker.mailboxes.config.gc_interval == "2h"


# Limits and memory


def test_keys_and_bytes_have_limits_which_a_rewrite_does_not_meet() -> None:
    node = node_with(max_keys_per_queue=2, max_bytes_per_queue=20)
    writer = node.client("writer")
    assert [write(node, writer, key) for key in "abc"] == [0, 0, 0x97]
    assert write(node, writer, "a", b"y" * 10) == 0
    assert write(node, writer, "b", b"y" * 10) == 0x97
    assert write(node, writer, "a", b"") == 0
    assert write(node, writer, "b", b"y" * 10) == 0
    node.crash()
    assert write(node, node.client("writer"), "c") == 0x97


def test_a_311_writer_over_a_limit_is_closed_without_an_answer() -> None:
    node = node_with(max_keys_per_queue=1)
    writer = node.client("writer", 4)
    for number, key in enumerate("ab"):
        writer.publish(f"$ECQ/w/o/{key}", b"", 1, number + 1)
    node.work()
    assert [one.packet_id for one in writer.take_all()] in ([1], [])
    assert writer.transport.closed_by_broker()


def test_only_so_many_owners_are_remembered() -> None:
    owners = Owners()
    with MemoryStore().view() as view:
        for number in range(2 * OWNERS_MAX):
            owners.get(view, b"%d" % number)
    assert len(owners) <= OWNERS_MAX


def test_a_batch_is_smaller_than_what_the_client_takes_at_once() -> None:
    node = Node()
    writer = node.client("writer")
    for key in "abcdef":
        write(node, writer, key)
    owner = Peer(node, "o", 5)
    properties: p.Properties = {"receive_maximum": 3}
    owner.transport.send(p.connect("o", properties=properties))
    node.work()
    owner.take()
    owner.subscribe("$ECQ/o/#", qos=1)
    assert len(deliveries(owner)) == 2


def test_what_is_changed_at_run_time_counts_for_owners_which_are_there() -> None:
    node = node_with(max_keys_per_queue=1)
    writer, owner = node.client("writer"), reader(node)
    mailboxes = node.broker.mailboxes
    changes: list[dict[str, object]] = [{"max_keys_per_queue": 0}, {"max_keys_per_queue": 3}]
    assert write(node, writer, "a") == 0
    mailboxes.configure(read_config(mailboxes.config, changes[0]))
    assert [write(node, writer, key) for key in "bc"] == [0, 0]
    mailboxes.configure(read_config(mailboxes.config, changes[1]))
    assert write(node, writer, "d") == 0x97
    mailboxes.configure(read_config(mailboxes.config, {"reader_batch_size": 1}))
    acknowledge(node, owner, deliveries(owner))
    assert len(deliveries(owner)) == 1


def test_a_rewind_of_what_was_never_written_leaves_nothing_behind() -> None:
    node = Node()
    owner = reader(node)
    owner.publish("$ECQ/o/$rewind", b'{"seqno": 1}', 1, 1)
    node.work()
    assert owner.take().reason_code == 0
    assert rows(node) == (0, 0, 0, 0)


# Words


def test_settings_which_cannot_be_are_refused_by_name() -> None:
    wrong = {"writer_pool_size": 10241, "reader_batch_size": 32, "data_retention": "soon"}
    with pytest.raises(BadEcqSettingsError) as refused:
        read_config(EcqConfig(), wrong)
    assert [one.split()[0] for one in refused.value.mistakes] == list(wrong)
    assert read_config(EcqConfig(), {"data_retention": "5000"}).data_retention_ms == 5_000
    assert read_config(EcqConfig(), {"state_retention": 0}).state_retention_ms == 0


@pytest.mark.parametrize(
    ("topic", "owner", "key"),
    [
        (b"$ECQ/w/o/k", b"o", b"k"),
        (b"$ECQ/w/o/a/b/", b"o", b"a/b/"),
        (b"$ECQ/w/o//", b"o", b"/"),
    ],
)
def test_topics_of_writes(topic: bytes, owner: bytes, key: bytes) -> None:
    found = WriteTopic(topic)
    assert (found.owner, found.key, found.problem) == (owner, key, "")


@pytest.mark.parametrize(
    "topic", [b"$ECQ/w/o", b"$ECQ/w/o/", b"$ECQ/w//k", b"$ECQ/w/", b"$ECQ/w/w/k"]
)
def test_topics_which_are_no_writes(topic: bytes) -> None:
    assert WriteTopic(topic).problem


@pytest.mark.parametrize(
    ("client", "topic_filter", "qos", "code"),
    [
        (b"o", b"$ECQ/o/#", 1, 0),
        (b"o", b"$ECQ/o/#", 0, 0x87),
        (b"o", b"$ECQ/o/#", 2, 0x87),
        (b"o", b"$ECQ/o/x", 1, 0x87),
        (b"o", b"$ECQ/p/#", 1, 0x87),
        (b"o", b"$ECQ/+/#", 1, 0x87),
        (b"o", b"$ECQ/#", 1, 0x87),
        (b"o", b"$ECQ", 1, 0x87),
        (b"o", b"$share/g/$ECQ/o/#", 1, 0x87),
        (b"w", b"$ECQ/w/#", 1, 0x8F),
        (b"a/b", b"$ECQ/a/b/#", 1, 0x8F),
    ],
)
def test_who_may_subscribe(client: bytes, topic_filter: bytes, qos: int, code: int) -> None:
    assert subscription_problem(client, topic_filter, qos)[0] == code


def test_which_topics_ask_for_a_rewind() -> None:
    assert rewound_owner(b"$ECQ/o/$rewind") == b"o"
    for topic in (b"$ECQ/w/$rewind", b"$ECQ/$rewind", b"$ECQ/a/b/$rewind", b"$ECQ/o/rewind"):
        assert rewound_owner(topic) == b""
