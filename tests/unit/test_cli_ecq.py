"""`queuelake ecq`: the JSON of the contract, asked of a broker over its control socket."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from queuelake.cli import main as cli
from tests.api.fake_ecq import OWNERS, FakeMailboxes, add_mailboxes
from tests.api.live import LiveAdmin

Run = Callable[..., str]


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAdmin]:
    live = LiveAdmin(tmp_path_factory.mktemp("ecq"))
    yield live
    live.close()


@pytest.fixture
def mailboxes(admin: LiveAdmin) -> FakeMailboxes:
    return add_mailboxes(admin)


@pytest.fixture
def run(admin: LiveAdmin, capsys: pytest.CaptureFixture[str]) -> Run:
    """What `queuelake ecq ...` prints; it ends with `code`."""

    def run_command(*arguments: str, code: int = 0) -> str:
        done = cli.run(["ecq", *arguments, "--data-dir", str(admin.data_dir)])
        captured = capsys.readouterr()
        assert done == code, captured.err
        return captured.out if code == 0 else captured.err

    return run_command


def test_the_status_is_that_of_the_contract(run: Run, mailboxes: FakeMailboxes) -> None:
    """Section 9."""
    shown = json.loads(run("status"))
    assert list(shown) == ["messages", "consumer_states", "number_of_queues"]
    assert shown["messages"]["first"] == {"clientid": "50%", "seqno": 3}
    assert shown["number_of_queues"] == len(OWNERS)
    mailboxes.acked = {}
    empty = {"messages": "empty", "consumer_states": "empty", "number_of_queues": 0}
    assert json.loads(run("status")) == empty


@pytest.mark.parametrize("owner", OWNERS)
def test_a_mailbox_is_inspected(run: Run, mailboxes: FakeMailboxes, owner: str) -> None:
    """Section 9."""
    shown = {"acked": 2, "last_ack_ts": "2026-01-31T12:00:00.000Z", "queue": "[3,...,9]"}
    assert json.loads(run("inspect", owner)) == shown
    nothing = {"acked": "none", "last_ack_ts": "none", "queue": "empty"}
    assert json.loads(run("inspect", "nobody")) == nothing


def test_garbage_collection_says_when_it_runs_already(
    run: Run, mailboxes: FakeMailboxes, capsys: pytest.CaptureFixture[str], admin: LiveAdmin
) -> None:
    """E36."""
    assert json.loads(run("gc")) == {"started": True}
    mailboxes.collecting = True
    assert cli.run(["ecq", "gc", "--data-dir", str(admin.data_dir)]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"started": False}
    assert captured.err.startswith("warning: a garbage collection is under way")


def test_the_configuration_as_written_and_as_understood(run: Run, mailboxes: FakeMailboxes) -> None:
    """Section 9."""
    assert json.loads(run("show-config", "--json"))["data_retention"] == 604_800_000
    assert json.loads(run("show-config", "inuse", "--json"))["gc_interval"] == 3_600_000
    assert json.loads(run("show-config", "origin", "--json"))["data_retention"] == "7d"
    written = run("show-config", "origin")
    assert written.startswith("[ecq]\n")
    assert tomllib.loads(written)["ecq"]["reader_batch_size"] == 5


@pytest.mark.parametrize(
    ("arguments", "acked"),
    [
        (["--seqno", "2"], 1),
        (["--to", "first"], 0),
        (["--ts", "1790000000000"], 0),
        (["--ts", "2026-01-31T12:00:00Z"], 0),
    ],
)
def test_an_administrator_rewinds(
    run: Run, mailboxes: FakeMailboxes, arguments: list[str], acked: int
) -> None:
    """E38."""
    assert json.loads(run("rewind", "c1", *arguments)) == {"owner": "c1", "acked": acked}
    assert mailboxes.commits == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--seqno", "1", "--to", "first"],
        ["--seqno", "-1"],
        ["--to", "last"],
        ["--ts", "yesterday"],
        ["--ts", "2026-01-31T12:00:00"],
    ],
)
def test_a_rewind_to_nowhere_is_wrong_usage(
    run: Run, mailboxes: FakeMailboxes, arguments: list[str]
) -> None:
    run("rewind", "c1", *arguments, code=2)
    assert mailboxes.commits == 0


def test_what_the_broker_refuses_is_one_line(
    run: Run, mailboxes: FakeMailboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> int:
        from queuelake.errors import RefusedError

        raise RefusedError("client 'w' cannot own a mailbox")

    monkeypatch.setattr(mailboxes, "rewind", refuse)
    refusal = run("rewind", "w", "--to", "first", code=1)
    assert refusal == "error: client 'w' cannot own a mailbox\n"


def test_a_name_which_is_no_text_is_one_line(run: Run, mailboxes: FakeMailboxes) -> None:
    assert run("inspect", "\udcff", code=1) == "error: '\\udcff' is not UTF-8\n"


@pytest.mark.parametrize("command", ["status", "inspect c1", "gc", "show-config", "rewind c1"])
@pytest.mark.parametrize("family", ["ecq", "sdv"])
def test_without_a_broker_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], family: str, command: str
) -> None:
    words = command.split()
    if family == "sdv" and words[0] == "rewind":
        words = ["cancel", "task_1"]
    elif words[0] == "rewind":
        words += ["--to", "first"]
    assert cli.run([family, *words, "--data-dir", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"error: no broker answers for data directory '{tmp_path}': ")
    assert len(captured.err.splitlines()) == 1
