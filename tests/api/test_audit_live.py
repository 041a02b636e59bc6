"""Who may do what by API key, and what is written down of it, with a real broker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from queuelake.apikey import Role, add_key
from tests.api.live import Answer, basic, fetch
from tests.api.queue_rest import Rest
from tests.conftest import BrokerFactory
from tests.harness.broker import BrokerProcess

QUEUE = "/api/v1/queues/audited"


class Keyed:
    """REST of a broker with a key of one role."""

    def __init__(self, broker: BrokerProcess, role: Role) -> None:
        self._port = broker.http_port
        self._authorization = basic(add_key(broker.data_dir, f"a-{role}", role))

    def fetch(self, path: str, **fields: Any) -> Answer:
        return fetch(self._port, path, authorization=self._authorization, **fields)

    def put(self, **settings: Any) -> Answer:
        return self.fetch(QUEUE, method="PUT", body=json.dumps(settings).encode())


def test_a_viewer_reads_an_operator_changes_an_admin_sees_who_did(
    fresh_broker: BrokerFactory,
) -> None:
    broker = fresh_broker()
    viewer, operator, admin = (Keyed(broker, r) for r in ("viewer", "operator", "admin"))
    refused = viewer.put(partitions=2)
    assert (refused.status, refused.json["code"]) == (403, "FORBIDDEN")
    assert refused.json["message"] == "API key 'a-viewer' has the role viewer; this needs operator"
    assert operator.put(partitions=2).status == 201
    assert viewer.fetch(QUEUE).status == 200
    for low in (viewer, operator):
        assert low.fetch("/api/v1/audit").status == 403
    (entry,) = admin.fetch("/api/v1/audit").json["entries"]
    assert entry["caller"] == "a-operator"
    assert (entry["operation"], entry["target"]) == ("queue_configure", "audited")
    assert entry["arguments"] == {"changes": {"partitions": 2}}
    assert "before" not in entry
    assert entry["after"]["queue"]["settings"]["partitions"] == 2


@pytest.mark.parametrize(
    "body", [b'{"partitions": "\xff"}', b'{"a":' * 10_000], ids=["bytes", "deep"]
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("PUT", QUEUE), ("POST", f"{QUEUE}/messages"), ("POST", f"{QUEUE}/dlq/retry")),
        *(("PUT", "/api/v1/ecq/config"), ("PUT", "/api/v1/sdv/config"), ("PUT", "/api/v1/acl")),
        *(("POST", "/api/v5/message_queues/queues"), ("PUT", "/api/v5/message_queues/config")),
    ],
)
def test_a_body_which_is_no_json_is_refused_and_written_down(
    rest: Rest, method: str, path: str, body: bytes
) -> None:
    rest.put("audited", partitions=1)
    answer = rest.fetch(path, method=method, body=body, headers={"If-Match": "*"})
    assert (answer.status, answer.json["code"]) == (400, "BAD_REQUEST")
    (entry,) = rest.fetch("/api/v1/audit?limit=1").json["entries"]
    assert entry["refused"] == answer.json["message"]


def test_the_audit_has_before_and_after_refusals_and_outlives_a_restart(
    fresh_broker: BrokerFactory,
) -> None:
    broker = fresh_broker()
    rest = Rest(broker)
    rest.put("audited", partitions=2)
    rest.put("audited", partitions=3)
    assert rest.put("audited", partitions=1).status == 400
    broker.kill()
    broker.start()
    rest = Rest(broker)
    rest.fetch(QUEUE, method="DELETE")
    page = rest.fetch("/api/v1/audit?limit=3").json
    deleted, refused, changed = page["entries"]
    assert deleted["operation"] == "queue_delete"
    assert deleted["before"]["settings"]["partitions"] == 3
    assert "partitions = 1" in refused["refused"]
    assert changed["before"]["settings"]["partitions"] == 2
    assert changed["after"]["queue"]["settings"]["partitions"] == 3
    (first,) = rest.fetch(f"/api/v1/audit?cursor={page['next']}").json["entries"]
    assert first["id"] == changed["id"] - 1
    assert rest.fetch("/api/v1/audit?operation=queue_delete").json["entries"] == [deleted]
    assert rest.fetch("/api/v1/audit?caller=nobody").json == {"entries": [], "next": None}


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "cursor=x"])
def test_a_wrong_page_is_refused(rest: Rest, query: str) -> None:
    assert rest.fetch(f"/api/v1/audit?{query}").status in (400, 422)
