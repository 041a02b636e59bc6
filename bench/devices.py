"""Device mailboxes and vehicle fan-out: a million of each, all offline, and what a write costs.

M is what mosquitto spends on one message, 1->1, QoS 1, 256 B, in the same run. CPU is that of the
whole process tree. After the million mailboxes and the million pending rows the broker is killed
with SIGKILL and started again on the same data; then one device and one vehicle come online, and
then a thousand of each. At last others are served while triggers are stored, and while all that was
stored is collected as garbage (`bystanders.py`).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from queue import Queue

import paho.mqtt.client as mqtt
from bystanders import Again, Rounds
from figures import Figure, LoadError, disk_bytes, seconds, show, status_mb
from last_values import load
from loads import ONE_TO_ONE
from online import deliveries, dispatch
from paho.mqtt.enums import CallbackAPIVersion
from peers import Running, find_peers, in_own_folder, open_queuelake, read_ports
from rest import ask
from usage import cpu_s

READY_S_TARGET, RSS_MB_TARGET, FIRST_MS_TARGET = 2.0, 150.0, 50.0
WRITE_TARGET, ROW_TARGET = 1.0, 0.3
OWNERS, KEYS = 10_000, 100
IDS = 100_000  # of one trigger
WRITES = ("-P", "10", "-S", "0", "--size", "256", "--qos", "1")
DATA = b"x" * 256


def measure(folder: Path, count: int) -> Iterator[Figure]:
    m = yardstick_us()
    yield Figure("M: mosquitto, 1->1, QoS 1", m, "us/msg")
    with open_queuelake(folder) as process:
        running = Running(read_ports(process, folder)["mqtt"], process.pid)
        yield from writes(running, m)
        report = load(running, *WRITES, "--topic", "$ECQ/w/car-%d-%n/key", "--count", str(count))
        yield Figure(f"{count:,} mailboxes: write", report["broker"]["us_per_msg"], "us")
        row_us = trigger(running, count)
        yield Figure(f"{count:,} pending rows, {IDS:,} in a trigger: row", row_us, "us")
        yield Figure("the same, in M", row_us / m, "M", ROW_TARGET)
        yield Figure("filled: RSS of the broker", status_mb(process.pid, "VmRSS"), "MB")
        yield Figure("of that not mapped from files", status_mb(process.pid, "RssAnon"), "MB")
        yield Figure("disk", disk_bytes(folder / "data") / 1e6, "MB")
        process.kill()
        process.wait()
    start_s = time.monotonic()
    with open_queuelake(folder) as process:
        ports = read_ports(process, folder)
        yield Figure("exec to ready, after kill -9", seconds(start_s), "s", READY_S_TARGET)
        rss = status_mb(process.pid, "VmRSS")
        yield Figure("restarted: RSS of the broker", rss, "MB", RSS_MB_TARGET)
        yield from first_deliveries(ports["mqtt"])
        key = (folder / "data" / "api-key").read_text().strip()
        running = Running(ports["mqtt"], process.pid, ports["http"], key)
        yield from deliveries(running, m)
        platform = online(running.port, "platform", None)
        yield from dispatch(running, platform, m)
        yield from beside_others(running, platform)
        platform.disconnect()


def writes(running: Running, m: float) -> Iterator[Figure]:
    """Each key for the first time, and then again, when something has to be replaced."""
    topic = ("--topic", "$ECQ/w/car-%x/key-%d-%l", "--keys", str(OWNERS))
    for what, count in (("first", KEYS * OWNERS), ("new", KEYS * OWNERS // 4)):
        report = load(running, *WRITES, *topic, "--count", str(count))
        write_us = float(report["broker"]["us_per_msg"])
        title = f"{what} value of one of {KEYS} keys of {OWNERS:,} mailboxes"
        yield Figure(title, write_us, "us")
        yield Figure("the same, in M", write_us / m, "M", WRITE_TARGET)


def first_deliveries(port: int) -> Iterator[Figure]:
    device = "car-3-7"
    first = first_delivery_ms(port, device, f"$ECQ/{device}/#")
    yield Figure("first message to a device which comes online", first, "ms", FIRST_MS_TARGET)
    vehicle = "VIN0000000007"
    first = first_delivery_ms(port, vehicle, f"agent/{vehicle}/proxy/request/+")
    yield Figure("first message to a vehicle which comes online", first, "ms", FIRST_MS_TARGET)


def beside_others(running: Running, platform: mqtt.Client) -> Iterator[Figure]:
    rounds = Rounds(running)
    yield from rounds.before()
    payload = trigger_payload(0, IDS)
    with Again(lambda: publish_trigger(platform, payload)) as triggers:
        yield from rounds.meanwhile(f"triggers of {IDS:,} ids", triggers.is_going_on)
    for family, what in (("ecq", "mailbox entries"), ("sdv", "pending rows")):
        ask(running, "PUT", f"/{family}/config", {"data_retention": "1s"})
        begin_collection(running, family)
        yield from rounds.meanwhile(
            f"collection of {what}", partial(is_collecting, running, family)
        )


def begin_collection(running: Running, family: str) -> bool:
    return bool(ask(running, "POST", f"/{family}/gc")["started"])


def is_collecting(running: Running, family: str) -> bool:
    return not begin_collection(running, family)


def yardstick_us() -> float:
    starter = find_peers()["mosquitto"]
    if starter is None:
        raise LoadError("mosquitto is not installed here: there is no M")
    with in_own_folder(starter) as running:
        return float(load(running, *ONE_TO_ONE, "--count", "200000")["broker"]["us_per_msg"])


def trigger(running: Running, count: int) -> float:
    """As many rows, by triggers of IDS ids; CPU of a row until it is durable."""
    client = online(running.port, "platform", None)
    client.publish("$SDV-FANOUT/data/bench", DATA, qos=1).wait_for_publish(60)
    before_s = cpu_s(running.pid)
    for start in range(0, count, IDS):
        publish_trigger(client, trigger_payload(start, min(start + IDS, count)))
    used_s = cpu_s(running.pid) - before_s
    client.disconnect()
    return used_s * 1e6 / count


def trigger_payload(first: int, end: int) -> bytes:
    ids = [f"VIN{number:010}" for number in range(first, end)]
    return json.dumps({"ids": ids, "request_id": "task_bench_1", "data_id": "bench"}).encode()


def publish_trigger(platform: mqtt.Client, payload: bytes) -> None:
    """Returns when all rows are durable."""
    platform.publish("$SDV-FANOUT/trigger", payload, qos=1).wait_for_publish(120)


def first_delivery_ms(port: int, client_id: str, topic_filter: str) -> float:
    """From SUBSCRIBE to the first message."""
    messages: Queue[float] = Queue()
    client = online(port, client_id, lambda *_: messages.put(time.monotonic()))
    start_s = time.monotonic()
    client.subscribe(topic_filter, 1)
    came_s = messages.get(timeout=30)
    client.disconnect()
    return (came_s - start_s) * 1000


def online(port: int, client_id: str, on_message: Callable[..., None] | None) -> mqtt.Client:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id, protocol=mqtt.MQTTv5)
    connected: Queue[bool] = Queue()
    client.on_connect = lambda *_: connected.put(True)
    client.on_message = on_message
    client.connect("127.0.0.1", port)
    client.loop_start()
    connected.get(timeout=30)
    return client


if __name__ == "__main__":
    sys.exit(show("devices", __doc__, "devices", measure))
