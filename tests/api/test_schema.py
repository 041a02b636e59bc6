"""Schemathesis reads the OpenAPI document and looks for answers which it does not allow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from queuelake.admin import auth
from queuelake.control import ClientInfo
from tests.api.fake_broker import CLIENT_IDS
from tests.api.fake_mq import FakeMessageQueues, add_message_queues
from tests.api.live import LiveAdmin, basic

EXAMPLES_MAX = 20
MODES = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]

bounded = settings(
    max_examples=EXAMPLES_MAX,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)


@pytest.fixture(scope="module")
def shared_admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAdmin]:
    with pytest.MonkeyPatch.context() as patch:
        # One of the checks tries wrong keys with every case.
        patch.setattr(auth, "WRONG_KEY_DELAY_S", 0.001)
        live = LiveAdmin(tmp_path_factory.mktemp("schema"))
        yield live
        live.close()


@pytest.fixture(scope="module")
def message_queues(shared_admin: LiveAdmin) -> FakeMessageQueues:
    return add_message_queues(shared_admin)


@pytest.mark.parametrize("mode", MODES)
def test_no_answer_breaks_the_document(
    shared_admin: LiveAdmin, message_queues: FakeMessageQueues, mode: GenerationMode
) -> None:
    headers = {"Authorization": basic(shared_admin.key)}
    url = f"{shared_admin.url}/api/openapi.json"
    document = schemathesis.openapi.from_url(url, headers=headers)
    operations = [result.ok() for result in document.get_all_operations()]
    assert len(operations) >= 34
    for operation in operations:
        if mode == GenerationMode.POSITIVE or list(operation.iter_parameters()):
            validate(shared_admin, message_queues, operation, mode)


def validate(
    admin: LiveAdmin, message_queues: FakeMessageQueues, operation: Any, mode: GenerationMode
) -> None:
    headers = {"Authorization": basic(admin.key)}
    # What names and settings a queue may have no schema says: a valid request may be refused.
    of_queues = "{name}" in operation.path or operation.path.startswith("/api/v5/")
    excluded = [positive_data_acceptance] if of_queues else []

    @bounded
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        for name in CLIENT_IDS:
            admin.broker.clients.setdefault(name, ClientInfo(name, connected=False))
        admin.broker.queues.restore()
        message_queues.restore()
        case.call_and_validate(headers=headers, excluded_checks=excluded)

    check()


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
    message_queues: FakeMessageQueues,
    path: str,
    method: str,
    body: dict[str, object] | None,
    status: int,
) -> None:
    headers = {"Authorization": basic(shared_admin.key)}
    url = f"{shared_admin.url}/api/openapi.json"
    operation = schemathesis.openapi.from_url(url, headers=headers)[MESSAGE_QUEUES + path][method]
    message_queues.restore()
    fields: dict[str, Any] = {} if body is None else {"body": body}
    if "{name}" in path:
        fields["path_parameters"] = {"name": "orders"}
    case = operation.Case(media_type="application/json" if body else None, **fields)
    assert case.call_and_validate(headers=headers).status_code == status
