"""Jobs and the archive of a real broker, through its HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from queuelake import control_client
from queuelake import control_pipeline as ops
from queuelake.admin import job_starting
from queuelake.admin.job_starting import JobStarter, JobWanted, NoPipelineError, arguments
from queuelake.control_client import ControlClient
from queuelake.errors import RefusedError
from tests.api.live import Answer, wait_until
from tests.api.queue_rest import Connect, Rest, consume
from tests.conftest import BrokerFactory


def post(rest: Rest, path: str, body: Any = None) -> Answer:
    return rest.fetch(path, method="POST", body=json.dumps(body).encode())


def ask(rest: Rest, op: str, **args: object) -> Any:
    return control_client.call(rest.broker.data_dir, op, args, 10.0)


def of_queue(rest: Rest, name: str) -> Any:
    queues = rest.fetch("/api/v1/archive").json["queues"]
    return next((one for one in queues if one["queue"] == f"$queue/{name}"), None)


def test_the_lag_of_an_archived_queue_and_what_its_deletion_loses(
    rest: Rest, connect: Connect, name: str
) -> None:
    assert rest.put(name, archive=True, partitions=1).status == 201
    worker = consume(connect, name)
    producer = connect()
    producer.publish_each(name, "a", "b", "c")
    worker.receive_and_ack(3)
    wait_until(lambda: of_queue(rest, name)["held_bytes"] > 0)
    lag = of_queue(rest, name)
    assert (lag["upto"], lag["archived"], lag["behind"], lag["lost"]) == ([3], [0], 3, 0)
    assert lag["oldest_ms"] > 1_600_000_000_000
    assert rest.samples()["queuelake_archive_lag_messages", f"$queue/{name}"] == 3
    assert rest.samples()["queuelake_archive_hold_bytes",] >= lag["held_bytes"]
    assert rest.samples()["queuelake_archive_hold_bytes_max",] == 10 * 1024**3
    assert rest.samples()["queuelake_archive_alarm",] == 0
    marks = [[lag["queue_id"], 0, 2]]
    ask(rest, ops.LAKE_ARCHIVED, table="messages", lake="delta-1", marks=marks)
    assert of_queue(rest, name)["behind"] == 1
    lost = rest.samples()["queuelake_archive_lost_messages_total",]
    deleted = rest.queue(name, method="DELETE")
    assert (deleted.status, deleted.json) == (200, {"unarchived": 1})
    assert of_queue(rest, name) is None
    assert rest.samples()["queuelake_archive_lost_messages_total",] == lost + 1


def test_flags_are_those_which_are_set(rest: Rest, name: str) -> None:
    schema = {"format": "json", "ddl": "id bigint"}
    rest.put(name, schema=schema)
    flags = [one for one in ask(rest, ops.QUEUE_FLAGS) if one["schema"] == schema]
    assert [one["archive"] for one in flags] == [False]
    rest.put(name, archive=True, schema={"format": "", "ddl": ""})
    flags = [one for one in ask(rest, ops.QUEUE_FLAGS) if one["number"] == flags[0]["number"]]
    assert [(one["archive"], one["schema"]) for one in flags] == [(True, None)]
    rest.queue(name, method="DELETE")
    assert flags[0] not in ask(rest, ops.QUEUE_FLAGS)


def test_a_full_hold_refuses_publishes_in_words(
    fresh_broker: BrokerFactory, connect: Connect, name: str
) -> None:
    rest = Rest(fresh_broker({"lake.archive_hold_bytes_max": 100}))
    rest.put(name, archive=True, partitions=1)
    producer = connect(of=rest.broker)
    worker = connect(of=rest.broker)
    assert worker.subscribe(name, group="g") < 0x80
    assert producer.publish(name, "x" * 1000) == 0
    worker.receive_and_ack(1)
    wait_until(lambda: bool(rest.fetch("/api/v1/archive").json["alarm"]))
    assert producer.publish(name, "no") == 0x97
    marks = [[of_queue(rest, name)["queue_id"], 0, 1]]
    ask(rest, ops.LAKE_ARCHIVED, table="messages", lake="delta-1", marks=marks)
    assert producer.publish(name, "yes") == 0


def test_jobs_are_listed_and_cancelled(rest: Rest, name: str) -> None:
    job = f"job/{name}"
    ask(rest, ops.JOB_TOLD, id=job, kind="archive", done=3, total=10)
    path = f"/api/v1/jobs/{job.replace('/', '%2F')}"
    shown = rest.fetch(path).json
    assert (shown["state"], shown["done"], shown["total"]) == ("running", 3, 10)
    assert shown in rest.fetch("/api/v1/jobs").json["items"]
    assert post(rest, f"{path}/cancel").status == 202
    answer = ask(rest, ops.JOB_TOLD, id=job, kind="archive", started_ms=shown["started_ms"])
    assert answer == {"cancel": True}
    ask(rest, ops.JOB_TOLD, id=job, kind="archive", state="cancelled")
    assert post(rest, f"{path}/cancel").status == 409
    assert rest.fetch("/api/v1/jobs/nobody").status == 404
    assert rest.fetch("/api/v1/jobs?cursor=x").status == 400


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "kind"),
        ({"kind": "rm"}, "kind is 'rm', may be archive, "),
        ({"kind": "archive", "arguments": {"conf": "x"}}, "archive takes no 'conf', only once"),
        ({"kind": "archive", "arguments": {"once": "yes"}}, "may be true or false"),
        ({"kind": "archive", "id": "../x"}, "job id '../x' may have"),
        ({"kind": "archive", "shell": "x"}, "shell"),
    ],
)
def test_only_what_is_listed_can_be_started(rest: Rest, body: Any, words: str) -> None:
    answer = post(rest, "/api/v1/jobs", body)
    assert answer.status == 400
    assert words in answer.json["message"]


def test_without_flight_no_job_is_started(rest: Rest) -> None:
    answer = post(rest, "/api/v1/jobs", {"kind": "archive"})
    assert (answer.status, answer.json["code"]) == (501, "NOT_IMPLEMENTED")
    assert "flight.enabled" in answer.json["message"]


async def test_without_spark_the_answer_says_what_to_install(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_starting, "find_spec", lambda _: None)
    starter = JobStarter(ControlClient(rest.broker.data_dir), rest.broker.data_dir, "")
    with pytest.raises(NoPipelineError, match=r"pip install 'queuelake\[spark\]'"):
        await starter.start(JobWanted("archive"))


@pytest.mark.timeout(180)
def test_a_job_which_cannot_begin_is_shown_as_failed(fresh_broker: BrokerFactory) -> None:
    rest = Rest(fresh_broker({"flight.enabled": True}))
    started = post(rest, "/api/v1/jobs", {"kind": "run", "arguments": {"file": "/no/such.toml"}})
    assert (started.status, started.json.get("state")) == (202, "running"), started.json
    assert started.json["detail"] == {"file": "/no/such.toml"}
    path = f"/api/v1/jobs/{started.json['id']}"
    wait_until(lambda: rest.fetch(path).json["state"] == "failed", 60)
    assert "/no/such.toml" in rest.fetch(path).json["message"]
    log = rest.broker.data_dir / "jobs" / f"{started.json['id']}.log"
    assert "/no/such.toml" in log.read_text()
    audit = rest.fetch("/api/v1/audit?operation=job_start").json["entries"]
    assert [entry["target"] for entry in audit] == [started.json["id"]]


def test_arguments_are_words_and_never_options() -> None:
    wanted = JobWanted(
        "fanout", {"request": "--token=x", "table": ["a=b", "c=d"], "watch": True, "cancel": False}
    )
    assert arguments(wanted) == ["--request=--token=x", "--table=a=b", "--table=c=d", "--watch"]
    assert arguments(JobWanted("run", {"check": True, "file": "-x"})) == ["--check", "--", "-x"]
    with pytest.raises(RefusedError, match="null character"):
        arguments(JobWanted("report", {"title": "a\0b"}))


def test_what_may_be_started_is_what_the_command_line_knows() -> None:
    import typer

    from queuelake.cli import pipeline

    commands = typer.main.get_command(pipeline.app).commands  # type: ignore[attr-defined]
    assert set(job_starting.KINDS) == set(commands)
    for kind, known in job_starting.KINDS.items():
        names = {
            word.removeprefix("--")
            for parameter in commands[kind].params
            for word in [*parameter.opts, parameter.name]
        }
        assert set(known) <= names, kind
