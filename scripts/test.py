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
# Spark takes its time whatever the broker is made of, and one session serves all its tests. It
# also gives up on workers which start slowly: these run alone, while the compiler works.
PIPELINE = ["tests/pipeline", "tests/examples/test_pipeline_examples.py"]
# What runs interpreted: that, and a little of everything else.
INTERPRETED = (
    [*PIPELINE, "-m", "not slow"],
    ["tests/contract", "tests/tidy"],
    ["tests/conformance", "tests/interop", "-m", "smoke"],
)
# More than this machine has cores: most tests wait for a broker most of the time.
WORKERS = ["-n", "4", "--dist", "loadgroup"]
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

    # No test is about speed.
    building = subprocess.Popen(
        [ROOT / "scripts" / "install", "--test"],
        cwd=ROOT,
        env=dict(os.environ, QUEUELAKE_OPTIMIZE="1"),
    )
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
    workers = [] if PIPELINE[0] in selection else WORKERS
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", *workers, "-p", "no:cacheprovider"]
        command += [f"--junitxml={report}", *selection]
        code = subprocess.run(command, cwd=ROOT, env=environment(build), check=False).returncode
        return code, read_counts(report)


def environment(build: str) -> dict[str, str]:
    found = dict(os.environ, QUEUELAKE_BUILD=build)
    found.pop("PYTHONPATH", None)
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
