"""A first look: a sensor publishes while a dashboard is away, and nothing is lost.

Start a broker (`scripts/run`), then: `.venv/bin/python examples/hello.py [PORT]`.
"""

import sys
from queue import Queue

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 1883


def dashboard(received: "Queue[str]") -> mqtt.Client:
    """A client whose session is kept for an hour, connected or not."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, "dashboard", protocol=mqtt.MQTTv5)
    client.on_message = lambda _client, _data, message: received.put(message.payload.decode())
    ready: Queue[bool] = Queue()
    client.on_connect = lambda *_: client.subscribe("plant/+/temperature", qos=1)
    client.on_subscribe = lambda *_: ready.put(True)
    keep = Properties(PacketTypes.CONNECT)
    keep.SessionExpiryInterval = 3600
    client.connect("127.0.0.1", PORT, clean_start=False, properties=keep)
    client.loop_start()
    ready.get(timeout=10)
    return client


def leave(client: mqtt.Client) -> None:
    client.disconnect()
    client.loop_stop()


received: "Queue[str]" = Queue()
leave(dashboard(received))

sensor = mqtt.Client(CallbackAPIVersion.VERSION2, "sensor", protocol=mqtt.MQTTv5)
sensor.connect("127.0.0.1", PORT)
sensor.loop_start()
for degrees in range(20, 25):
    sensor.publish("plant/7/temperature", f"{degrees} C", qos=1).wait_for_publish(10)
leave(sensor)
print("published 5 messages, each one on disk when its PUBACK came")

back = dashboard(received)
print("the dashboard is back and gets", [received.get(timeout=10) for _ in range(5)])
leave(back)
