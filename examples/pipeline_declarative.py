"""Queues in Spark Declarative Pipelines: tables which say what they are, Spark finds out how.

Start a broker (`scripts/run`), then:
python examples/pipeline_declarative.py [MQTT_PORT [DATA_DIR [FLIGHT_URI]]].
The pipeline is in examples/pipeline/declarative/; run this in the folder above examples/.
"""

import json
import os
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

with Client("127.0.0.1", port) as client:
    readings = client.queue("example/declared")
    for vin, celsius in [("VIN1", 70.5), ("VIN2", 93.1), ("VIN1", 101.9)]:
        readings.publish(json.dumps({"vin": vin, "celsius": celsius}), key=vin)
    print("3 readings published")

# A project keeps its tables and its progress where its storage is: a folder beside the broker.
project = (data_dir / "declarative").resolve()
project.mkdir(parents=True, exist_ok=True)
example = Path("examples/pipeline/declarative").resolve()
spec = (example / "spark-pipeline.yml").read_text()
spec = spec.replace("transformations/**", f"{example}/transformations/**")
(project / "spark-pipeline.yml").write_text(f"{spec}storage: {(project / 'storage').as_uri()}\n")

environment = os.environ | {
    "JAVA_HOME": str(find_java_home(os.environ)),
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_HOME": pyspark.__path__[0],
    "QUEUELAKE_FLIGHT_URI": flight,
    "QUEUELAKE_TOKEN": read_api_key(data_dir),
}
subprocess.run(
    [f"{pyspark.__path__[0]}/bin/spark-pipelines", "run"],
    cwd=project,
    env=environment,
    check=True,
)

spark = build_session("declared")
tables = spark.read.parquet(str(project / "spark-warehouse" / "hottest"))
for row in tables.orderBy("vin").collect():
    print(f"{row.vin}: {row.celsius} C at most")
spark.stop()
