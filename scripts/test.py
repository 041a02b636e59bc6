"""What scripts/test does in the finished environment: two builds, one summary line.

The compiled build is the package installed in .venv. The interpreted build is the same source,
found first through PYTHONPATH. `QUEUELAKE_BUILD` tells tests/tidy/test_build.py which one must be
running, so that a wrong path cannot make both runs the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Spark takes its time whatever the broker is made of, one session serves all its tests, and it
# gives up on workers which start slowly: these run once, beside what calculates and yields to them.
PIPELINE = ["tests/pipeline", "tests/examples/test_pipeline_examples.py"]
PURE = ["tests/unit", "tests/property", "tests/simulation", "tests/quorum", "tests/pipeline_broker"]
# What runs interpreted, too: the store, and a little from end to end. `scripts/check` has the rest.
STORE = ["tests/contract", "tests/tidy"]
SMOKE = ["tests/conformance", "tests/interop", "-m", "smoke"]
# What a client sees of several brokers behind a front is what it sees of one.
SHARDED = ["tests/conformance"]
# More than this machine has cores: most tests wait for a broker most of the time.
WORKERS = ["-n", "4", "--dist", "loadscope"]
NOTHING_COLLECTED = 5


def main() -> int:
    arguments = sys.argv[1:]
    # No test is about speed: what the optimizer does takes longer than all else of the build.
    building = subprocess.Popen(
        ["nice", ROOT / "scripts" / "install", "--test"],
        cwd=ROOT,
        env=dict(os.environ, QUEUELAKE_OPTIMIZE="1"),
    )
    runs = some(building, arguments) if arguments else everything(building)
    if not runs:
        print("error: the compiled build failed; see above", file=sys.stderr)
        return 1
    total = sum((run.counts for run in runs), Counter[str]())
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if any(run.failed for run in runs) or not total["passed"] else 0


def some(building: subprocess.Popen[bytes], arguments: list[str]) -> list[Run]:
    """Of both builds what was asked for."""
    runs = [Run("interpreted", arguments, *WORKERS).wait()]
    if building.wait():
        return []
    if is_compiled():
        runs.append(Run("compiled", arguments, *WORKERS).wait())
    return runs


def everything(building: subprocess.Popen[bytes]) -> list[Run]:
    pipeline = Run("interpreted", [*PIPELINE, "-m", "not slow"], aside=True)
    runs = [Run("interpreted", STORE, *WORKERS, nice=True).wait()]
    if building.wait():
        pipeline.stop()
        return []
    build = "compiled" if is_compiled() else "interpreted"
    if build == "interpreted":
        print("the hot modules are not compiled here: all tests are interpreted", flush=True)
    runs.append(Run(build, PURE, *WORKERS, nice=True).wait())
    runs.append(pipeline.wait())
    rest = [f"--ignore={path}" for path in (*PIPELINE, *PURE)]
    runs.append(Run(build, rest, *WORKERS).wait())
    runs.append(Run(build, SHARDED, *WORKERS, shards=3).wait())
    if build == "compiled":
        runs.append(Run("interpreted", SMOKE, *WORKERS).wait())
    return runs


class Run:
    """pytest on one build. What a run aside prints is shown when it is waited for."""

    def __init__(
        self,
        build: str,
        selection: list[str],
        *flags: str,
        nice: bool = False,
        aside: bool = False,
        shards: int = 0,
    ) -> None:
        behind = f", {shards} brokers behind a front" if shards else ""
        self._title = f"== {build}{behind}: pytest {' '.join(selection)}"
        self._folder = tempfile.TemporaryDirectory()
        self._report = Path(self._folder.name, "report.xml")
        self._output = Path(self._folder.name, "output") if aside else None
        self.failed = False
        self.counts: Counter[str] = Counter()
        if not aside:
            print(self._title, flush=True)
        command = ["nice"] if nice else []
        command += [sys.executable, "-m", "pytest", "-q", *flags, "-p", "no:cacheprovider"]
        command += [f"--junitxml={self._report}", *selection]
        with self._output.open("w") if self._output else nullcontext() as output:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment(build, shards), stdout=output, stderr=output
            )

    def stop(self) -> None:
        self._process.terminate()

    def wait(self) -> Run:
        code = self._process.wait()
        if self._output is not None:
            print(self._title, self._output.read_text(), sep="\n", flush=True)
        self.counts = read_counts(self._report)
        self.failed = code not in (0, NOTHING_COLLECTED)
        self._folder.cleanup()
        return self


def environment(build: str, shards: int) -> dict[str, str]:
    found = dict(os.environ, QUEUELAKE_BUILD=build)
    if shards:
        found["QUEUELAKE_TEST_SHARDS"] = str(shards)
    found.pop("PYTHONPATH", None)
    # Every broker of an interpreted run would compile the whole product anew.
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    if build == "interpreted":
        found["PYTHONPATH"] = str(ROOT / "src")
    # Tests call `queuelake` as users do: from the PATH.
    found["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{found['PATH']}"
    return found


def read_counts(report: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    if not report.exists():  # pytest itself broke: say so in the sum
        return Counter(failed=1)
    for suite in ElementTree.parse(report).iter("testsuite"):
        tests, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
        broken = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        counts.update(passed=tests - skipped - broken, failed=broken, skipped=skipped)
    return counts


def is_compiled() -> bool:
    """Asked of a new process: this one may have looked before the build was there."""
    code = "import importlib.util as u; print(u.find_spec('queuelake.protocol').origin)"
    found = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    return not found.stdout.strip().endswith(".py")


if __name__ == "__main__":
    sys.exit(main())
