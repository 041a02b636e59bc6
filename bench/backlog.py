"""A queue with a million messages of 1 KiB waiting: memory, disk, restart after a crash, drain.

The queue is filled with nobody there, the broker is killed with SIGKILL and started again on the
same data, one consumer waits for its first message, then ten drain the queue. Memory is the
resident set, of the broker's own process and of its whole tree; pages of the store which are mapped
and resident count, so the part which is not mapped from a file is shown, too.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from figures import Figure, LoadError, disk_bytes, seconds, show, status_mb
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from peers import Running, open_queuelake, read_ready
from reports import run_generator

SIZE = 1024
PUBLISHERS = 4
CONSUMERS = 10
KEYS = 1000
GROUP = "g"
TOPIC = "$queue/backlog"
CONFIG = "[queues.defaults]\nlimits.max_queue_depth = 100000000\n"
FILL_S_MAX = 1800.0
FIRST_S_MAX = 60.0
READY_S_TARGET, RSS_MB_TARGET, DISK_TARGET = 2.0, 150.0, 1.15
ON_QUEUE = ("-P", str(PUBLISHERS), "--topic", TOPIC, "--filter", TOPIC)


def measure(folder: Path, count: int) -> Iterator[Figure]:
    data = folder / "data"
    with open_queuelake(folder, CONFIG) as process:
        running = Running(read_ready(process, folder), process.pid)
        yield from fill(running, count)
        yield from memory(process.pid, "filled")
        yield Figure("disk / payload", disk_bytes(data) / (count * SIZE), "x", DISK_TARGET)
        process.kill()
        process.wait()
    start_s = time.monotonic()
    with open_queuelake(folder, CONFIG) as process:
        running = Running(read_ready(process, folder), process.pid)
        yield Figure("exec to ready, after kill -9", seconds(start_s), "s", READY_S_TARGET)
        wait_for_first_message(running.port)
        yield Figure("exec to first delivery", seconds(start_s), "s")
        yield from memory(process.pid, "restarted")
        yield from drain(running, count)
        yield from memory(process.pid, "drained")
        yield Figure("disk, drained", disk_bytes(data) / 1e6, "MB")


def fill(running: Running, count: int) -> Iterator[Figure]:
    keys = ("--keys", str(KEYS), "--pub-prop", "partition-key=k%k")
    report = load(running, ["-S", "0", "--size", str(SIZE), "--count", str(count), *keys])
    yield Figure("fill", report["published_per_s"], "msg/s")
    yield Figure("fill, CPU", report["broker"]["us_per_msg"], "us/msg")


def drain(running: Running, count: int) -> Iterator[Figure]:
    consumers = ["--drain-only", "-S", str(CONSUMERS), "--count", str(count)]
    settle = ["--sub-prop", f"consumer-group={GROUP}", "--app-ack", "--ack-qos", "1"]
    report = load(running, [*consumers, *settle])
    yield Figure("drain", report["delivered_per_s"], "msg/s")
    yield Figure("drain, CPU", report["broker_drain"]["us_per_msg"], "us/msg")
    yield Figure("drain, peak RSS of the tree", report["broker_drain"]["rss_peak_mb"], "MB")


def load(running: Running, flags: list[str]) -> dict[str, Any]:
    report, problem = run_generator("mqttload", running, [*ON_QUEUE, *flags], FILL_S_MAX)
    if problem:
        raise LoadError(problem)
    return report


def wait_for_first_message(port: int) -> None:
    """Join the group, see one message, and leave without settling anything."""
    arrived: queue.SimpleQueue[int] = queue.SimpleQueue()
    consumer = paho.Client(CallbackAPIVersion.VERSION2, "first", protocol=paho.MQTTv5)
    consumer.on_message = lambda client, data, message: arrived.put(message.mid)
    group = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
    group.UserProperty = ("consumer-group", GROUP)
    consumer.on_connect = lambda client, *rest: client.subscribe(TOPIC, 1, properties=group)
    consumer.connect("127.0.0.1", port)
    consumer.loop_start()
    try:
        arrived.get(timeout=FIRST_S_MAX)
    except queue.Empty:
        raise LoadError(f"no message {FIRST_S_MAX:g} s after the restart") from None
    finally:
        consumer.disconnect()
        consumer.loop_stop()


def memory(pid: int, when: str) -> Iterator[Figure]:
    tree = [pid, *descendants(pid)]
    target = None if when == "drained" else RSS_MB_TARGET
    yield Figure(f"{when}: RSS of the broker process", status_mb(pid, "VmRSS"), "MB", target)
    yield Figure(f"{when}: of that not mapped from files", status_mb(pid, "RssAnon"), "MB")
    yield Figure(f"{when}: RSS of the tree", sum(status_mb(p, "VmRSS") for p in tree), "MB")


def descendants(pid: int) -> list[int]:
    command = ["ps", "-o", "pid=", "--ppid", str(pid)]
    listing = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    children = [int(word) for word in listing.split()]
    return [*children, *(below for child in children for below in descendants(child))]


if __name__ == "__main__":
    sys.exit(show("backlog", __doc__, "messages", measure))
