"""`queuelake sdv`: the JSON of the contract, asked of a broker over its control socket."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator

import pytest

from queuelake.cli import main as cli
from tests.api.fake_sdv import REQUESTS, VINS, FakeFanout, add_fanout
from tests.api.live import LiveAdmin

Run = Callable[..., str]


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAdmin]:
    live = LiveAdmin(tmp_path_factory.mktemp("sdv"))
    yield live
    live.close()


@pytest.fixture
def fanout(admin: LiveAdmin) -> FakeFanout:
    return add_fanout(admin)


@pytest.fixture
def run(admin: LiveAdmin, capsys: pytest.CaptureFixture[str]) -> Run:
    """What `queuelake sdv ...` prints; it ends with `code`."""

    def run_command(*arguments: str, code: int = 0) -> str:
        done = cli.run(["sdv", *arguments, "--data-dir", str(admin.data_dir)])
        captured = capsys.readouterr()
        assert done == code, captured.err
        return captured.out if code == 0 else captured.err

    return run_command


def test_the_status_is_that_of_the_contract(run: Run, fanout: FakeFanout) -> None:
    """Section 7."""
    assert json.loads(run("status")) == {
        "remaining_messages": 12,
        "unique_payloads": 1,
        "memory_usage": {"index": 1200, "data": {"payload": 1000, "meta": 24}},
    }


def test_a_vehicle_is_inspected(run: Run, fanout: FakeFanout) -> None:
    """Section 7."""
    shown = json.loads(run("inspect", "V1"))
    assert [row["request_id"] for row in shown["pending"]] == REQUESTS
    assert shown["in_flight"]["request_id"] == REQUESTS[0]
    assert json.loads(run("inspect", "nobody"))["pending"] == []


@pytest.mark.parametrize("request_id", REQUESTS)
def test_a_request_is_followed_and_cancelled(run: Run, fanout: FakeFanout, request_id: str) -> None:
    """Section 7."""
    shown = json.loads(run("request", request_id))
    assert {"pending", "in_flight", "acked", "expired", "rejected"} <= set(shown)
    assert shown["pending"] == len(VINS)
    assert json.loads(run("cancel", request_id, "V1", "V2"))["cancelled"] == 2
    assert json.loads(run("cancel", request_id)) == {
        "request_id": request_id,
        "cancelled": 1,
        "in_flight": 0,
    }
    assert json.loads(run("request", request_id))["pending"] == 0


def test_a_request_nobody_made_is_one_line(run: Run, fanout: FakeFanout) -> None:
    assert run("request", "nosuch", code=1) == "error: there was no request 'nosuch'\n"
    assert json.loads(run("cancel", "nosuch"))["cancelled"] == 0


def test_garbage_collection_begins(run: Run, fanout: FakeFanout) -> None:
    assert json.loads(run("gc")) == {"started": True}
    fanout.collecting = True
    assert json.loads(run("gc")) == {"started": False}


def test_the_configuration_as_written_and_as_understood(run: Run, fanout: FakeFanout) -> None:
    """Section 7."""
    assert json.loads(run("show-config", "--json"))["data_retention"] == 604_800_000
    assert json.loads(run("show-config", "origin", "--json"))["gc_interval"] == "1h"
    written = tomllib.loads(run("show-config", "origin"))
    assert written["sdv"]["heartbeat_topics"] == ["ecp/{VIN}/online", "ecp/{VIN}/heartbeat"]
    run("show-config", "neither", code=2)
