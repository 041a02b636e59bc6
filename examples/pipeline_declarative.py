"""Queues in Spark Declarative Pipelines: tables which say what they are, Spark finds out how.

Start a broker (`scripts/run`), then:
python examples/pipeline_declarative.py [MQTT_PORT [DATA_DIR [FLIGHT_URI]]].
The pipeline is in examples/pipeline/declarative/; run this in the folder above examples/.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
from pyarrow import parquet

from queuelake.apikey import read_api_key
from queuelake.client.blocking import Client
from queuelake.pipeline.java import find_java_home

port = int(sys.argv[1]) if len(sys.argv) > 1 else 1883
data_dir = Path(sys.argv[2] if len(sys.argv) > 2 else "data")
flight = sys.argv[3] if len(sys.argv) > 3 else "flight://127.0.0.1:18085"

with Client("127.0.0.1", port) as client:
    readings = client.queue("example/declared")
    for vin, celsius in [("VIN1", 70.5), ("VIN2", 93.1), ("VIN1", 101.9)]:
        readings.publish(json.dumps({"vin": vin, "celsius": celsius}), key=vin)
    print("3 readings published")

# A project keeps its tables and its progress in a folder, this one beside the data of the broker.
project = (data_dir / "declarative").resolve()
shutil.copytree("examples/pipeline/declarative", project, dirs_exist_ok=True)
with (project / "spark-pipeline.yml").open("a") as spec:
    spec.write(f"storage: {(project / 'storage').as_uri()}\n")

environment = os.environ | {
    "JAVA_HOME": str(find_java_home(os.environ)),
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_HOME": pyspark.__path__[0],
    "SPARK_LOCAL_IP": "127.0.0.1",
    "QUEUELAKE_FLIGHT_URI": flight,
    "QUEUELAKE_TOKEN": read_api_key(data_dir),
}
# A catalog which the next run finds again: each run takes what is new in the queue.
conf = ["--conf", "spark.sql.catalogImplementation=hive"]
command = [f"{pyspark.__path__[0]}/bin/spark-pipelines", "run", *conf]
subprocess.run(command, cwd=project, env=environment, check=True)

hottest = parquet.read_table(project / "spark-warehouse" / "hottest")
for row in hottest.sort_by("vin").to_pylist():
    print(f"{row['vin']}: {row['celsius']} C at most")
