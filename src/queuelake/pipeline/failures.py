"""Errors of Spark, as one line.

What goes wrong in a task reaches the driver wrapped several times: a Java stack trace with a Python
traceback in it, whose last line is what happened. An error of ours counts more than what followed
from it: Spark stops readers which it could not make, and stumbles. Spark's own errors begin with a
condition in brackets, and go on with hints and plans nobody wants in a terminal.
"""

from __future__ import annotations

import re

CHARACTERS_MAX = 600
# The end of a Python traceback inside a longer text: `package.module.SomeError: words`.
PYTHON_ERROR = re.compile(r"^([\w.]+\.)?([A-Z]\w*(?:Error|Exception)): (.+)$", re.MULTILINE)
OURS = "queuelake."
CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\] *")
SPARK_STATE = re.compile(r" *SQLSTATE: \w+.*", re.DOTALL)
WRAPPERS = {"PythonException", "SparkException", "Py4JJavaError", "StreamingQueryException"}


def one_line(error: BaseException) -> str:
    """The line of an error of Spark which says why; empty when it is no error of Spark."""
    if not type(error).__module__.startswith(("pyspark.", "py4j.", "grpc.")):
        return ""
    text = _text(error)
    inside = [found for found in PYTHON_ERROR.findall(text) if found[1] not in WRAPPERS]
    if inside:
        ours = [found for found in inside if found[0].startswith(OURS)]
        return _shorten(CONDITION.sub("", (ours or inside)[-1][2]))
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return _shorten(SPARK_STATE.sub("", CONDITION.sub("", first)))


def _text(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)  # Py4JJavaError: str() asks the JVM
    try:
        return str(java) if java is not None else str(error)
    except Exception:  # the JVM is gone: that is what there is to say
        return f"Spark has ended: {type(error).__name__}"


def _shorten(line: str) -> str:
    line = " ".join(line.split())
    return line if len(line) <= CHARACTERS_MAX else line[: CHARACTERS_MAX - 3] + "..."
