"""Two workers share what a plant publishes; the plant knows nothing of them.

Start a broker (`scripts/run`), then: `.venv/bin/python examples/message_queue.py [PORT]`.
"""

import sys
from queue import Queue

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 1883
MACHINES = ("press", "oven", "saw")


def connected(name: str) -> mqtt.Client:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, name, protocol=mqtt.MQTTv5)
    client.connect("127.0.0.1", PORT)
    client.loop_start()
    return client


def worker(name: str, values: "Queue[tuple[str, str, str]]") -> mqtt.Client:
    """Its PUBACK, which paho sends by itself, takes the message out of the queue."""
    client = connected(name)
    subscribed: Queue[bool] = Queue()
    client.on_subscribe = lambda *_: subscribed.put(True)
    client.on_message = lambda _client, _data, message: values.put(
        (name, message.topic, message.payload.decode())
    )
    # The queue is made by the first who subscribes: the last value of each publisher is kept.
    client.subscribe("$q/example/+/state", qos=1)
    subscribed.get(timeout=10)
    return client


values: "Queue[tuple[str, str, str]]" = Queue()
worker("example-setup", values).disconnect()

for machine in MACHINES:  # nobody is there now
    plant = connected(machine)
    for state in ("starting", "running"):
        plant.publish(f"example/{machine}/state", state, qos=1).wait_for_publish(10)
    plant.disconnect()

workers = [worker("example-worker-1", values), worker("example-worker-2", values)]
for _ in MACHINES:
    name, topic, state = values.get(timeout=10)
    print(f"{topic} is {state}")
for one in workers:
    one.disconnect()
