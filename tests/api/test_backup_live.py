"""Backups over REST: one at a time, under the data directory, and such as can be served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.api.live import Answer, wait_until
from tests.api.queue_rest import Rest
from tests.conftest import BrokerFactory
from tests.harness.broker import BrokerProcess
from tests.queues.client import SUCCESS, QueueClient


def start(rest: Rest, body: Any = None) -> Answer:
    data = None if body is None else json.dumps(body).encode()
    return rest.fetch("/api/v1/backup", method="POST", body=data)


def finished(rest: Rest, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def ended() -> bool:
        found.update(rest.fetch(f"/api/v1/backup/{name}").json)
        return found["state"] != "running"

    wait_until(ended)
    return found


@pytest.fixture
def rest(fresh_broker: BrokerFactory) -> Rest:
    return Rest(fresh_broker())


def test_a_backup_is_made_listed_served_and_deleted(rest: Rest, tmp_path: Path) -> None:
    client = QueueClient(rest.broker.client(), "publisher")
    client.wire.connect("publisher")
    assert client.publish("tasks", b"kept") == SUCCESS
    client.wire.close()
    begun = start(rest, {"name": "monday"})
    assert (begun.status, begun.json["name"]) == (202, "monday")
    done = finished(rest, "monday")
    directory = rest.broker.data_dir / "backups" / "monday"
    assert (done["state"], done["path"], done["error"]) == ("done", str(directory), "")
    assert done["bytes"] == (directory / "store" / "data.mdb").stat().st_size
    again = start(rest, {"name": "monday"})
    assert (again.status, again.json["code"]) == (409, "CONFLICT")
    copied = BrokerProcess(tmp_path / "copied")
    copied.data_dir = directory
    copied.start()
    assert Rest(copied).queue("tasks", "/stats").json["depth"] == 1
    copied.stop()
    listed = rest.fetch("/api/v1/backup").json["backups"]
    assert [(one["name"], one["state"]) for one in listed] == [("monday", "done")]
    assert rest.fetch("/api/v1/backup/monday", method="DELETE").status == 204
    assert not directory.exists()
    assert rest.fetch("/api/v1/backup/monday", method="DELETE").status == 404
    operations = [one["operation"] for one in rest.fetch("/api/v1/audit").json["entries"]]
    assert operations[1:] == ["backup_delete", "backup_start", "backup_start"]


def test_a_name_is_no_path_and_without_one_it_is_the_time(rest: Rest) -> None:
    for name in ("../out", "/tmp/x", ".hidden", "a/b", "x" * 65, "a b"):
        assert start(rest, {"name": name}).status == 400
    assert start(rest, {"nam": "x"}).status == 400
    assert rest.fetch("/api/v1/backup/..%2Fstore", method="DELETE").status == 404
    assert (rest.broker.data_dir / "store" / "data.mdb").exists()
    name = start(rest).json["name"]
    assert name[:2] == "20"
    assert name.endswith("Z")
    assert finished(rest, name)["state"] == "done"


def test_they_are_made_one_at_a_time(rest: Rest) -> None:
    begun = [start(rest, {"name": f"b{number}"}) for number in range(3)]
    assert [answer.status for answer in begun] == [202, 409, 409]
    assert "'b0' is being made" in begun[1].json["message"]
    assert finished(rest, "b0")["state"] == "done"
    assert start(rest, {"name": "b1"}).status == 202
    finished(rest, "b1")
