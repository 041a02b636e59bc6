"""Durable queues beside RabbitMQ and NATS, their CPU per message as a multiple of M (see loads.py).

Everybody confirms a publish when it is on disk, and settles each delivery by itself:
queuelake with a `$ack` publish or with PUBACK, RabbitMQ (quorum queue, AMQP) with basic.ack, NATS
(JetStream, `sync_interval: always`, its MQTT 3.1.1 listener) with PUBACK. Prefetch is 10, which is
the default of queuelake; RabbitMQ sets no limit by default, so the last load does without one, too.
"""

from __future__ import annotations

import sys

from loads import ONE_TO_ONE, Load, compare

# The loads publish as fast as they may: a backlog is no reason to refuse them.
CONFIG = """
[queues.defaults]
limits.max_queue_depth = 100000000
[queues."bench-one"]
partitions = 1
[queues."bench-wide"]
partitions = 1
performance.prefetch = 1000
"""


def on_queue(queue: str, clients: int, *flags: str) -> tuple[str, ...]:
    topic = f"$queue/{queue}"
    many = ("-P", str(clients), "-S", str(clients), "--topic", topic, "--filter", topic)
    return (*many, "--pub-prop", "partition-key=k%d", "--sub-prop", "consumer-group=g", *flags)


ACK = ("--app-ack", "--ack-qos", "1")
LOADS = (
    Load("ack", "10/10, $ack", "queuelake", on_queue("bench", 10, *ACK), 100_000, 0.5),
    Load(
        "puback",
        "10/10, ack-mode=puback",
        "queuelake",
        on_queue("bench", 10, "--sub-prop", "ack-mode=puback"),
        100_000,
        0.35,
    ),
    Load(
        "ack-rabbitmq",
        "10/10, quorum queue",
        "rabbitmq",
        ("-P", "10", "-S", "10", "--prefetch", "10"),
        50_000,
    ),
    Load(
        "one",
        "1/1, 1 partition, $ack, prefetch 10",
        "queuelake",
        on_queue("bench-one", 1, *ACK),
        100_000,
        0.5,
        beats="one-rabbitmq",
    ),
    Load(
        "one-rabbitmq",
        "1/1, quorum queue, prefetch 10",
        "rabbitmq",
        ("-P", "1", "-S", "1", "--prefetch", "10"),
        50_000,
    ),
    Load(
        "one-nats",
        "1/1, JetStream, MQTT 3.1.1",
        "nats",
        ("--version", "4", *ONE_TO_ONE, "--persistent"),
        10_000,
    ),
    Load(
        "wide",
        "1/1, 1 partition, $ack, prefetch 1000",
        "queuelake",
        on_queue("bench-wide", 1, *ACK),
        100_000,
        0.5,
        beats="wide-rabbitmq",
    ),
    Load(
        "wide-rabbitmq",
        "1/1, quorum queue, no prefetch limit",
        "rabbitmq",
        ("-P", "1", "-S", "1", "--prefetch", "0"),
        50_000,
    ),
)


if __name__ == "__main__":
    sys.exit(compare("queues", __doc__, CONFIG, LOADS))
