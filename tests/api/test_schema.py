"""Answers about what is known to be there fit the OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import schemathesis

from queuelake.admin import auth
from queuelake.control import ClientInfo
from tests.api.fake_ecq import add_mailboxes
from tests.api.fake_mq import add_message_queues
from tests.api.fake_sdv import add_fanout
from tests.api.live import LiveAdmin, basic


@pytest.fixture(scope="module")
def shared_admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAdmin]:
    with pytest.MonkeyPatch.context() as patch:
        # One of the checks tries wrong keys with every case.
        patch.setattr(auth, "WRONG_KEY_DELAY_S", 0.001)
        live = LiveAdmin(tmp_path_factory.mktemp("schema"))
        yield live
        live.close()


@pytest.fixture(scope="module")
def restore(shared_admin: LiveAdmin) -> Callable[[], None]:
    """Every kind of queue is there; the call puts each back as it was at the beginning."""
    message_queues = add_message_queues(shared_admin)
    mailboxes = add_mailboxes(shared_admin)
    fanout = add_fanout(shared_admin)

    def begin_again() -> None:
        shared_admin.broker.queues.restore()
        message_queues.restore()
        mailboxes.restore()
        fanout.restore()

    return begin_again


@pytest.mark.parametrize("client_id", ["a", "a%2Fb", "ünïcode", "with space"])
def test_a_known_client_fits_the_document(shared_admin: LiveAdmin, client_id: str) -> None:
    headers = {"Authorization": basic(shared_admin.key)}
    url = f"{shared_admin.url}/api/openapi.json"
    operation = schemathesis.openapi.from_url(url, headers=headers)["/api/v1/clients/{client_id}"]
    shared_admin.broker.clients.setdefault(client_id, ClientInfo(client_id, connected=False))
    for method, status in (("GET", 200), ("DELETE", 204), ("GET", 404)):
        case = operation[method].Case(path_parameters={"client_id": client_id})
        assert case.call_and_validate(headers=headers).status_code == status


QUEUE = "/api/v1/queues/{name}"


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        (QUEUE, "GET", 200),
        (QUEUE + "/stats", "GET", 200),
        (QUEUE + "/consumers", "GET", 200),
        (QUEUE + "/messages", "GET", 200),
        (QUEUE + "/purge", "POST", 200),
        (QUEUE + "/dlq", "GET", 200),
        (QUEUE + "/dlq/{message_id}/retry", "POST", 202),
        (QUEUE + "/groups/{group}", "DELETE", 204),
        (QUEUE, "DELETE", 204),
    ],
)
def test_a_known_queue_fits_the_document(
    shared_admin: LiveAdmin, path: str, method: str, status: int
) -> None:
    headers = {"Authorization": basic(shared_admin.key)}
    url = f"{shared_admin.url}/api/openapi.json"
    operation = schemathesis.openapi.from_url(url, headers=headers)[path][method]
    shared_admin.broker.queues.restore()
    parameters = {"name": "tasks", "group": "workers", "message_id": "0:1"}
    case = operation.Case(
        path_parameters={k: v for k, v in parameters.items() if f"{{{k}}}" in path}
    )
    assert case.call_and_validate(headers=headers).status_code == status


MESSAGE_QUEUES = "/api/v5/message_queues"
UPDATE = {"dispatch_strategy": "round_robin", "data_retention_period": "1d"}


@pytest.mark.parametrize(
    ("path", "method", "body", "status"),
    [
        ("/queues", "GET", None, 200),
        ("/queues", "POST", {"topic_filter": "new/#", "is_lastvalue": False}, 200),
        ("/queues/{name}", "GET", None, 200),
        ("/queues/{name}", "PUT", UPDATE, 200),
        ("/queues/{name}/stats", "GET", None, 200),
        ("/queues/{name}", "DELETE", None, 204),
        ("/config", "GET", None, 200),
        ("/config", "PUT", {"gc_interval": 1000}, 204),
        ("/gc", "POST", None, 204),
    ],
)
def test_a_known_message_queue_fits_the_document(
    shared_admin: LiveAdmin,
    restore: Callable[[], None],
    path: str,
    method: str,
    body: dict[str, object] | None,
    status: int,
) -> None:
    restore()
    assert call(shared_admin, method, MESSAGE_QUEUES + path, body, {"name": "orders"}) == status


@pytest.mark.parametrize(
    ("path", "method", "body", "status"),
    [
        ("/ecq/status", "GET", None, 200),
        ("/ecq/gc", "POST", None, 202),
        ("/ecq/config", "GET", None, 200),
        ("/ecq/config", "PUT", {"gc_interval": "2h"}, 200),
        ("/ecq/{owner}/inspect", "GET", None, 200),
        ("/ecq/{owner}/rewind", "POST", {"seqno": 1}, 200),
        ("/sdv/status", "GET", None, 200),
        ("/sdv/gc", "POST", None, 202),
        ("/sdv/config", "GET", None, 200),
        ("/sdv/config", "PUT", {"same_request": "replace"}, 200),
        ("/sdv/vehicles/{vin}", "GET", None, 200),
        ("/sdv/requests", "GET", None, 200),
        ("/sdv/requests/{request_id}", "GET", None, 200),
        ("/sdv/requests/{request_id}/cancel", "POST", {"vins": ["V1"]}, 200),
        ("/sdv/requests/{request_id}/cancel", "POST", None, 200),
    ],
)
def test_a_known_device_fits_the_document(
    shared_admin: LiveAdmin,
    restore: Callable[[], None],
    path: str,
    method: str,
    body: dict[str, object] | None,
    status: int,
) -> None:
    restore()
    names = {"owner": "c1", "vin": "V1", "request_id": "task_ota_1"}
    assert call(shared_admin, method, "/api/v1" + path, body, names) == status


def call(
    admin: LiveAdmin,
    method: str,
    path: str,
    body: dict[str, object] | None,
    names: dict[str, str],
) -> int:
    """The status of one request, whose answer is what the document says."""
    headers = {"Authorization": basic(admin.key)}
    document = schemathesis.openapi.from_url(f"{admin.url}/api/openapi.json", headers=headers)
    fields: dict[str, Any] = {} if body is None else {"body": body}
    case = document[path][method].Case(
        media_type="application/json" if body else None,
        path_parameters={name: value for name, value in names.items() if f"{{{name}}}" in path},
        **fields,
    )
    return int(case.call_and_validate(headers=headers).status_code)
