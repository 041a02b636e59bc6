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


@pytest.mark.parametrize("mode", MODES)
def test_no_answer_breaks_the_document(shared_admin: LiveAdmin, mode: GenerationMode) -> None:
    headers = {"Authorization": basic(shared_admin.key)}
    url = f"{shared_admin.url}/api/openapi.json"
    document = schemathesis.openapi.from_url(url, headers=headers)
    operations = [result.ok() for result in document.get_all_operations()]
    assert len(operations) >= 18
    for operation in operations:
        if mode == GenerationMode.POSITIVE or list(operation.iter_parameters()):
            validate(shared_admin, operation, mode)


def validate(admin: LiveAdmin, operation: Any, mode: GenerationMode) -> None:
    headers = {"Authorization": basic(admin.key)}
    # What names and settings a queue may have no schema says: a valid request may be refused.
    excluded = [positive_data_acceptance] if "{name}" in operation.path else []

    @bounded
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        for name in CLIENT_IDS:
            admin.broker.clients.setdefault(name, ClientInfo(name, connected=False))
        admin.broker.queues.restore()
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
