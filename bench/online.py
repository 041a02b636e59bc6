"""Owners of mailboxes and vehicles which are online: what it costs to send them what is theirs."""

from __future__ import annotations

import contextlib
import json
import struct
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import paho.mqtt.client as mqtt
from figures import Figure, LoadError
from last_values import load
from peers import Running
from reports import GENERATORS
from rest import ask
from usage import cpu_s

DELIVERY_TARGET, DISPATCH_TARGET = 0.6, 1.2  # in M
OWNERS = 1_000
WRITES = 200_000
VEHICLES = 1_000
TRIGGERS = 50
SIZE = 256
WAIT_S_MAX = 120.0
# What the load generator finds in the payloads it counts: magic, run, publisher, number, time.
HEAD = struct.Struct("<IIIQQ")
MAGIC = 0x4D4C4F44


def deliveries(running: Running, m: float) -> Iterator[Figure]:
    """Writes to mailboxes whose owners are online cost more than others: that is the delivery."""
    writes = ("-P", "10", "--size", str(SIZE), "--qos", "1", "--count", str(WRITES))
    topic = ("--prefix", "owner", "--keys", str(OWNERS), "--topic")
    absent = load(running, *writes, "-S", "0", *topic, "$ECQ/w/absent-%k/%d-%n")
    owners = ("-S", str(OWNERS), "--filter", "$ECQ/owner-s%d/#", "--groups", "1")
    present = load(running, *writes, *owners, *topic, "$ECQ/w/owner-s%k/%d-%n")
    written_us = float(absent["broker"]["us_per_msg"])
    both_us = float(present["broker"]["us_per_msg"])
    yield Figure(f"write to one of {OWNERS:,} mailboxes, owners offline", written_us, "us")
    yield Figure("write and delivery, owners online", both_us, "us")
    yield Figure("delivery, in M", (both_us - written_us) / m, "M", DELIVERY_TARGET)


def dispatch(running: Running, platform: mqtt.Client, m: float) -> Iterator[Figure]:
    """Triggers which all name the vehicles online, from publish to the last acknowledgement."""
    with fleet(running) as vehicles:
        trigger(platform, 0)
        wait_for(running, 0)  # they are all subscribed then
        before_s = cpu_s(running.pid)
        for number in range(1, TRIGGERS + 1):
            trigger(platform, number)
        vehicles.wait(WAIT_S_MAX)  # they leave when they have everything
        used_us = (cpu_s(running.pid) - before_s) * 1e6 / (TRIGGERS * VEHICLES)
    wait_for(running, TRIGGERS)
    yield Figure(f"dispatch to {VEHICLES:,} vehicles online, trigger and PUBACK", used_us, "us")
    yield Figure("the same, in M", used_us / m, "M", DISPATCH_TARGET)


@contextlib.contextmanager
def fleet(running: Running) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(GENERATORS / "mqttload"), "--port", str(running.port), "--prefix", "vehicle"]
    command += ["-P", "0", "-S", str(VEHICLES), "--groups", str(VEHICLES), "--drain-only"]
    command += ["--filter", "agent/vehicle-s%d/proxy/request/+", "--qos", "1"]
    command += ["--count", str(TRIGGERS + 1), "--drain-timeout", str(WAIT_S_MAX)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def trigger(platform: mqtt.Client, number: int) -> None:
    payload = HEAD.pack(MAGIC, 0, 0, number, time.monotonic_ns()).ljust(SIZE, b"x")
    platform.publish(f"$SDV-FANOUT/data/online-{number}", payload, qos=1)
    ids = [f"vehicle-s{vehicle}" for vehicle in range(VEHICLES)]
    body = {"ids": ids, "request_id": request_id(number), "data_id": f"online-{number}"}
    platform.publish("$SDV-FANOUT/trigger", json.dumps(body), qos=1).wait_for_publish(WAIT_S_MAX)


def wait_for(running: Running, number: int) -> None:
    """Until a request is acknowledged by all."""
    end_s = time.monotonic() + WAIT_S_MAX
    answer: dict[str, Any] = {}
    while time.monotonic() < end_s:
        answer = ask(running, "GET", f"/sdv/requests/{request_id(number)}")
        if answer["acked"] == VEHICLES:
            return
        time.sleep(0.1)
    raise LoadError(f"after {WAIT_S_MAX:g} s request {number} is {answer}")


def request_id(number: int) -> str:
    return f"task_online_{number}"
