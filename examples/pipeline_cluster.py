"""A Spark cluster reads a queue and writes to another: one master, two workers, all out of pip.

Start a broker (`scripts/run`), then:
python examples/pipeline_cluster.py [MQTT_PORT [DATA_DIR [FLIGHT_URI]]].
"""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pyspark

from queuelake.apikey import read_api_key
from queuelake.client.blocking import Client
from queuelake.pipeline.java import find_java_home
from queuelake.pipeline.session import build_session

port = int(sys.argv[1]) if len(sys.argv) > 1 else 1883
data_dir = Path(sys.argv[2] if len(sys.argv) > 2 else "data")
flight = sys.argv[3] if len(sys.argv) > 3 else "flight://127.0.0.1:18085"
home = pyspark.__path__[0]
environment = os.environ | {
    "JAVA_HOME": str(find_java_home(os.environ)),
    "SPARK_HOME": home,
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_WORKER_DIR": str((data_dir / "spark-work").resolve()),
    "PYSPARK_PYTHON": sys.executable,
}
cluster: list[subprocess.Popen[str]] = []


def start(role: str, *arguments: str, until: str) -> str:
    """Start a part of the cluster, and wait for words in its log."""
    command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{role}", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    cluster.append(process)
    for line in process.stderr:
        if found := re.search(rf"{until} (\S+)", line):
            threading.Thread(target=process.stderr.read, daemon=True).start()  # its log goes on
            return found[1]
    raise SystemExit(f"{role} did not start")


with Client("127.0.0.1", port) as client:
    numbers = client.queue("example/numbers")
    for number in range(100):
        numbers.publish(str(number), key=f"k{number % 10}")
print("100 numbers published")

try:
    here = ("--host", "127.0.0.1", "--webui-port", "0")
    size = ("--cores", "1", "--memory", "1g")
    master = start("master.Master", *here, "--port", "0", until="Starting Spark master at")
    for _ in range(2):
        start("worker.Worker", *here, *size, master, until="Successfully registered with master")
    print(f"a cluster of 2 workers at {master}")

    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = build_session("cluster example", master, conf=conf)
    broker = {"uri": flight, "token": read_api_key(data_dir)}
    rows = spark.read.format("queuelake").options(**broker, queue="$queue/example/numbers").load()
    counts = rows.groupBy("key").count().selectExpr("key", "string(count) AS payload")
    target = counts.write.format("queuelake").options(**broker, queue="$queue/example/counts")
    target.mode("append").save()
    spark.stop()
finally:
    for process in reversed(cluster):
        process.terminate()
        process.wait()

with Client("127.0.0.1", port) as client:
    for number, message in enumerate(client.queue("example/counts").consume(group="g"), 1):
        print(f"{message.key}: {message.payload.decode()} messages")
        message.ack()
        if number == 10:
            break
