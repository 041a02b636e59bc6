"""The routes of device mailboxes: paths, bodies and codes, over a fake service."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from queuelake.admin.bodies import SETTINGS_BYTES_MAX
from queuelake.admin.ecq_metrics import ecq_families
from queuelake.broker.ecq_operations import EcqOperations
from queuelake.control_ecq import EcqFigures
from tests.api.fake_ecq import OWNERS, FakeMailboxes, add_mailboxes
from tests.api.live import Answer, LiveAdmin
from tests.api.test_mq import samples
from tests.api.test_rest_v1 import assert_problem

ECQ = "/api/v1/ecq"
CONFIG = f"{ECQ}/config"


@pytest.fixture
def mailboxes(admin: LiveAdmin) -> FakeMailboxes:
    return add_mailboxes(admin)


def send(admin: LiveAdmin, method: str, path: str, body: Any) -> Answer:
    return admin.fetch(path, method=method, body=json.dumps(body).encode())


def path_of(owner: str, rest: str) -> str:
    return f"{ECQ}/{quote(owner, safe='')}/{rest}"


def test_the_status_is_that_of_the_contract(admin: LiveAdmin, mailboxes: FakeMailboxes) -> None:
    """Section 9."""
    assert admin.fetch(f"{ECQ}/status").json == {
        "messages": {
            "first": {"clientid": "50%", "seqno": 3},
            "last": {"clientid": "ünïcode", "seqno": 9},
        },
        "consumer_states": {
            "first": {"clientid": "50%", "seqno": 2},
            "last": {"clientid": "ünïcode", "seqno": 2},
        },
        "number_of_queues": len(OWNERS),
    }
    mailboxes.acked = {}
    empty = {"messages": "empty", "consumer_states": "empty", "number_of_queues": 0}
    assert admin.fetch(f"{ECQ}/status").json == empty


@pytest.mark.parametrize("owner", OWNERS)
def test_any_owner_can_be_inspected(admin: LiveAdmin, mailboxes: FakeMailboxes, owner: str) -> None:
    answer = admin.fetch(path_of(owner, "inspect"))
    shown = {"acked": 2, "last_ack_ts": "2026-01-31T12:00:00.000Z", "queue": "[3,...,9]"}
    assert (answer.status, answer.json) == (200, shown)


def test_a_mailbox_which_is_not_there_is_empty(admin: LiveAdmin, mailboxes: FakeMailboxes) -> None:
    answer = admin.fetch(path_of("nobody", "inspect"))
    shown = {"acked": "none", "last_ack_ts": "none", "queue": "empty"}
    assert (answer.status, answer.json) == (200, shown)


def test_an_administrator_rewinds(admin: LiveAdmin, mailboxes: FakeMailboxes) -> None:
    """E38."""
    answer = send(admin, "POST", path_of("with space", "rewind"), {"seqno": 2})
    assert (answer.status, answer.json) == (200, {"owner": "with space", "acked": 1})
    answer = send(admin, "POST", path_of("c1", "rewind"), {"to": "first"})
    assert answer.json == {"owner": "c1", "acked": 0}
    assert mailboxes.commits == 2


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"\xff", b"{}", b'{"seqno": 1, "to": "first"}', b'{"to": "last"}']
)
def test_a_rewind_to_nowhere_is_refused(
    admin: LiveAdmin, mailboxes: FakeMailboxes, body: bytes
) -> None:
    answer = admin.fetch(path_of("c1", "rewind"), method="POST", body=body)
    assert_problem(answer, 400, "BAD_REQUEST")
    assert (mailboxes.acked["c1"], mailboxes.commits) == (2, 0)


def test_garbage_is_collected_once_at_a_time(admin: LiveAdmin, mailboxes: FakeMailboxes) -> None:
    """E36."""
    answer = admin.fetch(f"{ECQ}/gc", method="POST")
    assert (answer.status, answer.json) == (202, {"started": True})
    mailboxes.collecting = True
    assert admin.fetch(f"{ECQ}/gc", method="POST").json == {"started": False}


def test_the_configuration_is_shown_as_written_and_as_understood(
    admin: LiveAdmin, mailboxes: FakeMailboxes
) -> None:
    shown = admin.fetch(CONFIG).json
    assert (shown["origin"]["data_retention"], shown["inuse"]["data_retention"]) == (
        "7d",
        604_800_000,
    )
    assert shown["origin"].keys() == shown["inuse"].keys()
    changed = send(admin, "PUT", CONFIG, {"data_retention": "90s", "reader_batch_size": 31})
    assert changed.status == 200
    assert changed.json == admin.fetch(CONFIG).json
    assert changed.json["inuse"] == shown["inuse"] | {
        "data_retention": 90_000,
        "reader_batch_size": 31,
    }
    assert mailboxes.commits == 1
    back = send(admin, "PUT", CONFIG, shown["origin"])
    assert back.json == shown


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"reader_batch_size": 32}, "reader_batch_size = 32"),
        ({"reader_batch_size": 0}, "reader_batch_size = 0"),
        ({"writer_pool_size": 10241}, "writer_pool_size = 10241"),
        ({"writer_pool_size": -1}, "writer_pool_size = -1"),
        ({"gc_interval": "soon"}, 'gc_interval = "soon"'),
        ({"nosuch": 1}, "nosuch"),
        ([], "JSON object"),
    ],
)
def test_a_value_which_cannot_be_is_refused_by_name(
    admin: LiveAdmin, mailboxes: FakeMailboxes, body: Any, named: str
) -> None:
    """Section 7."""
    answer = send(admin, "PUT", CONFIG, body)
    assert_problem(answer, 400, "BAD_REQUEST")
    assert named in answer.json["message"]
    assert mailboxes.commits == 0


def test_limits_methods_and_a_broker_which_is_down(
    admin: LiveAdmin, mailboxes: FakeMailboxes
) -> None:
    long = b" " * (SETTINGS_BYTES_MAX + 1)
    assert_problem(admin.fetch(CONFIG, method="PUT", body=long), 413, "CONTENT_TOO_LARGE")
    for path, methods in ((CONFIG, "GET, PUT"), (path_of("c1", "rewind"), "POST")):
        answer = admin.fetch(path, method="DELETE")
        assert_problem(answer, 405, "METHOD_NOT_ALLOWED")
        assert answer.headers["allow"] == methods
    admin.broker_down()
    assert_problem(admin.fetch(f"{ECQ}/status"), 503, "BROKER_DOWN")


def test_metrics_are_of_all_mailboxes_together() -> None:
    fake = FakeMailboxes()
    figures = EcqOperations(fake, fake.durable).figures()
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(figures), type=EcqFigures)
    found = samples(list(ecq_families(sent)))
    assert found["ecq_queues",] == 5
    assert found["ecq_attached",] == 2
    assert found["ecq_writes_total",] == 7
    assert found["ecq_write_errors_total", "quota"] == 3
    assert found["ecq_direct_publish_rejected_total",] == 6
    assert found["ecq_gc_runs_total",] == 0
