"""Schemathesis reads the OpenAPI document of a real broker and looks for answers against it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from queuelake.apikey import read_api_key
from tests.api.live import basic
from tests.harness.broker import BrokerProcess

MODES = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
# Each a test of its own: all in one would take minutes.
AREAS = ("/api/v5/", "/api/v1/ecq/", "/api/v1/sdv/", "/api/v1/queues", "/api/v1/", "/")
STARTS_A_PROCESS = ("POST", "/api/v1/jobs")
OPERATIONS_MIN = 60

bounded = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("schema"))
    broker.start()
    yield broker
    broker.stop()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("area", AREAS)
@pytest.mark.parametrize("mode", MODES)
def test_no_answer_breaks_the_document(
    served: BrokerProcess, mode: GenerationMode, area: str
) -> None:
    headers = {"Authorization": basic(read_api_key(served.data_dir))}
    url = f"http://127.0.0.1:{served.http_port}/api/openapi.json"
    document = schemathesis.openapi.from_url(url, headers=headers)
    operations = [result.ok() for result in document.get_all_operations()]
    assert len(operations) >= OPERATIONS_MIN
    for operation in operations:
        if next(filter(operation.path.startswith, AREAS)) != area:
            continue
        if (operation.method.upper(), operation.path) == STARTS_A_PROCESS:
            continue
        if mode == GenerationMode.POSITIVE or list(operation.iter_parameters()):
            validate(operation, mode, headers)


def validate(operation: Any, mode: GenerationMode, headers: dict[str, str]) -> None:
    """Which names, filters and settings there may be no schema says: a valid request of its kind
    may be refused, but as the document says."""

    @bounded
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        case.call_and_validate(
            headers=headers,
            excluded_checks=[positive_data_acceptance, schemathesis.checks.ignored_auth],
        )

    check()
