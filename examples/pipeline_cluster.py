"""A Spark cluster reads a queue and writes to another: one master, two workers, all out of pip.

Start a broker (`scripts/run`), then:
python examples/pipeline_cluster.py [MQTT_PORT [DATA_DIR [FLIGHT_URI]]].
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pyspark

from queuelake.apikey import read_api_key
from queuelake.client.blocking import Client
from queuelake.pipeline.java import find_java_home
from queuelake.pipeline.session import build_session

port = int(sys.argv[1]) if len(sys.argv) > 1 else 1883
data_dir = Path(sys.argv[2] if len(sys.argv) > 2 else "data")
flight = sys.argv[3] if len(sys.argv) > 3 else "grpc://127.0.0.1:18085"
home = pyspark.__path__[0]
environment = os.environ | {
    "JAVA_HOME": str(find_java_home(os.environ)),
    "SPARK_HOME": home,
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_WORKER_DIR": str((data_dir / "spark-work").resolve()),
}


def start(role: str, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """A part of the cluster, and its address when it has one."""
    process = subprocess.Popen(
        [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{role}", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stderr is not None
    for line in process.stderr:
        found = re.search(r"(?:Starting Spark master at|Successfully registered with) (\S+)", line)
        if found:
            return process, found[1]
    raise SystemExit(f"{role} did not start")


with Client("127.0.0.1", port) as client:
    numbers = client.queue("example/numbers")
    for number in range(100):
        numbers.publish(str(number), key=f"k{number % 10}")
print("100 numbers published")

local = ("--host", "127.0.0.1", "--webui-port", "0")
master, address = start("master.Master", *local, "--port", "0")
size = ("--cores", "1", "--memory", "1g")
workers = [start("worker.Worker", *local, *size, address)[0] for _ in range(2)]
print(f"a cluster of {len(workers)} workers at {address}")

broker = {"uri": flight, "token": read_api_key(data_dir)}
conf = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
}
try:
    spark = build_session("cluster example", address, conf=conf)
    numbers = (
        spark.read.format("queuelake").options(**broker, queue="$queue/example/numbers").load()
    )
    sums = numbers.groupBy("key").agg({"payload": "count"}).toDF("key", "messages")
    result = sums.selectExpr("key", "string(messages) AS payload")
    result.write.format("queuelake").options(**broker, queue="$queue/example/counts").mode(
        "append"
    ).save()
    spark.stop()
finally:
    for process in (*workers, master):
        process.terminate()
        process.wait()

with Client("127.0.0.1", port) as client:
    for number, message in enumerate(client.queue("example/counts").consume(group="g"), 1):
        print(f"{message.key}: {message.payload.decode()} messages")
        message.ack()
        if number == 10:
            break
