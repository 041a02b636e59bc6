"""A backend writes settings into the mailbox of a device, whether it is there or not.

Start a broker (`scripts/run`), then: `.venv/bin/python examples/ecq_producer.py [PORT]`, and after
it, as often as you like, `examples/ecq_device.py`.
"""

import sys

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 1883
DEVICE = "thermostat-7"
WRITES = [("target", "19 C"), ("display/language", "de"), ("target", "21 C"), ("firmware", "2.4")]

backend = mqtt.Client(CallbackAPIVersion.VERSION2, "backend", protocol=mqtt.MQTTv5)
backend.connect("127.0.0.1", PORT)
backend.loop_start()
for key, value in WRITES:
    # Acknowledged means on disk. A second value of a key takes the place of the first.
    backend.publish(f"$ECQ/w/{DEVICE}/{key}", value, qos=1).wait_for_publish(10)
    print(f"wrote {key} = {value}")
backend.disconnect()
