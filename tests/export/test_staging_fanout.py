"""Fan-out in bulk: as a trigger of the same ids, once for each batch."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyarrow import flight as arrow_flight

from queuelake.flight import Call
from tests.export.conftest import Connect
from tests.export.staging import Stager
from tests.harness.broker import BrokerProcess

TARGET = "$SDV-FANOUT"


@pytest.fixture
def stager(exporting: BrokerProcess) -> Iterator[Stager]:
    with Stager(exporting) as one:
        yield one


@pytest.fixture
def request_id() -> str:
    return f"task_update_{uuid.uuid4().hex[:10]}"


def ids(*names: str) -> pa.Table:
    return pa.table({"id": list(names)})


def fan_out(stager: Stager, request: str, table: pa.Table, batch: int = 0, **more: object) -> int:
    staged = stager.put(request, batch, TARGET, table, request=request, data="d")
    return stager.commit(
        request, batch, TARGET, [staged], request=request, data=f"d-{request}", **more
    ).rows


def progress(stager: Stager, request: str) -> dict[str, object]:
    (answer,) = stager.act("call", Call("sdv_request", {"request_id": request}))
    found: dict[str, object] = answer
    return found


def test_a_vehicle_gets_what_a_batch_says(
    stager: Stager, connect: Connect, request_id: str, name: str
) -> None:
    vehicle = connect(f"vin-{name}")
    vehicle.wire.subscribe(f"agent/vin-{name}/proxy/request/#", qos=1)
    assert fan_out(stager, request_id, ids(f"vin-{name}", "vin-b"), payload=b"firmware") == 2
    packet = vehicle.wire.expect_publish(ack=True)
    assert packet.payload == b"firmware"
    assert request_id in packet.topic


def test_a_batch_is_one_trigger_however_often_it_is_committed(
    stager: Stager, request_id: str
) -> None:
    names = [f"{request_id}-{n}" for n in range(3_000)]
    assert fan_out(stager, request_id, ids(*names, *names[:100])) == 3_000, "each vehicle once"
    assert progress(stager, request_id)["pending"] == 3_000
    assert fan_out(stager, request_id, ids(*names)) == 3_000
    assert progress(stager, request_id)["pending"] == 3_000
    assert fan_out(stager, request_id, ids(*names[:10]), batch=1) == 10
    assert progress(stager, request_id)["pending"] == 3_010


def test_rows_are_those_of_a_trigger(stager: Stager, connect: Connect, request_id: str) -> None:
    fan_out(stager, request_id, ids(f"{request_id}-a"))
    platform = connect()
    body = f'{{"ids":["{request_id}-b"],"request_id":"{request_id}","data_id":"d-{request_id}"}}'
    assert platform.publish_topic("$SDV-FANOUT/trigger", body) == 0
    rows = [row for row in stager.rows(TARGET) if row["owner"].startswith(request_id)]
    assert [row["owner"][-1] for row in sorted(rows, key=lambda row: row["ts"])] == ["a", "b"]
    same = ("queue_id", "key", "content_type", "properties")
    assert [rows[0][column] for column in same] == [rows[1][column] for column in same]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["good", "bad/name"], "one of ids is 'bad/name'; allowed: a text without"),
        (["good", ""], "one of ids is ''"),
        (["good", None], "one of ids is null"),
        (["v" * 1025], "one of ids has 1025 bytes, the limit is 1024"),
    ],
)
def test_a_batch_with_what_is_no_id_leaves_nothing(
    stager: Stager, request_id: str, names: list[str], words: str
) -> None:
    with pytest.raises(arrow_flight.FlightServerError, match=words):
        fan_out(stager, request_id, pa.table({"id": names}))
    with pytest.raises(arrow_flight.FlightServerError, match="NOT_FOUND"):
        progress(stager, request_id)


def test_a_request_needs_a_name(stager: Stager, request_id: str) -> None:
    staged = stager.put(request_id, 0, TARGET, ids("a"))
    with pytest.raises(arrow_flight.FlightServerError, match="request_id is ''"):
        stager.commit(request_id, 0, TARGET, [staged], data="d")
    with pytest.raises(arrow_flight.FlightServerError, match="data_id is empty"):
        stager.commit(request_id, 0, TARGET, [staged], request=request_id)
