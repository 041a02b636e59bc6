"""Every example runs as its first lines say, against a real broker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.harness.broker import BrokerProcess, package_root

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run_example(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": package_root()},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_hello_gets_what_was_published_while_it_was_away(broker: BrokerProcess) -> None:
    output = run_example("hello.py", str(broker.mqtt_port))
    assert "['20 C', '21 C', '22 C', '23 C', '24 C']" in output


def test_the_first_queue_is_worked_off_in_order(broker: BrokerProcess) -> None:
    output = run_example("first_queue.py", str(broker.mqtt_port))
    lines = [line.partition(" in partition")[0] for line in output.splitlines()[1:]]
    assert lines == ["task 0", "task 1", "task 2"]


def test_the_work_queue_retries_one_image_and_buries_another(broker: BrokerProcess) -> None:
    output = run_example("work_queue.py", str(broker.mqtt_port))
    for number in range(6):
        assert f"worked on image-{number} delivery 1" in output
    assert "worked on image-3 delivery 2" in output
    assert "dead letter: not-an-image because" in output


def test_a_request_waits_for_a_worker_and_gets_its_reply(broker: BrokerProcess) -> None:
    output = run_example("request_reply.py", str(broker.mqtt_port))
    assert "nobody serves yet: no reply" in output
    assert "anna -> welcome" in output
    assert "bert -> who are you?" in output


def test_a_message_queue_keeps_the_last_state_of_each_machine(broker: BrokerProcess) -> None:
    output = run_example("message_queue.py", str(broker.mqtt_port))
    machines = {f"example/{name}/state is running" for name in ("press", "oven", "saw")}
    assert set(output.splitlines()) == machines


def test_a_device_reads_the_last_value_of_each_key_once(broker: BrokerProcess) -> None:
    port = str(broker.mqtt_port)
    assert run_example("ecq_producer.py", port).count("wrote ") == 4
    lines = run_example("ecq_device.py", port).splitlines()
    values = [line.partition(": ")[2] for line in lines[:-1]]
    assert values == ["display/language = de", "target = 21 C", "firmware = 2.4"]
    assert run_example("ecq_device.py", port).splitlines() == ["the mailbox is read"]


def test_a_vehicle_gets_what_was_fanned_out_to_it(broker: BrokerProcess) -> None:
    port = str(broker.mqtt_port)
    assert run_example("fanout_platform.py", port).count("for 1000 vehicles, on disk") == 2
    for vin in ("VIN0001", "VIN1000"):
        assert run_example("fanout_vehicle.py", port, vin).splitlines() == [
            f"{vin} does task_map_1: roads of spring",
            f"{vin} does task_map_2: roads of summer",
            f"{vin} is up to date",
        ]
    assert run_example("fanout_vehicle.py", port) == "VIN0001 is up to date\n"
