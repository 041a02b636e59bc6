"""Schemathesis reads the OpenAPI document and looks for answers which it does not allow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings

from queuelake.control import ClientInfo
from tests.api.fake_broker import CLIENT_IDS
from tests.api.live import LiveAdmin, basic

EXAMPLES_MAX = 15


@pytest.fixture(scope="module")
def shared_admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAdmin]:
    live = LiveAdmin(tmp_path_factory.mktemp("schema"))
    yield live
    live.close()


@pytest.fixture
def document(shared_admin: LiveAdmin) -> Any:
    headers = {"Authorization": basic(shared_admin.key)}
    return schemathesis.openapi.from_url(f"{shared_admin.url}/api/openapi.json", headers=headers)


lazy = schemathesis.pytest.from_fixture("document")


@lazy.parametrize()
@settings(
    max_examples=EXAMPLES_MAX,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
def test_no_answer_breaks_the_document(case: Any, shared_admin: LiveAdmin) -> None:
    for name in CLIENT_IDS:
        shared_admin.broker.clients.setdefault(name, ClientInfo(name, connected=False))
    case.call_and_validate(headers={"Authorization": basic(shared_admin.key)})
