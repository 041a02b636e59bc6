"""What clients published over MQTT, read as a table: every kind of queue, every column."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyarrow import flight as pyflight

from queuelake import flight as contract
from queuelake.tables import COLUMNS
from tests.ecq.client import Device
from tests.export.conftest import Connect
from tests.export.reading import Flight
from tests.harness.broker import BrokerProcess
from tests.mq.rest import MqRest
from tests.queues.client import SUCCESS, QueueClient
from tests.sdv.client import Platform

KEY = "message.headers.properties.User-Property.mq-key"


def near_now(ts: datetime) -> bool:
    return abs(datetime.now(UTC) - ts) < timedelta(minutes=2)


def payloads(rows: list[dict[str, Any]]) -> list[bytes]:
    return [row["payload"] for row in rows]


def one_partition(client: QueueClient, name: str, **settings: Any) -> None:
    assert client.configure(name, partitions=1, **settings) == SUCCESS


@pytest.mark.rule("P2")
def test_every_column_of_a_durable_queue_is_what_was_published(
    flight: Flight, connect: Connect, name: str
) -> None:
    client = connect("publisher-1")
    one_partition(client, name, limits={"message_ttl": "0s"})
    user = {"partition-key": "k1", "message-id": "m-1", "colour": "blue"}
    fields = {"content_type": "text/plain", "message_expiry_interval": 60}
    assert client.publish(name, b"one \xff", user=user, qos=2, **fields) == SUCCESS
    assert client.publish(name, b"") == SUCCESS
    (shard,) = flight.shards(f"$queue/{name}")
    assert (shard.kind, shard.after, shard.upto) == ("durable", 0, 2)
    first, second = flight.rows(f"$queue/{name}")
    assert list(first) == list(COLUMNS["messages"])
    ts, expires = first.pop("ts"), first.pop("expires")
    assert near_now(ts)
    assert expires - ts == timedelta(seconds=60)
    assert first == {
        "queue": f"$queue/{name}",
        "queue_id": shard.queue_id,
        "partition": 0,
        "seqno": 1,
        "message_id": "m-1",
        "key": "k1",
        "owner": None,
        "topic": f"$queue/{name}",
        "payload": b"one \xff",
        "content_type": "text/plain",
        "properties": {"partition-key": "k1", "colour": "blue"},
        "publisher": "publisher-1",
        "qos": 2,
    }
    assert near_now(second.pop("ts"))
    assert second == first | {
        "seqno": 2,
        "message_id": f"$queue/{name}:0:2",
        "key": None,
        "payload": b"",
        "content_type": None,
        "properties": {},
        "qos": 1,
        "expires": None,
    }


def test_message_ids_are_those_of_the_deliveries(
    flight: Flight, connect: Connect, name: str
) -> None:
    client = connect()
    assert client.subscribe(name) < 0x80
    for number in range(30):
        user = {"message-id": f"own-{number}"} if number % 3 == 0 else {}
        assert client.publish(name, f"{number}", user=user) == SUCCESS
    rows = {row["payload"].decode(): row for row in flight.rows(name)}
    for delivery in client.receive_and_ack(30):
        row = rows[delivery.payload]
        assert row["message_id"] == delivery.message_id
        assert (row["partition"], row["seqno"]) == (delivery.partition, delivery.offset)


def test_a_bound_topic_is_the_topic_of_the_row(flight: Flight, connect: Connect, name: str) -> None:
    client = connect(version=5)
    one_partition(client, name, topics=[f"{name}/+"])
    old = connect(version=4)
    assert old.publish_topic(f"{name}/a", "from 3.1.1") == SUCCESS
    assert client.publish_topic(f"{name}/b", "from 5") == SUCCESS
    rows = flight.rows(name)
    assert [row["topic"] for row in rows] == [f"{name}/a", f"{name}/b"]
    assert rows[0]["properties"] == {}


def test_parts_of_a_range_and_single_columns(flight: Flight, connect: Connect, name: str) -> None:
    client = connect()
    one_partition(client, name)
    client.publish_each(name, *[f"m{number}" for number in range(1, 21)])
    (shard,) = flight.shards(name)
    for after, upto in ((0, 20), (0, 1), (19, 20), (3, 17), (5, 5), (15, 99), (20, 30)):
        table = flight.read(shard, after=after, upto=upto, columns=["payload", "seqno"])
        expected = [(f"m{n}".encode(), n) for n in range(after + 1, min(upto, 20) + 1)]
        assert table.column_names == ["payload", "seqno"]
        found = zip(*[table[one].to_pylist() for one in ("payload", "seqno")], strict=True)
        assert list(found) == expected, (after, upto)


def test_a_queue_which_is_read_while_it_is_filled(
    exporting: BrokerProcess, flight: Flight, connect: Connect, name: str
) -> None:
    """Range after range, every message is there once, whatever the broker does with its chunks."""
    count = 3000
    client = connect()
    assert client.configure(name, partitions=3) == SUCCESS

    def publish() -> None:
        with exporting.client() as wire:
            wire.connect(f"{name}-writer")
            writer = QueueClient(wire, f"{name}-writer")
            for number in range(count):
                writer.publish(name, f"{number}", qos=0, user={"partition-key": f"{number % 7}"})
            assert writer.publish(name, "last") == SUCCESS

    publishing = threading.Thread(target=publish)
    publishing.start()
    seen: list[bytes] = []
    reached = [0, 0, 0]
    while len(seen) <= count:
        is_over = not publishing.is_alive()
        for shard in flight.shards(name):
            assert shard.upto >= reached[shard.shard], "positions never fall"
            table = flight.read(shard, after=reached[shard.shard], columns=["seqno", "payload"])
            places = range(reached[shard.shard] + 1, shard.upto + 1)
            assert table["seqno"].to_pylist() == list(places)
            seen += table["payload"].to_pylist()
            reached[shard.shard] = shard.upto
        assert not is_over or len(seen) > count, "everything was published and not all of it read"
    publishing.join()
    assert sorted(seen) == sorted([*[b"%d" % number for number in range(count)], b"last"])


@pytest.mark.rule("P1")
def test_rows_which_were_settled_are_absent_and_positions_stay(
    flight: Flight, connect: Connect, name: str
) -> None:
    """The same range may be read again and again; reading changes nothing."""
    client = connect()
    one_partition(client, name)
    assert client.subscribe(name, group="g") < 0x80
    client.publish_each(name, "a", "b", "c")
    before = flight.rows(name)
    assert before == flight.rows(name)
    assert payloads(before) == [b"a", b"b", b"c"]
    client.receive_and_ack(3)
    (shard,) = flight.shards(name)
    assert shard.upto == 3
    assert flight.read(shard, after=0).num_rows in (0, 3)  # until the space is freed


def test_long_messages_are_whole(flight: Flight, connect: Connect, name: str) -> None:
    client = connect()
    one_partition(client, name)
    sizes = [10, 100_000, 20, 1_000_000, 32_767, 40_000]
    for number, size in enumerate(sizes):
        assert client.publish(name, bytes([number]) * size) == SUCCESS
    expected = [bytes([number]) * size for number, size in enumerate(sizes)]
    assert payloads(flight.rows(name)) == expected
    (shard,) = flight.shards(name)
    assert flight.read(shard, after=3, upto=4)["payload"].to_pylist() == [expected[3]]


@pytest.mark.rule("P2")
def test_dead_letters_are_a_queue_like_others(flight: Flight, connect: Connect, name: str) -> None:
    client = connect()
    assert client.subscribe(name, group="g") < 0x80
    assert client.publish(name, "bad", user={"colour": "red"}) == SUCCESS
    delivery = client.receive()
    assert client.reject(delivery, reason="no good") == SUCCESS
    (row,) = flight.rows(f"$queue/dlq/{name}")
    assert row["payload"] == b"bad"
    assert row["properties"]["colour"] == "red"
    assert "no good" in row["properties"].values()


@pytest.mark.rule("P2")
def test_a_message_queue(exporting: BrokerProcess, flight: Flight, connect: Connect) -> None:
    queue = MqRest(exporting).create("export-a/#", name="export-a", is_lastvalue=False)
    client = connect("mq-publisher")
    user = {"colour": "green"}
    assert client.publish_topic("export-a/x", "one", user=user, content_type="a/b") == SUCCESS
    assert client.publish_topic("export-a/y", "two", qos=2) == SUCCESS
    (shard,) = flight.shards(queue.address)
    assert (shard.kind, shard.queue) == ("message", "$queue/export-a")
    one, two = flight.rows(queue.address)
    assert (one["topic"], one["payload"], one["content_type"]) == ("export-a/x", b"one", "a/b")
    assert (one["properties"], one["publisher"]) == (user, "mq-publisher")
    assert one["message_id"] == "$queue/export-a:0:1"
    assert (two["topic"], two["qos"], two["seqno"]) == ("export-a/y", 2, 2)


@pytest.mark.rule("P2")
def test_a_last_value_queue_has_the_last_value_of_each_key(
    exporting: BrokerProcess, flight: Flight, connect: Connect, name: str
) -> None:
    MqRest(exporting).create(f"{name}/#", is_lastvalue=True, key_expression=KEY)
    client = connect()
    for key, payload in (("a", "1"), ("b", "2"), ("a", "3")):
        assert client.publish_topic(f"{name}/x", payload, user={"mq-key": key}) == SUCCESS
    (shard,) = flight.shards(f"$q/{name}/#")
    assert (shard.kind, shard.upto) == ("last_value", 3)
    rows = flight.rows(f"$q/{name}/#")
    assert [(row["key"], row["payload"], row["seqno"]) for row in rows] == [
        ("b", b"2", 2),
        ("a", b"3", 3),
    ]


@pytest.mark.rule("P1", "P2")
def test_mailboxes_are_one_queue_with_owners(
    exporting: BrokerProcess, flight: Flight, name: str
) -> None:
    with exporting.client() as wire:
        wire.connect("platform-ecq")
        platform = Device(wire, "platform-ecq")
        for key, payload in (("a", "1"), ("b/c", "2"), ("a", "3")):
            user = {"colour": "red"}
            topic = f"$ECQ/w/{name}/{key}"
            assert platform.publish(topic, payload, user=user, content_type="x") == SUCCESS
    assert {shard.kind for shard in flight.shards("$ECQ")} == {"ecq"}
    assert len(flight.shards("$ECQ")) == 16
    rows = [row for row in flight.rows("$ECQ") if row["owner"] == name]
    assert [(row["key"], row["payload"]) for row in rows] == [("b/c", b"2"), ("a", b"3")]
    row = rows[0]
    assert row["queue"] == "$ECQ"
    assert row["topic"] == f"$ECQ/{name}/b/c"
    assert row["message_id"] == f"$ECQ:{row['partition']}:{row['seqno']}"
    assert (row["properties"], row["content_type"]) == ({"colour": "red"}, "x")
    assert near_now(row["ts"])


@pytest.mark.rule("P1", "P2")
def test_fan_out_rows_have_the_vehicle_the_request_and_the_data(
    exporting: BrokerProcess, flight: Flight, name: str
) -> None:
    with exporting.client() as wire:
        wire.connect("platform-sdv")
        platform = Platform(wire, "platform-sdv")
        vins = [f"{name}-{number}" for number in range(40)]
        assert platform.data(f"d-{name}", "the data") == SUCCESS
        assert platform.trigger(vins, f"r-{name}", f"d-{name}") == SUCCESS
        assert platform.trigger(vins[:1], f"late-{name}", f"none-{name}") == SUCCESS
    rows = [row for row in flight.rows("$SDV-FANOUT") if row["owner"].startswith(name)]
    assert {row["partition"] for row in rows} <= set(range(16))
    with_data = [row for row in rows if row["key"] == f"r-{name}"]
    assert sorted(row["owner"] for row in with_data) == sorted(vins)
    assert {row["payload"] for row in with_data} == {b"the data"}
    assert with_data[0]["properties"] == {"data_id": f"d-{name}", "request_id": f"r-{name}"}
    (late,) = [row for row in rows if row["key"] == f"late-{name}"]
    assert late["payload"] is None
    lean = flight.rows("$SDV-FANOUT", columns=["owner", "seqno"])
    assert {row["owner"] for row in rows} <= {row["owner"] for row in lean}


def test_places_by_time(flight: Flight, connect: Connect, name: str) -> None:
    client = connect()
    one_partition(client, name)
    client.publish_each(name, "a", "b")
    (row,) = flight.rows(name)[-1:]
    last_ms = int(row["ts"].timestamp() * 1000)
    time.sleep(0.005)  # the next message is of a later millisecond
    client.publish_each(name, "c")
    (now,) = flight.shards(name, ts_ms=last_ms + 1)
    assert (now.after, now.upto) == (2, 3)
    (then,) = flight.shards(name, ts_ms=1)
    assert then.after == 0
    (later,) = flight.shards(name, ts_ms=last_ms + 3_600_000)
    assert (later.after, later.upto) == (3, 3)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("{n}/a", ["$queue/{n}/a"]),
        ("$queue/{n}/a", ["$queue/{n}/a"]),
        ("{n}/*", ["$queue/{n}/a", "$queue/{n}/ab"]),
        ("$queue/{n}/?", ["$queue/{n}/a"]),
        ("{n}/[a]", []),
    ],
)
def test_queues_are_found_by_name_and_by_pattern(
    flight: Flight, connect: Connect, name: str, pattern: str, found: list[str]
) -> None:
    client = connect()
    for suffix in ("a", "ab"):
        one_partition(client, f"{name}/{suffix}")
    expected = [one.replace("{n}", name) for one in found]
    assert [shard.queue for shard in flight.shards(pattern.replace("{n}", name))] == expected


@pytest.mark.rule("P1")
def test_a_queue_which_is_made_again_is_another_one(
    exporting: BrokerProcess, flight: Flight, connect: Connect, name: str
) -> None:
    client = connect()
    one_partition(client, name)
    client.publish_each(name, "old")
    (old,) = flight.shards(name)
    assert MqRest(exporting).queue(name, method="DELETE").status < 300
    one_partition(client, name)
    client.publish_each(name, "new")
    (new,) = flight.shards(name)
    assert new.queue_id != old.queue_id
    assert flight.read(old).num_rows == 0  # absent, not an error: a stream goes on
    assert flight.read(new)["payload"].to_pylist() == [b"new"]


def test_a_queue_which_is_deleted_while_it_is_read_ends(
    exporting: BrokerProcess, flight: Flight, connect: Connect, name: str
) -> None:
    client = connect()
    one_partition(client, name)
    for _ in range(40):  # more than two batches
        assert client.publish(name, bytes(500_000)) == SUCCESS
    (shard,) = flight.shards(name)
    wanted = contract.Range("messages", shard.queue_id, 0, 0, shard.upto)
    stream = flight.stream(wanted)
    first = stream.read_chunk().data.num_rows
    assert MqRest(exporting).queue(name, method="DELETE").status < 300
    rest = stream.read_all().num_rows
    assert first + rest <= 40


def test_what_is_wrong_with_a_range_is_said_in_one_line(flight: Flight) -> None:
    ecq = flight.shards("$ECQ")[0].queue_id
    for wanted, words in (
        (contract.Range("messages", "nosuch-7", 0, 0, 1), "NOT_FOUND: queue id 'nosuch-7'"),
        (contract.Range("messages", "x", 0, 0, 1, ["y"]), "BAD_REQUEST: table 'messages' has no"),
        (contract.Range("messages", ecq, 16, 0, 1), "BAD_REQUEST: shard 16: allowed: 0 to 15"),
        (contract.Range("messages", ecq, -1, 0, 1), "BAD_REQUEST: shard -1: allowed: 0 to 15"),
        (contract.Range("messages", ecq, 0, 2, 1), "BAD_REQUEST: range (2, 1]: allowed: "),
        (contract.Range("messages", ecq, 0, 0, 1 << 63), "BAD_REQUEST: range (0, 922"),
    ):
        with pytest.raises(pyflight.FlightServerError) as caught:
            flight.stream(wanted)
        assert str(caught.value).startswith(words)
    with pytest.raises(pyflight.FlightServerError, match="BAD_REQUEST: this is no Range"):
        flight.client.do_get(pyflight.Ticket(b"{}"), flight.options)
    with pytest.raises(pyflight.FlightServerError, match="BAD_REQUEST: there is no action 'x'"):
        flight.act("x", contract.ShardsAsked())
    with pytest.raises(pyflight.FlightServerError, match="BAD_REQUEST: operation 'metrics'"):
        flight.act(contract.CALL, contract.Call("metrics"))


def test_shards_say_what_the_queue_is_set_to(flight: Flight, connect: Connect, name: str) -> None:
    client = connect()
    schema = {"format": "json", "ddl": "a int"}
    one_partition(client, name, archive=True, schema=schema)
    (shard,) = flight.shards(name)
    assert (shard.archive, shard.archived, shard.lost) == (True, 0, [])
    assert shard.schema == contract.PayloadSchema("json", "a int")
    one_partition(client, f"{name}/plain")
    (plain,) = flight.shards(f"{name}/plain")
    assert (plain.archive, plain.schema) == (False, None)


def test_marks_of_the_archive_come_back_with_the_shards(
    flight: Flight, connect: Connect, name: str
) -> None:
    client = connect()
    one_partition(client, name, archive=True)
    client.publish_each(name, "a", "b")
    (shard,) = flight.shards(name)
    told = contract.ArchivedTold("messages", "lake-1", [contract.Mark(shard.queue_id, 0, 1)], True)
    assert flight.act(contract.ARCHIVED, told) == [None]
    (shard,) = flight.shards(name)
    assert (shard.archived, shard.upto) == (1, 2)


def test_a_lease_is_asked_of_the_broker(flight: Flight, name: str) -> None:
    asked = contract.LeaseAsked(name, "me", 5.0)
    (lease,) = flight.act(contract.LEASE, asked)
    assert lease["lake"] == name
    with pytest.raises(pyflight.FlightServerError) as caught:
        flight.act(contract.LEASE, contract.LeaseAsked(name, "another", 5.0))
    assert contract.parse_error(str(caught.value))[0] == "LEASE_TAKEN"
    held = contract.Lease(lease["lake"], lease["epoch"], lease["until_ms"])
    assert flight.act(contract.RELEASE, held) == [None]


def test_operations_of_the_broker_can_be_called(exporting: BrokerProcess, flight: Flight) -> None:
    (status,) = flight.act(contract.CALL, contract.Call("status"))
    assert status["addresses"]["flight"] == f"flight://127.0.0.1:{exporting.flight_port}"
