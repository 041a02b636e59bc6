"""A pipeline of your own: from a queue, through SQL, to another queue.

Start a broker (`scripts/run`), then: python examples/pipeline_alerts.py [MQTT_PORT [DATA_DIR]].
The pipeline is in examples/pipeline/alerts.toml; run this in the folder above examples/.
"""

import json
import subprocess
import sys

from queuelake.client.blocking import Client

port = int(sys.argv[1]) if len(sys.argv) > 1 else 1883
data_dir = sys.argv[2] if len(sys.argv) > 2 else "data"

with Client("127.0.0.1", port) as client:
    readings = client.queue("example/readings")
    for vin, celsius in [("VIN1", 70.5), ("VIN2", 93.1), ("VIN3", 101.9), ("VIN9", 99.0)]:
        readings.publish(json.dumps({"vin": vin, "celsius": celsius}), key=vin)
    print("4 readings published")

    command = [sys.executable, "-m", "queuelake.cli.main", "pipeline", "run"]
    subprocess.run([*command, "examples/pipeline/alerts.toml", "--data-dir", data_dir], check=True)

    alerts = client.queue("example/alerts").consume(group="watch")
    for number, message in enumerate(alerts, 1):
        alert = json.loads(message.payload)
        owner = alert.get("owner", "nobody")
        print(f"alert: {alert['vin']} has {alert['celsius']} C, call {owner}")
        message.ack()
        if number == 3:
            break
