"""The operators' commands against a real broker, as people and programs use them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from queuelake.apikey import add_key, read_api_key
from queuelake.cli import main as cli
from queuelake.cli import top
from queuelake.cli.queue import parse_settings
from queuelake.errors import RefusedError
from tests.api.queue_rest import Connect, Rest, consume, reject_one
from tests.conftest import BrokerFactory
from tests.queues.client import SUCCESS

Run = Callable[..., str]


@pytest.fixture
def run(rest: Rest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """What a command prints; it ends with `code`."""
    monkeypatch.setenv("QUEUELAKE__DATA_DIR", str(rest.broker.data_dir))

    def run_command(*arguments: str, code: int = 0) -> str:
        done = cli.run(list(arguments))
        captured = capsys.readouterr()
        assert done == code, captured
        return captured.out if code == 0 else captured.err + captured.out

    return run_command


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip()]


# queue


def test_a_queue_is_created_changed_shown_and_deleted(run: Run, name: str) -> None:
    made = run("queue", "create", name, "partitions=2", "retry_policy.max_retries=1")
    assert made == f"created $queue/{name}\n"
    assert "exists already" in run("queue", "create", name, code=1)
    assert '"partitions": 3' in run("queue", "set", name, "partitions=3")
    assert "partitions = 1" in run("queue", "set", name, "partitions=1", code=1)
    shown = run("queue", "show", name)
    assert shown.startswith(f"$queue/{name}: 0 messages")
    assert ["2", "0", "1", "1"] in rows(shown)
    read = json.loads(run("queue", "show", name, "--json"))
    assert read["settings"]["retry_policy"]["max_retries"] == 1
    assert read["stats"]["depth"] == 0
    assert run("queue", "delete", name, "--yes") == f"deleted {name}\n"
    assert "404" not in run("queue", "show", name, code=1)


def test_queues_are_listed_and_looked_into(run: Run, connect: Connect, name: str) -> None:
    run("queue", "create", name, "partitions=1")
    client = connect()
    for payload in (b"[bold]text[/bold]", b"\x00\xff", b"x" * 100):
        assert client.publish(name, payload) == SUCCESS
    listed = json.loads(run("queue", "list", "--json"))
    assert next(q for q in listed if q["name"] == f"$queue/{name}")["depth"] == 3
    line = next(row for row in rows(run("queue", "list")) if row[0] == f"$queue/{name}")
    assert line[1:] == ["classic", "1", "3", "0", "0", "0"]
    peeked = run("queue", "peek", name)
    assert "[bold]text[/bold]" in peeked
    assert "00 ff" in peeked
    assert "x" * 59 + "…" in peeked
    assert len(json.loads(run("queue", "peek", name, "--limit", "2", "--json"))) == 2
    there = run("queue", "peek", name, "--from", "3", "--partition", "0", "--json")
    assert [message["offset"] for message in json.loads(there)] == [3]
    assert "partition is 1" in run("queue", "peek", name, "--partition", "1", code=1)
    assert "--from and" in run("queue", "peek", "$q/x", "--from", "3", code=1)
    assert run("queue", "purge", name, "--yes") == "purged 3\n"
    assert json.loads(run("queue", "purge", name, "--yes", "--json")) == {"purged": 0}
    watched = rows(run("queue", "watch", name, "--count", "2", "--interval", "0.1"))
    assert [len(row) for row in watched] == [7, 6, 6]


def test_a_message_queue_is_looked_into(run: Run, rest: Rest, connect: Connect, name: str) -> None:
    body = json.dumps({"topic_filter": f"{name}/#", "is_lastvalue": False}).encode()
    assert rest.fetch("/api/v5/message_queues/queues", method="POST", body=body).status == 200
    assert connect().publish_topic(f"{name}/door", "open") == SUCCESS
    [row] = rows(run("queue", "peek", f"$q/{name}/#"))[-1:]
    assert (row[0], row[-1]) == ("0:1", "open")
    assert "Message queue not found" in run("queue", "peek", f"$q/{name}", code=1)


def test_what_cannot_be_undone_is_asked_for(
    run: Run, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("queue", "create", name)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    run("queue", "delete", name, code=1)
    run("queue", "purge", name, code=1)
    run("queue", "show", name)


def test_a_list_goes_on_after_its_first_page(
    run: Run, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [f"{name}/{number}" for number in range(5)]
    for one in made:
        run("queue", "create", one, "partitions=1")
    monkeypatch.setattr("queuelake.cli.rest.PAGE", 2)
    listed = [one["name"] for one in json.loads(run("queue", "list", "--json"))]
    assert [one for one in listed if name in one] == [f"$queue/{one}" for one in made]


@pytest.mark.parametrize("bad", ["partitions", "=1", "a=1 a.b=2", "a.b=2 a=1"])
def test_settings_which_are_none_are_refused(bad: str) -> None:
    with pytest.raises(RefusedError, match="setting"):
        parse_settings(bad.split())


def test_settings_are_a_tree() -> None:
    tree = parse_settings(["a=1", "b.c=5s", 'topics=["x/#"]', "archive=true"])
    assert tree == {"a": 1, "b": {"c": "5s"}, "topics": ["x/#"], "archive": True}


def test_names_of_queues_are_completed(
    run: Run, name: str, monkeypatch: pytest.MonkeyPatch, rest: Rest
) -> None:
    run("queue", "create", name)
    monkeypatch.setenv("_QUEUELAKE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"queuelake queue show {name[:-2]}")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert run() == f"{name}\n"
    monkeypatch.setenv("COMP_WORDS", f"queuelake queue show '$queue/{name[:-2]}'")
    assert run() == f"$queue/{name}\n"
    monkeypatch.setenv("QUEUELAKE_URL", "http://127.0.0.1:1")
    assert run().strip() == ""


# dlq


def test_dead_letters_are_listed_retried_and_discarded(
    run: Run, connect: Connect, name: str
) -> None:
    run("queue", "create", name, "partitions=1")
    for payload in ("one", "two", "three"):
        reject_one(connect, name, payload)
    listed = json.loads(run("dlq", "list", name, "--json"))
    assert [letter["dlq-reason"] for letter in listed] == ["rejected"] * 3
    first = listed[0]["id"]
    assert first in run("dlq", "list", name)
    shown = json.loads(run("dlq", "show", name, first, "--json"))
    assert shown["dlq-reason-text"] == "no good"
    told = {row[0]: row[1:] for row in rows(run("dlq", "show", name, first))}
    assert (told["dlq-reason"], told["payload"]) == (["rejected"], ["one"])
    assert "is $queue/" in run("dlq", "retry", name, first)
    assert "has no dead letter" in run("dlq", "retry", name, first, code=1)
    assert "has no dead letter" in run("dlq", "show", name, first, code=1)
    assert "name an ID" in run("dlq", "retry", name, code=1)
    assert "name an ID" in run("dlq", "discard", name, "--all", "--reason", "x", code=1)
    assert run("dlq", "discard", name, listed[1]["id"]) == f"discarded {listed[1]['id']}\n"
    assert run("dlq", "retry", name, "--reason", "timeout") == "put back 0\n"
    assert run("dlq", "retry", name, "--reason", "rejected") == "put back 1\n"
    assert run("dlq", "discard", name, "--all", "--yes") == "discarded 0\n"
    for what in ("retry", "discard"):
        sure = ["--yes"] if what == "discard" else []
        done = json.loads(run("dlq", what, name, "--all", "--json", *sure))
        assert done == {"done": 0, "more": False}
    assert consume(connect, name).receive().payload == "one"


# clients, retained, acl


def test_clients_are_listed_shown_disconnected_and_banned(run: Run, connect: Connect) -> None:
    client = connect("cli-client")
    client.wire.subscribe("some/+")
    assert ["cli-client", "yes"] in [row[:2] for row in rows(run("clients", "list"))]
    told = rows(run("clients", "show", "cli-client"))
    assert ["connected", "yes"] in told
    assert told[-1] == ["some/+", "0"]
    shown = json.loads(run("clients", "show", "cli-client", "--json"))
    assert [one["topic_filter"] for one in shown["topic_filters"]] == ["some/+"]
    assert run("clients", "disconnect", "cli-client", "--yes") == "disconnected cli-client\n"
    client.wire.expect_disconnect(0x98)
    assert "banned clientid cli-x until" in run(
        "clients", "ban", "clientid", "cli-x", "--seconds", "9"
    )
    assert ["clientid", "cli-x"] in [row[:2] for row in rows(run("clients", "bans"))]
    run("clients", "unban", "clientid", "cli-x")
    assert "there is no ban" in run("clients", "unban", "clientid", "cli-x", code=1)
    assert "is not known" in run("clients", "show", "nobody", code=1)


def test_retained_messages_are_listed_shown_and_deleted(run: Run, connect: Connect) -> None:
    connect().wire.publish("cli-retained/kept", b"21.5", qos=1, retain=True)
    assert rows(run("retained", "list", "--filter", "cli-retained/#"))[2][:3] == [
        "cli-retained/kept",
        "4",
        "1",
    ]
    assert run("retained", "show", "cli-retained/kept") == "21.5\n"
    shown = json.loads(run("retained", "show", "cli-retained/kept", "--json"))
    assert (shown["info"]["topic"], shown["payload"]) == ("cli-retained/kept", "MjEuNQ==")
    assert run("retained", "delete", "cli-retained/kept", "--yes") == "deleted cli-retained/kept\n"
    assert json.loads(run("retained", "list", "--filter", "cli-retained/#", "--json")) == []


def test_a_retained_message_is_shown_as_it_is(run: Run, connect: Connect) -> None:
    client = connect()
    for payload, shown in ((b"a  b\n\tc", "a  b\n\tc\n"), (b"\x1b[2J", "1b 5b 32 4a\n")):
        client.wire.publish("cli-exact", payload, qos=1, retain=True)
        assert run("retained", "show", "cli-exact") == shown


def test_a_permission_is_an_exit_code(run: Run) -> None:
    assert run("acl", "test", "publish", "a/b", "--client", "me") == "allowed\n"
    assert "denied" in run("acl", "test", "publish", "$SYS/x", code=1)
    assert json.loads(run("acl", "test", "publish", "a/b", "--json"))["allowed"] is True


def test_top_shows_the_queues_which_are_used(run: Run, connect: Connect, name: str) -> None:
    assert connect().publish(name, b"x") == SUCCESS
    shown = run("top", "--count", "2", "--interval", "0.2")
    assert "connections" in shown
    assert f"$queue/{name}" in shown


def test_top_finds_queues_behind_the_first_page_and_forgets_deleted_ones(
    run: Run, connect: Connect, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect()
    for number in range(3):
        assert client.publish(f"{name}/{number}", b"x") == SUCCESS
    monkeypatch.setattr("queuelake.cli.rest.PAGE", 1)
    ask = top._row

    def deleted(rest: Any, queue: str) -> Any:
        if queue == f"$queue/{name}/1":
            run("queue", "delete", queue, "--yes")
        return ask(rest, queue)

    monkeypatch.setattr(top, "_row", deleted)
    shown = [row[0] for row in rows(run("top", "--count", "1")) if name in row[0]]
    assert sorted(shown) == [f"$queue/{name}/0", f"$queue/{name}/2"]


# Another machine


@pytest.mark.parametrize(
    "url",
    ["ftp://x", "x", "http://x:99999", "http://x:abc", "http://[::1", "http://a b", "http://a..b"],
)
def test_a_url_which_is_none_is_refused_by_its_name(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["queue", "list", "--url", url, "--key", "a:b"]) == 1
    assert capsys.readouterr().err == f"error: --url {url!r}: not http://host:port\n"


def test_what_is_no_text_is_refused_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--url", "http://127.0.0.1:1", "--key", "a:b"]
    for words in (["queue", "show", "\udcff"], ["retained", "list", "--filter", "\udcff"]):
        assert cli.run([*words, *where]) == 1
        assert "is not UTF-8" in capsys.readouterr().err


def test_a_broker_is_named_by_its_configuration(
    run: Run, rest: Rest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "queuelake.toml"
    file.write_text(f"data_dir = {str(rest.broker.data_dir)!r}\n")
    monkeypatch.delenv("QUEUELAKE__DATA_DIR")
    monkeypatch.setenv("QUEUELAKE_CONFIG", str(file))
    run("queue", "list")
    file.write_text("nonsense = 1\n")
    assert "nonsense" in run("queue", "list", code=2)
    where = ["--url", f"http://127.0.0.1:{rest.broker.http_port}"]
    run("queue", "list", *where, "--key", read_api_key(rest.broker.data_dir))


def test_a_broker_is_named_by_url_and_key(
    fresh_broker: BrokerFactory, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    broker = fresh_broker()
    where: list[Any] = ["--url", f"http://127.0.0.1:{broker.http_port}", "--key"]
    elsewhere = ["--data-dir", str(tmp_path / "elsewhere")]
    assert cli.run(["queue", "list", *where, read_api_key(broker.data_dir), *elsewhere]) == 0
    assert cli.run(["queue", "list", *where, "no:body", *elsewhere]) == 1
    assert "the API key is wrong" in capsys.readouterr().err
    viewer = add_key(broker.data_dir, "looks", "viewer")
    assert cli.run(["queue", "create", "q", *where, viewer, *elsewhere]) == 1
    assert "has the role viewer" in capsys.readouterr().err
    broker.stop()
    assert cli.run(["queue", "list", *where, "no:body", *elsewhere]) == 1
    assert "does not answer" in capsys.readouterr().err
