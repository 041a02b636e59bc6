"""A platform sends one payload to many vehicles, most of which are not there.

Start a broker (`scripts/run`), then: `.venv/bin/python examples/fanout_platform.py [PORT]`, and
after it `examples/fanout_vehicle.py`. It ends when the broker has everything on disk.
"""

import hashlib
import json
import sys

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 1883
VEHICLES = [f"VIN{number:04}" for number in range(1, 1001)]

platform = mqtt.Client(CallbackAPIVersion.VERSION2, "platform", protocol=mqtt.MQTTv5)
platform.connect("127.0.0.1", PORT)
platform.loop_start()
for number, map_update in enumerate((b"roads of spring", b"roads of summer"), 1):
    # Once for all vehicles, and once only: data which is there already is not sent again.
    data_id = hashlib.sha1(map_update).hexdigest()
    platform.publish(f"$SDV-FANOUT/data/{data_id}", map_update, qos=1).wait_for_publish(10)
    request_id = f"task_map_{number}"
    trigger = {"ids": VEHICLES, "request_id": request_id, "data_id": data_id}
    platform.publish("$SDV-FANOUT/trigger", json.dumps(trigger), qos=1).wait_for_publish(10)
    print(f"{request_id}: {len(map_update)} bytes for {len(VEHICLES)} vehicles, on disk")
platform.disconnect()
