"""The Flight client of the pipeline, against the contract in memory."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from queuelake.errors import (
    AnswerError,
    BadCredentialsError,
    BrokerDownError,
    ConfigError,
    NotFoundError,
    RefusedError,
)
from queuelake.flight import CommitAsked, Range, Shard, Stage
from queuelake.pipeline import wire
from queuelake.pipeline.connection import Connection, endpoint_from
from queuelake.pipeline.wire import Endpoint
from tests.pipeline.flight_server import TOKEN, FakeFlight


@pytest.fixture
def server() -> Iterator[FakeFlight]:
    server = FakeFlight()
    yield server
    server.shutdown()


@pytest.fixture
def connection(server: FakeFlight) -> Iterator[Connection]:
    with Connection(Endpoint(server.uri, TOKEN, retry_s=10)) as connection:
        yield connection


def payloads(batches: Iterator[pa.RecordBatch]) -> list[bytes]:
    return [value for batch in batches for value in batch.column("payload").to_pylist()]


def some_batches(count: int) -> Iterator[pa.RecordBatch]:
    for number in range(count):
        yield pa.record_batch({"payload": [b"%d" % number] * 3})


def test_shards_come_in_several_results(server: FakeFlight, connection: Connection) -> None:
    server.shards = [Shard("$queue/a", "s-1", "durable", n, 0, 5) for n in range(3)]
    assert connection.shards("messages", "*") == server.shards


@pytest.mark.rule("P3")
def test_p3_a_range_gives_its_rows_without_columns_nobody_asked_for(
    server: FakeFlight, connection: Connection
) -> None:
    server.rows["s-1", 0] = list(range(1, 51))
    batches = list(connection.read(Range("messages", "s-1", 0, 10, 45, ["payload"])))
    assert [batch.schema.names for batch in batches] == [["payload"]] * len(batches)
    assert payloads(iter(batches)) == [b"%d" % n for n in range(11, 46)]


def test_an_interrupted_read_goes_on_where_it_was(
    server: FakeFlight, connection: Connection
) -> None:
    server.rows["s-1", 0] = list(range(1, 51))
    server.interrupts = [2, 0, 1]
    found = payloads(connection.read(Range("messages", "s-1", 0, 0, 50)))
    assert found == [b"%d" % n for n in range(1, 51)]
    assert [ticket["after"] for ticket in server.tickets] == [0, 20, 20, 30]


def test_an_action_is_made_again_until_the_broker_answers(
    server: FakeFlight, connection: Connection
) -> None:
    server.down = 2
    assert connection.shards() == []


def test_patience_ends(server: FakeFlight) -> None:
    server.down = 1000
    connection = Connection(Endpoint(server.uri, TOKEN, retry_s=0))
    with connection, pytest.raises(BrokerDownError, match="the broker does not answer"):
        connection.shards()


@pytest.mark.rule("acceptance 17")
def test_acceptance_17_a_wrong_token_is_refused_at_once(server: FakeFlight) -> None:
    connection = Connection(Endpoint(server.uri, "key:wrong", retry_s=10))
    with connection, pytest.raises(BadCredentialsError, match="the API key is wrong"):
        connection.shards()


def test_rows_are_staged_and_committed(server: FakeFlight, connection: Connection) -> None:
    staged = connection.stage(Stage("job", 3, "$queue/a", "t1"), some_batches(4))
    assert staged is not None
    assert staged.rows == 12
    committed = connection.commit(CommitAsked("job", 3, "$queue/a", [staged.file]))
    assert committed.rows == 12


def test_no_rows_are_no_file(server: FakeFlight, connection: Connection) -> None:
    assert connection.stage(Stage("job", 3, "$queue/a", "t1"), iter([])) is None
    assert not server.staged


def test_an_interrupted_stage_begins_again_under_another_name(
    server: FakeFlight, connection: Connection
) -> None:
    server.interrupts = [2, 0]
    staged = connection.stage(Stage("job", 0, "$queue/a", "t1"), some_batches(4))
    assert staged is not None
    assert list(server.staged) == ["t1-2"]
    assert server.staged["t1-2"][1].column("payload").to_pylist() == [
        b"%d" % n for n in range(4) for _ in range(3)
    ]


def test_more_than_is_kept_fails_when_interrupted(
    server: FakeFlight, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "RESEND_BYTES_MAX", 20)
    server.interrupts = [2]
    with pytest.raises(BrokerDownError):
        connection.stage(Stage("job", 0, "$queue/a", "t1"), some_batches(400))
    assert not server.staged


@pytest.mark.rule("P8")
def test_p8_a_refusal_has_the_queues_own_words(server: FakeFlight, connection: Connection) -> None:
    server.refusal = "QUOTA_EXCEEDED: queue '$queue/a' holds 9 of 10 messages"
    with pytest.raises(AnswerError, match=r"^queue '\$queue/a' holds 9 of 10 messages$"):
        connection.stage(Stage("job", 0, "$queue/a", "t1"), some_batches(2))


def test_codes_become_classes(connection: Connection) -> None:
    with pytest.raises(NotFoundError):
        connection.call("status")


def test_a_description_goes_to_tasks_and_shows_no_token() -> None:
    endpoint = Endpoint("grpc://h:1", TOKEN)
    assert pickle.loads(pickle.dumps(endpoint)) == endpoint
    assert "secret" not in repr(endpoint)


def test_defaults_come_from_the_environment_and_the_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "api-key").write_text("k:s\n")
    monkeypatch.setenv("QUEUELAKE_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("QUEUELAKE_TOKEN", raising=False)
    monkeypatch.delenv("QUEUELAKE_FLIGHT_URI", raising=False)
    assert endpoint_from({}) == Endpoint("flight://127.0.0.1:18085", "k:s")
    monkeypatch.setenv("QUEUELAKE_FLIGHT_URI", "grpc://other:7")
    monkeypatch.setenv("QUEUELAKE_TOKEN", "k:t")
    assert endpoint_from({}) == Endpoint("grpc://other:7", "k:t")
    assert endpoint_from({"uri": "grpc://h:1", "token": "x:y"}) == Endpoint("grpc://h:1", "x:y")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"uri": "http://h:1"}, "option 'uri': 'http://h:1' is not flight://HOST:PORT"),
        ({"uri": "grpc://h"}, "option 'uri': 'grpc://h' is not"),
        ({"tls_ca": "/no/such"}, "option 'tls_ca': '/no/such' cannot be read: No such file"),
        ({"retry_s": "soon"}, "option 'retry_s': 'soon' is not a number of seconds"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        endpoint_from({"uri": "grpc://h:1", "token": TOKEN} | options)


def test_a_missing_key_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUEUELAKE_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        endpoint_from({"dataDir": str(tmp_path)})
