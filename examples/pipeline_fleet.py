"""From zero to a chart: a fleet's telemetry as a queue, as a table, and as a report.

A notebook as a script: run it as a whole, or cell by cell in an editor which knows `# %%`. It
starts a broker of its own in a folder of its own. At once, or spread over some minutes, which makes
longer charts:

    python examples/pipeline_fleet.py [FOLDER [MINUTES]]
"""

# %% A broker, with everything in one folder
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from queuelake.client.blocking import Client
from queuelake.pipeline.lake.lake import Lake
from queuelake.pipeline.session import build_session

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "fleet-example")
minutes = float(sys.argv[2]) if len(sys.argv) > 2 else 0
data_dir = folder / "data"
queuelake = [sys.executable, "-m", "queuelake.cli.main"]


def start_broker() -> tuple[subprocess.Popen[str], int]:
    """The broker, and where it listens for MQTT."""
    services = ("listeners.mqtt", "listeners.ws", "http", "flight")
    free_ports = [f"--set={name}.port=0" for name in services]
    command = [*queuelake, "serve", "--data-dir", str(data_dir), *free_ports]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    ready = process.stdout.readline()
    print(ready.strip())
    return process, next(urlsplit(u).port for u in ready.split() if u.startswith("mqtt://"))


broker, port = start_broker()

# %% 20 vehicles publish 25 readings each; a worker takes them, but for a break in the middle
VEHICLES, ROUNDS, BREAK = 20, 25, range(10, 15)
dice = random.Random(1)
with Client("127.0.0.1", port) as client:
    telemetry = client.queue("telemetry")
    telemetry.configure({"archive": True})  # deletes nothing which the lake does not have
    waiting = 0
    for number in range(ROUNDS):
        for vehicle in range(VEHICLES):
            reading = {"vin": f"VIN{vehicle:02}", "celsius": round(dice.gauss(70 + vehicle, 6), 1)}
            telemetry.publish(json.dumps(reading), key=reading["vin"])
        waiting += VEHICLES
        if number not in BREAK:
            for message in telemetry.consume(group="dashboard"):
                if json.loads(message.payload)["celsius"] < 98:
                    message.ack()
                elif message.delivery_count == 1:
                    message.nack()  # it comes again
                    continue
                else:
                    message.reject("too hot to be true")
                waiting -= 1
                if not waiting:
                    break
        time.sleep(minutes * 60 / ROUNDS)
print(f"{VEHICLES * ROUNDS} readings were published, each on disk when its PUBACK came")

# %% The broker starts again: nothing is lost, and the statistics of its last minute are there
broker.terminate()
broker.wait()
broker, port = start_broker()

# %% Queues become tables
archive = ["pipeline", "archive", "--once", "--data-dir", str(data_dir)]
subprocess.run([*queuelake, *archive], check=True)

# %% SQL over the lake
spark = build_session("fleet", conf={"spark.sql.shuffle.partitions": "2"})
lake = Lake(str(data_dir / "lake"))
lake.read(spark, "messages").createOrReplaceTempView("messages")
hottest = spark.sql("""
    SELECT reading.vin, count(*) AS readings, round(avg(reading.celsius), 1) AS celsius
    FROM (
        SELECT from_json(string(payload), 'vin STRING, celsius DOUBLE') AS reading
        FROM messages WHERE queue = '$queue/telemetry'
    )
    GROUP BY reading.vin ORDER BY celsius DESC LIMIT 3
""")
hottest.show()
spark.stop()

# %% A page for the boss
report = folder / "report.html"
page = ["--title", "Fleet telemetry", "--out", str(report)]
subprocess.run([*queuelake, "pipeline", "report", *page, "--data-dir", str(data_dir)], check=True)
print(f"open {report.resolve().as_uri()}")

# %% The end
broker.terminate()
broker.wait()
