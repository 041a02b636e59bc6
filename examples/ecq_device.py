"""A device reads its mailbox: the last value of each key, and each of them once.

Start a broker (`scripts/run`), run `examples/ecq_producer.py`, then:
`.venv/bin/python examples/ecq_device.py [PORT]`. It ends when nothing comes for a second.
"""

import sys
from queue import Empty, Queue

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 1883
DEVICE = "thermostat-7"  # the client id is the name of the mailbox

received: "Queue[mqtt.MQTTMessage]" = Queue()
device = mqtt.Client(CallbackAPIVersion.VERSION2, DEVICE, protocol=mqtt.MQTTv5)
device.on_message = lambda _client, _data, message: received.put(message)
# At QoS 1, with exactly this filter. paho sends the PUBACK, which moves the position forward.
device.on_connect = lambda *_: device.subscribe(f"$ECQ/{DEVICE}/#", qos=1)
device.connect("127.0.0.1", PORT)
device.loop_start()
try:
    while True:
        message = received.get(timeout=1)
        key = message.topic.removeprefix(f"$ECQ/{DEVICE}/")
        seqno = dict(message.properties.UserProperty)["ecq-seqno"]
        print(f"{seqno}: {key} = {message.payload.decode()}")
except Empty:
    print("the mailbox is read")
device.disconnect()
