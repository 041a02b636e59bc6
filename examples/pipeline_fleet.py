"""From zero to a chart: a fleet's telemetry as a queue, as a table, and as a report.

A notebook as a script: run it as a whole, or cell by cell in an editor which knows `# %%`. It
starts a broker of its own in a folder of its own. It takes two minutes, one of which is waiting for
the first minute of statistics.

    python examples/pipeline_fleet.py [FOLDER]
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
data_dir = folder / "data"
queuelake = [sys.executable, "-m", "queuelake.cli.main"]
services = ("listeners.mqtt", "listeners.ws", "http", "flight")
free_ports = [f"--set={name}.port=0" for name in services]
broker = subprocess.Popen(
    [*queuelake, "serve", "--data-dir", str(data_dir), *free_ports],
    stdout=subprocess.PIPE,
    text=True,
)
ready = broker.stdout.readline()
port = next(urlsplit(url).port for url in ready.split() if url.startswith("mqtt://"))
print(ready.strip())

# %% A fleet of 20 vehicles publishes, a worker consumes
dice = random.Random(1)
with Client("127.0.0.1", port) as client:
    telemetry = client.queue("telemetry")
    for minute in range(25):
        for vehicle in range(20):
            reading = {
                "vin": f"VIN{vehicle:02}",
                "minute": minute,
                "celsius": round(dice.gauss(70 + vehicle, 6), 1),
            }
            telemetry.publish(json.dumps(reading), key=reading["vin"])
    for number, message in enumerate(telemetry.consume(group="dashboard"), 1):
        if json.loads(message.payload)["celsius"] > 98:
            message.reject("too hot to be true")
        else:
            message.ack()
        if number == 500:
            break
print("500 readings published, each on disk when its PUBACK came, and worked off")

# %% Queues become tables. The statistics of a minute are there when it is over
time.sleep(65 - time.time() % 60)
subprocess.run(
    [*queuelake, "pipeline", "archive", "--once", "--data-dir", str(data_dir)], check=True
)

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
subprocess.run(
    [
        *(*queuelake, "pipeline", "report", "--data-dir", str(data_dir)),
        *("--title", "Fleet telemetry", "--out", str(report)),
    ],
    check=True,
)
print(f"open {report.resolve().as_uri()}")

# %% The end
broker.terminate()
broker.wait()
