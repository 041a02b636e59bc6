from __future__ import annotations

import time

from queuelake.admin.services import READINESS_AGE_S_MAX
from queuelake.control import Readiness
from tests.api.live import LiveAdmin, fetch


def test_a_ready_broker_is_200(admin: LiveAdmin) -> None:
    answer = fetch(admin.port, "/readyz")
    assert (answer.status, answer.json) == (200, {"ready": True})


def test_every_reason_is_told(admin: LiveAdmin) -> None:
    admin.broker.readiness = Readiness(False, ["store: disk full", "starting"])
    answer = fetch(admin.port, "/readyz")
    assert answer.status == 503
    assert answer.json == {"ready": False, "reasons": ["store: disk full", "starting"]}


def test_a_dead_broker_is_not_ready_but_this_process_is_healthy(admin: LiveAdmin) -> None:
    admin.broker_down()
    answer = fetch(admin.port, "/readyz")
    assert answer.status == 503
    assert answer.json["ready"] is False
    assert answer.json["reasons"][0].startswith("broker does not answer")
    assert fetch(admin.port, "/healthz").status == 200
    admin.broker_up()
    time.sleep(READINESS_AGE_S_MAX * 1.2)
    assert fetch(admin.port, "/readyz").status == 200


def test_a_flood_of_probes_asks_the_broker_seldom(admin: LiveAdmin) -> None:
    started = time.monotonic()
    for _ in range(50):
        assert fetch(admin.port, "/readyz").status == 200
    allowed = 1 + (time.monotonic() - started) / READINESS_AGE_S_MAX
    assert 1 <= len(admin.broker.calls) <= allowed + 1
