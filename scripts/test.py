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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Spark takes its time whatever the broker is made of: these run once, while the compiler works.
PIPELINE = ("tests/pipeline", "tests/examples/test_pipeline_examples.py")
# What runs interpreted, too: the parts of the hot modules, and a little from end to end.
INTERPRETED = (
    ["tests/unit", "tests/contract", "tests/tidy", *PIPELINE, "-m", "not slow"],
    ["tests/conformance", "tests/interop", "-m", "smoke"],
)
# More than this machine has cores: most tests wait for a broker most of the time.
WORKERS = "4"
NOTHING_COLLECTED = 5


def main() -> int:
    arguments = sys.argv[1:]
    total: Counter[str] = Counter()
    failed = False

    def run(build: str, selection: list[str]) -> None:
        nonlocal failed
        print(f"== {build}: pytest {' '.join(selection)}", flush=True)
        code, counts = run_pytest(build, selection)
        total.update(counts)
        failed = failed or code not in (0, NOTHING_COLLECTED)

    # A core compiles, and comes first, while the tests of the other build wait for their brokers.
    building = subprocess.Popen([ROOT / "scripts" / "install", "--test"], cwd=ROOT)
    for selection in [arguments] if arguments else map(present, INTERPRETED):
        if selection:
            run("interpreted", selection)
    if building.wait():
        print("error: the compiled build failed; see above", file=sys.stderr)
        return 1
    rest = arguments or [f"--ignore={path}" for path in PIPELINE]
    if is_compiled():
        run("compiled", rest)
    elif not arguments:
        print("the hot modules are not compiled here: all other tests, interpreted", flush=True)
        run("interpreted", rest)
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if failed or not total["passed"] else 0


def run_pytest(build: str, selection: list[str]) -> tuple[int, Counter[str]]:
    environment = dict(os.environ, QUEUELAKE_BUILD=build)
    environment.pop("PYTHONPATH", None)
    if build == "interpreted":
        environment["PYTHONPATH"] = str(ROOT / "src")
    # Tests call `queuelake` as users do: from the PATH.
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = ["nice"] if build == "interpreted" else []
        command += [sys.executable, "-m", "pytest", "-q", "-n", WORKERS, "--dist", "loadgroup"]
        command += ["-p", "no:cacheprovider", f"--junitxml={report}", *selection]
        code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        return code, read_counts(report)


def read_counts(report: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    if not report.exists():  # pytest itself broke: say so in the sum
        return Counter(failed=1)
    for suite in ElementTree.parse(report).iter("testsuite"):
        tests, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
        broken = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        counts.update(passed=tests - skipped - broken, failed=broken, skipped=skipped)
    return counts


def present(selection: list[str]) -> list[str]:
    """The selection without folders that do not exist; empty when none does."""
    paths = [item for item in selection if item.startswith("tests/") and (ROOT / item).exists()]
    return [*paths, *(item for item in selection if not item.startswith("tests/"))] if paths else []


def is_compiled() -> bool:
    """Asked of a new process: this one may have looked before the build was there."""
    code = "import importlib.util as u; print(u.find_spec('queuelake.protocol').origin)"
    found = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    return not found.stdout.strip().endswith(".py")


if __name__ == "__main__":
    sys.exit(main())
