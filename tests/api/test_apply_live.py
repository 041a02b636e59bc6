"""`queuelake apply` against a real broker: what it says, what it does, and that it does it once."""

from __future__ import annotations

import io
import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from queuelake.cli import main as cli
from queuelake.cli import rest as cli_rest
from queuelake.errors import RefusedError
from tests.api.queue_rest import Rest
from tests.harness.broker import ROOT, BrokerProcess

EXAMPLE = ROOT / "examples" / "queues.toml"
EMPTY = """
acl = []
[queues]
[mq.queues]
[users]
[ecq]
data_retention = "7d"
[sdv]
max_pending_per_vehicle = 0
"""

Apply = Callable[..., str]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("apply"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def apply(
    served: BrokerProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Apply]:
    """Apply a document, given as text or as a path; returns what is printed."""
    monkeypatch.setenv("QUEUELAKE__DATA_DIR", str(served.data_dir))
    for name in ("DISPATCHER_PASSWORD", "OLGA_PASSWORD"):
        monkeypatch.setenv(name, "a long secret")

    def run(document: str | Path, *options: str, code: int = 0) -> str:
        path = tmp_path / "document.toml"
        if isinstance(document, Path):
            path = document
        else:
            path.write_text(document)
        done = cli.run(["apply", "-f", str(path), *options])
        captured = capsys.readouterr()
        assert done == code, captured
        return captured.out if code in (0, 2) else captured.err + captured.out

    yield run
    run(EMPTY, "--prune", "--yes")


@pytest.fixture
def rest(served: BrokerProcess) -> Rest:
    return Rest(served)


def test_the_example_is_applied_once(apply: Apply, rest: Rest) -> None:
    planned = apply(EXAMPLE, "--dry-run", code=2)
    assert "+ queue $queue/tasks/image\n    partitions = 4\n" in planned
    assert '~ ecq\n    data_retention: "7d" -> "14d"\n' in planned
    assert '+ user olga\n    password = "***"\n    role = "operator"\n' in planned
    assert "7 to create, 3 to change" in planned
    assert rest.queue("tasks/image").status == 404
    done = apply(EXAMPLE)
    assert done.startswith(planned)
    assert "created message queue alarms/#\n" in done
    assert rest.queue("tasks/image").json["settings"]["retry_policy"]["max_retries"] == 5
    assert rest.queue("events/orders").json["settings"]["type"] == "stream"
    assert rest.fetch("/api/v1/users/olga").json["role"] == "operator"
    assert len(rest.fetch("/api/v1/acl").json["rules"]) == 2
    changed = rest.fetch("/api/v1/audit?limit=1").json["entries"][0]["id"]
    assert apply(EXAMPLE) == "nothing to change\n"
    assert apply(EXAMPLE, "--dry-run") == "nothing to change\n"
    assert rest.fetch("/api/v1/audit?limit=1").json["entries"][0]["id"] == changed


def test_what_there_is_can_be_written_down_and_applied(
    apply: Apply, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(EXAMPLE)
    assert cli.run(["apply", "--export"]) == 0
    written = capsys.readouterr().out
    document = tomllib.loads(written)
    assert document["queues"]["orders"]["ordering"] == "strict"
    assert document["mq"]["queues"]["alarms/#"]["is_lastvalue"] is False
    assert document["users"]["olga"] == {"role": "operator", "platform": False}
    assert "a long secret" not in written
    assert apply(written, "--prune") == "nothing to change\n"
    assert cli.run(["apply", "--export", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["queues"].keys() == document["queues"].keys()


def test_only_what_differs_is_changed(apply: Apply, rest: Rest) -> None:
    apply('[queues.a]\npartitions = 2\nretry_policy.max_backoff = "60s"\n')
    changed = apply('[queues.a]\npartitions = 3\nretry_policy.max_backoff = "1m"\n')
    assert changed.startswith("~ queue $queue/a\n    partitions: 2 -> 3\n1 to change\n")
    assert apply("[queues.a]\n") == "nothing to change\n"
    assert rest.queue("a").json["settings"]["retry_policy"]["max_backoff"] == "1m"
    mq = '[mq.queues.x]\ntopic_filter = "x/#"\nis_lastvalue = false\n'
    apply(mq)
    wider = apply(mq + 'data_retention_period = "3d"\n')
    assert "~ message queue x\n    data_retention_period: 604800000 -> 259200000\n" in wider
    assert apply(mq + 'data_retention_period = "72h"\n') == "nothing to change\n"


def test_prune_deletes_only_kinds_the_document_has_and_asks(
    apply: Apply, rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply("[queues.a]\n[queues.b]\n[users.u]\npassword = 'x'\n[mq.queues.'m/#']\n")
    assert apply("[queues.a]\n") == "nothing to change\n"
    assert apply("[ecq]\n", "--prune") == "nothing to change\n"
    asked: list[str] = []

    def refuse(question: str, **_: Any) -> bool:
        asked.append(question)
        return False

    monkeypatch.setattr("typer.confirm", refuse)
    assert "- queue $queue/b\n" in apply("[queues.a]\n", "--prune", code=1)
    assert asked == ["Delete queue $queue/b?"]
    assert rest.queue("b").status == 200
    pruned = apply("[queues.a]\n[users]\n[mq.queues]\n", "--prune", "--yes")
    for title in ("queue $queue/b", "message queue m/#", "user u"):
        assert f"deleted {title}\n" in pruned
    assert rest.queue("b").status == 404
    assert rest.queue("a").status == 200


def test_prune_leaves_the_dead_letters_of_queues_in_the_document(apply: Apply, rest: Rest) -> None:
    document = """
    [queues.a]
    dlq_config = { topic = "$queue/failed/{name}" }
    [queues.b]
    type = "quorum"
    dead_letter_queue = "$queue/dead"
    """
    for name in ("failed/a", "failed/b", "dead"):
        assert rest.put(name, partitions=1).status == 201
    pruned = "deleted queue $queue/failed/b\n"
    assert apply(document, "--prune", "--yes").splitlines(keepends=True)[-1] == pruned
    assert apply(document, "--prune", "--yes") == "nothing to change\n"
    assert rest.queue("failed/a").status == rest.queue("dead").status == 200


def test_rules_are_shown_as_they_are(apply: Apply) -> None:
    rule = "[[acl]]\npermission = 'deny'\ntopics = ['{}']\n"
    apply(rule.format("a") + rule.format("b"))
    planned = apply(rule.format("a") + rule.format("c") + rule.format("d"), "--dry-run", code=2)
    shown = '{{"permission": "deny", "topics": ["{}"]}}'
    assert planned.splitlines()[:-1] == [
        "~ acl",
        f"    [1]: {shown.format('b')} -> {shown.format('c')}",
        f"    [2] = {shown.format('d')}",
    ]


def test_many_deletions_are_asked_for_by_their_number(
    apply: Apply, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply("".join(f"[queues.q{number}]\n" for number in range(11)))
    asked: list[str] = []
    monkeypatch.setattr("typer.confirm", lambda question, **_: asked.append(question))
    assert "- queue $queue/q10\n" in apply("[queues]\n", "--prune", code=1)
    assert asked == ["Delete these 11?"]


def test_what_cannot_be_changed_is_said_before_anything_is_done(apply: Apply, rest: Rest) -> None:
    apply("[queues.a]\npartitions = 4\n[queues.b]\n[mq.queues.m]\ntopic_filter = 'm/#'\n")
    refused = apply(
        "[queues.new]\n"
        "[queues.a]\npartitions = 2\n"
        "[queues.b]\ntype = 'stream'\n"
        "[mq.queues.m]\ntopic_filter = 'other/#'\n",
        code=1,
    )
    assert 'error: queues."a".partitions = 2: the queue has 4' in refused
    assert 'error: queues."b".type = "stream"' in refused
    assert 'error: mq.queues."m".topic_filter' in refused
    assert rest.queue("new").status == 404


@pytest.mark.parametrize(
    ("document", "mistakes"),
    [
        ("queues = 1\nuser = {}\n", ["queues: not a table", "user: there is no such section"]),
        ("[queues]\nauto_create = true\n", ['queues."auto_create": not a table']),
        (
            "[queues.a]\npartitions = 0\ncolour = 1\n[queues.'a+']\n",
            ['queues."a".partitions = 0', 'queues."a".colour', 'queues."a+"'],
        ),
        ("[mq]\nqueues = 1\ncolour = 1\n", ["mq.queues: not a table", "mq.colour"]),
        ("[mq.queues.'a/#/b']\n", ['mq.queues."a/#/b"']),
        ("[ecq]\nreader_batch_size = 99\n[sdv]\ncolour = 1\n", ["ecq.reader_batch", "sdv.colour"]),
        ("acl = [{ permission = 'no', topics = [] }]\n", ["acl[0].permission", "acl[0].topics"]),
        (
            "[users.a]\nrole = 'king'\n[users.b]\n[users.c]\npassword_env = 'NOT_THERE'\n",
            ['users."a".role = "king"', 'users."b": a new user needs', "has no NOT_THERE"],
        ),
        (
            "[users.a]\npassword = 'x'\npassword_hash = 'y'\nplatform = 1\ncolour = 2\n",
            ["password and password_hash", 'users."a".platform', 'users."a".colour'],
        ),
        ("x = [\n", ["is not TOML"]),
    ],
)
def test_each_mistake_of_a_document_is_a_line(
    apply: Apply, document: str, mistakes: list[str]
) -> None:
    told = apply(document, code=1).splitlines()
    for mistake in mistakes:
        assert any(line.startswith("error: ") and mistake in line for line in told), told
    assert len(told) == len(mistakes)


def test_what_the_broker_refuses_ends_it_and_the_rest_can_be_done_again(
    apply: Apply, rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = "[queues.first]\n[queues.second]\n[users.u]\npassword = 'x'\n"
    call = cli_rest.Rest.call

    def failing(self: cli_rest.Rest, method: str, path: str, *rest: Any, **fields: Any) -> Any:
        if method == "PUT" and path.endswith("second"):
            raise RefusedError("not today")
        return call(self, method, path, *rest, **fields)

    monkeypatch.setattr(cli_rest.Rest, "call", failing)
    told = apply(document, code=1)
    assert "created queue $queue/first\n" in told
    assert "error: queue $queue/second: not today; 1 of 3 changes are done\n" in told
    assert rest.fetch("/api/v1/users/u").status == 404
    monkeypatch.setattr(cli_rest.Rest, "call", call)
    assert "1 to create" not in (again := apply(document))
    assert "2 to create" in again


def test_passwords_of_users_who_are_there_are_set_only_when_asked(apply: Apply) -> None:
    apply("[users.u]\npassword = 'first'\n")
    assert apply("[users.u]\npassword = 'second'\n") == "nothing to change\n"
    again = apply("[users.u]\npassword = 'second'\n", "--passwords")
    assert '~ user u\n    password = "***"\n' in again
    assert "second" not in again


def test_programs_get_json_and_a_document_from_a_pipe(
    served: BrokerProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Piped:
        buffer = io.BytesIO(b"[queues.piped]\n")

    monkeypatch.setattr("sys.stdin", Piped)
    where = ["--data-dir", str(served.data_dir)]
    assert cli.run(["apply", "-f", "-", "--dry-run", "--json", *where]) == 2
    told = json.loads(capsys.readouterr().out)
    assert [(one["action"], one["name"]) for one in told["changes"]] == [("create", "$queue/piped")]
    assert told["done"] == 0
    Piped.buffer.seek(0)
    assert cli.run(["apply", "-f", "-", "--json", *where]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 1
    assert cli.run(["apply", *where]) == 2
    assert "--file" in capsys.readouterr().err
    assert cli.run(["apply", "-f", "nowhere.toml", *where]) == 1
