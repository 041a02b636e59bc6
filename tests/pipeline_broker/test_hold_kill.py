"""Acceptance 8 on a real broker, which is killed: what was settled is there for the archive."""

from __future__ import annotations

import contextlib

import pytest

from queuelake import control_client
from queuelake import control_pipeline as ops
from queuelake.storage import api, lmdb_store
from queuelake.storage.chunk import decode_chunk
from tests.api.live import wait_until
from tests.conftest import BrokerFactory
from tests.crash.ports import free_port
from tests.harness.broker import BrokerProcess
from tests.queues.client import QueueClient

CONFIG = """
[queues."held"]
archive = true
partitions = 1
"""
ROUNDS = 3
MESSAGES = 60


def connect(broker: BrokerProcess, name: str) -> QueueClient:
    client = QueueClient(broker.client(), name)
    client.wire.connect(name)
    return client


def stored(broker: BrokerProcess) -> list[bytes]:
    with lmdb_store.read_only(broker.data_dir) as view:
        values = view.scan(api.CHUNKS, b"", b"\xff" * 32)
        return [record.payload for _, value in values for record in decode_chunk(value)]


@pytest.mark.rule("acceptance 8")
@pytest.mark.timeout(180)
def test_what_was_settled_before_a_kill_is_there_for_the_archive(
    fresh_broker: BrokerFactory,
) -> None:
    settings = {"listeners.mqtt.port": free_port(), "http.enabled": False}
    broker = fresh_broker(settings, config=CONFIG)
    accepted: list[bytes] = []
    for round_number in range(ROUNDS):
        producer, worker = connect(broker, "producer"), connect(broker, "worker")
        assert worker.subscribe("held", group="g") < 0x80
        for number in range(MESSAGES):
            payload = f"{round_number}:{number}"
            assert producer.publish("held", payload) == 0
            accepted.append(payload.encode())
        worker.receive_and_ack(MESSAGES)
        broker.kill()
        assert stored(broker) == accepted
        with contextlib.suppress(OSError):
            producer.wire.close()
            worker.wire.close()
        broker.start()
    wait_until(lambda: lag(broker)["held_bytes"] > 0)
    mark = [lag(broker)["queues"][0]["queue_id"], 0, len(accepted)]
    args = {"table": "messages", "lake": "delta-1", "marks": [mark], "adopt": False}
    control_client.call(broker.data_dir, ops.LAKE_ARCHIVED, args, 10.0)
    broker.kill()
    broker.start()
    wait_until(lambda: not stored(broker))
    assert lag(broker)["queues"] == [] or lag(broker)["queues"][0]["behind"] == 0


def lag(broker: BrokerProcess) -> dict[str, object]:
    return control_client.call(broker.data_dir, ops.ARCHIVE_LAG, {}, 10.0)  # type: ignore[return-value]
