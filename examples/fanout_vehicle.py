"""A vehicle gets what was fanned out to it: one message at a time, the next after its PUBACK.

Start a broker (`scripts/run`), run `examples/fanout_platform.py`, then:
`.venv/bin/python examples/fanout_vehicle.py [PORT] [VIN]`. It ends when nothing comes for a second.
"""

import sys
from queue import Empty, Queue

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 1883
VIN = sys.argv[2] if len(sys.argv) > 2 else "VIN0001"  # the client id is the vehicle

received: "Queue[mqtt.MQTTMessage]" = Queue()
vehicle = mqtt.Client(CallbackAPIVersion.VERSION2, VIN, protocol=mqtt.MQTTv5, manual_ack=True)
vehicle.on_message = lambda _client, _data, message: received.put(message)
vehicle.on_connect = lambda *_: vehicle.subscribe(f"agent/{VIN}/proxy/request/+", qos=1)
vehicle.connect("127.0.0.1", PORT)
vehicle.loop_start()
try:
    while True:
        message = received.get(timeout=1)
        request_id = message.topic.rpartition("/")[2]
        print(f"{VIN} does {request_id}: {message.payload.decode()}")
        vehicle.ack(message.mid, message.qos)  # done: only now the next one comes
except Empty:
    print(f"{VIN} is up to date")
vehicle.disconnect()
