from __future__ import annotations

import http.client

import pytest

from queuelake.admin import app, server
from tests.api.live import LiveAdmin, fetch


def test_too_many_requests_at_a_time_are_told_to_come_later(
    admin: LiveAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "REQUESTS_MAX", 0)
    answer = fetch(admin.port, "/healthz")
    assert answer.status == 503
    assert answer.json["code"] == "SERVICE_UNAVAILABLE"
    assert answer.headers["retry-after"] == "1"
    monkeypatch.undo()
    assert fetch(admin.port, "/healthz").status == 200


def test_a_connection_over_the_limit_is_closed(
    admin: LiveAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 1)
    first = http.client.HTTPConnection("127.0.0.1", admin.port, timeout=10)
    first.request("GET", "/healthz")
    assert first.getresponse().read()
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        fetch(admin.port, "/healthz")
    first.request("GET", "/healthz")
    assert first.getresponse().status == 200
    first.close()
