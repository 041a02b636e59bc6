"""A Spark session as the pipeline wants it.

The JVM and the workers write to a log file, not to the terminal: `QUEUELAKE_SPARK_LOG` names it,
else it is a temporary one which goes with the process. What matters arrives as an exception.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from queuelake.errors import QueuelakeError
from queuelake.pipeline.failures import one_line
from queuelake.pipeline.java import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_VARIABLE = "QUEUELAKE_SPARK_LOG"
EXTRA = "pip install 'queuelake[spark]'"
MASTER = "local[*]"
SHUFFLE_PARTITIONS_LOCAL = 4

ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    # A reader which can take filters is refused by Spark unless this is on.
    "spark.sql.python.filterPushdown.enabled": "true",
}
CLASSIC = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}
# Nobody else has to reach the driver, and the name of the machine need not resolve.
LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS_LOCAL),
}


class SparkError(QueuelakeError):
    """Spark is not installed, or did not start: the message says which and what helps."""


def need_spark() -> None:
    """Raise SparkError, in one line, unless the extra `spark` is installed."""
    missing = [name for name in ("pyspark", "pyarrow", "deltalake") if find_spec(name) is None]
    if missing:
        raise SparkError(f"the pipeline needs {' and '.join(missing)}: {EXTRA}")


def build_session(
    app: str,
    master: str = MASTER,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process; `remote` (`sc://host:port`) is a Spark Connect server."""
    need_spark()
    _hush()
    if remote is not None:
        return _connect(app, remote, dict(conf or {}))
    settings = ALWAYS | CLASSIC | {"spark.app.name": app, "spark.master": master}
    if master.startswith("local"):
        settings |= LOCAL
    return _classic(settings | dict(conf or {}))


def send_package(spark: SparkSession) -> None:
    """Send our code with each query, to a cluster on whose nodes this package is not installed.

    The nodes need pyspark and pyarrow only.
    """
    from queuelake.pipeline.source import QueuelakeSource, pickle_by_value

    class SentSource(QueuelakeSource):
        by_value = True

    pickle_by_value()
    spark.dataSource.register(SentSource)


def _classic(settings: dict[str, str]) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None and SparkContext._gateway is None:
        _prepare_environment()
        spark_conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        log_path = _log_path()
        with log_path.open("a") as log:
            try:
                gateway = launch_gateway(  # type: ignore[no-untyped-call]
                    spark_conf, {"stdout": log, "stderr": log}
                )
                SparkContext(conf=spark_conf, gateway=gateway)
            except PySparkException as error:
                raise SparkError(_start_failure(log_path, one_line(error))) from None
            except Exception as error:  # py4j's own, when Spark refuses a master or a setting
                raise SparkError(f"Spark did not start: {one_line(error) or error}") from None
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _connect(app: str, remote: str, conf: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    if remote.startswith("local"):
        _prepare_environment()
    builder = SparkSession.builder.remote(remote).appName(app)
    for key, value in (ALWAYS | conf).items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except ImportError as error:
        raise SparkError(f"Spark Connect needs more: {one_line(error) or error}") from None


def _hush() -> None:
    """Spark prints errors which it then raises, with every frame of the JVM; raising is enough."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


def _prepare_environment() -> None:
    """What the JVM and through it every worker inherits."""
    os.environ["JAVA_HOME"] = str(find_java_home(os.environ))
    # Without it workers run the first `python3` on the path, which may lack every package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _log_path() -> Path:
    named = os.environ.get(LOG_VARIABLE)
    if named:
        return Path(named)
    descriptor, path = tempfile.mkstemp(prefix="queuelake-spark-", suffix=".log")
    os.close(descriptor)
    atexit.register(lambda: Path(path).unlink(missing_ok=True))
    return Path(path)


def _start_failure(log_path: Path, words: str) -> str:
    lines = [line for line in log_path.read_text(errors="replace").splitlines() if line.strip()]
    return f"Spark did not start: {lines[-1] if lines else words}"
