"""Tables of a declarative pipeline over a queue. Where the broker is, the environment says:
QUEUELAKE_FLIGHT_URI and QUEUELAKE_TOKEN."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()


@dp.table
def readings() -> DataFrame:
    """Every reading of the queue, as a stream: each run takes what is new."""
    rows = spark.readStream.format("queuelake").option("queue", "$queue/example/declared").load()
    reading = F.from_json(F.col("payload").cast("string"), "vin STRING, celsius DOUBLE")
    return rows.select(reading.alias("reading"), "ts").select("reading.*", "ts")


@dp.materialized_view
def hottest() -> DataFrame:
    """The highest temperature of each vehicle."""
    return spark.read.table("readings").groupBy("vin").agg(F.max("celsius").alias("celsius"))
