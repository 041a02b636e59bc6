"""What scripts/install does, once it has found a Python: standard library only.

Two steps, each with a stamp in .venv that says for which input it was done:

1. dependencies: the requirements of pyproject.toml at the versions of constraints.txt;
2. the product: a wheel built from a copy of the sources in .venv/build, so that neither shared
   objects nor build folders appear in the working tree. The copy stays, and only what changed is
   compiled again.

The compiled build is what `.venv` holds; the interpreted build is `PYTHONPATH=src`.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
BUILD = VENV / "build"
BUILD_FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
PROGRAMS = {  # Debian's package -> what tests run of it
    "chromium": "chromium",
    "mosquitto-clients": "mosquitto_pub",
    "mosquitto": "mosquitto_passwd",
    "prometheus": "promtool",
}
EXTRAS = ("console", "grpc", "otel", "spark", "cluster")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/install")
    parser.add_argument("--test", action="store_true", help="add the test tools")
    parser.add_argument("--deps-only", action="store_true", help="do not build queuelake itself")
    options = parser.parse_args()
    extras = set(EXTRAS)
    if options.test:
        extras.add("test")

    if not works(PYTHON):
        make_environment()
    with (VENV / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two scripts started at once: one installs, one waits
        install_dependencies(extras)
        if options.test:
            install_programs()
        if not options.deps_only:
            install_product()


def make_environment() -> None:
    """A virtual environment with pip in it, also where ensurepip is missing."""
    print(f"making {VENV.name} with Python {sys.version.split()[0]}", flush=True)
    shutil.rmtree(VENV, ignore_errors=True)
    if importlib.util.find_spec("ensurepip") and run(sys.executable, "-m", "venv", VENV):
        return
    shutil.rmtree(VENV, ignore_errors=True)
    if importlib.util.find_spec("virtualenv") and run(sys.executable, "-m", "virtualenv", VENV):
        return
    if shutil.which("uv") and run("uv", "venv", "--clear", "--seed", "-p", sys.executable, VENV):
        return
    shutil.rmtree(VENV, ignore_errors=True)
    bare = (sys.executable, "-m", "venv", "--without-pip", VENV)
    if importlib.util.find_spec("pip") and run(*bare):
        if run(sys.executable, "-m", "pip", "--python", PYTHON, "install", "--quiet", "pip"):
            return
    shutil.rmtree(VENV, ignore_errors=True)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    fail(
        f"{sys.executable} has neither ensurepip, virtualenv nor pip, and there is no uv; "
        f"on Debian and Ubuntu this helps: sudo apt-get install python{version}-venv"
    )


def install_dependencies(extras: set[str]) -> None:
    stamp = VENV / "dependencies.json"
    inputs = digest([ROOT / "pyproject.toml", ROOT / "constraints.txt"])
    done = json.loads(stamp.read_text()) if stamp.exists() else {}
    if done.get("inputs") == inputs:
        if extras <= set(done["extras"]):
            return
        extras = extras | set(done["extras"])
    with (ROOT / "pyproject.toml").open("rb") as file:
        pyproject = tomllib.load(file)
    wanted = [*pyproject["build-system"]["requires"], *pyproject["project"]["dependencies"]]
    for extra in sorted(extras):
        wanted += pyproject["project"]["optional-dependencies"][extra]
    print(
        "installing dependencies" + "".join(f" [{extra}]" for extra in sorted(extras)), flush=True
    )
    pip("install", "-c", ROOT / "constraints.txt", *wanted)
    stamp.write_text(json.dumps({"inputs": inputs, "extras": sorted(extras)}))


def install_programs() -> None:
    """What tests use of Debian where it can be had; a test which lacks its program is skipped."""
    missing = [package for package, program in PROGRAMS.items() if not shutil.which(program)]
    if not missing or not shutil.which("apt-get") or os.geteuid() != 0:
        return
    print("installing " + ", ".join(missing), flush=True)
    quiet = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    for step in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
        command = ["apt-get", "-qq", *step]
        if subprocess.run(command, env=quiet, stdout=subprocess.DEVNULL, check=False).returncode:
            print("warning: not installed; the tests which need them are skipped", file=sys.stderr)
            return
    if stop := shutil.which("service"):  # tests start their own
        for package in missing:
            subprocess.run([stop, package, "stop"], capture_output=True, check=False)


def install_product() -> None:
    sources = [ROOT / name for name in BUILD_FILES]
    sources += sorted(p for p in (ROOT / "src").rglob("*") if is_source(p))
    pure = os.environ.get("QUEUELAKE_PURE") == "1"
    optimize = int(os.environ.get("QUEUELAKE_OPTIMIZE", "3"))
    stamp = VENV / "built.json"
    inputs = digest(sources) + ("-pure" if pure else "")
    if stamp.exists():
        done = json.loads(stamp.read_text())
        if done["inputs"] == inputs and done["optimize"] >= optimize:
            return
    stamp.unlink(missing_ok=True)
    print(f"building queuelake, {'interpreted' if pure else 'hot path compiled'}", flush=True)
    copy_sources(sources, optimize)
    pip("install", "--no-deps", "--no-build-isolation", "--force-reinstall", BUILD)
    stamp.write_text(json.dumps({"inputs": inputs, "optimize": optimize}))
    if not pure and not is_compiled():
        print(
            "warning: no working C compiler with Python headers: queuelake runs interpreted, "
            "several times slower; install one and remove .venv/built.json to try again",
            file=sys.stderr,
        )


def copy_sources(sources: list[Path], optimize: int) -> None:
    """Bring .venv/build up to date, keeping compiled objects while they can be used."""
    names = {str(path.relative_to(ROOT)) for path in sources}
    listing = BUILD / "listing.json"
    shape = [sorted(names), digest([ROOT / "setup.py", ROOT / "pyproject.toml"]), optimize]
    if not listing.exists() or json.loads(listing.read_text()) != shape:
        shutil.rmtree(BUILD, ignore_errors=True)
        BUILD.mkdir()
        listing.write_text(json.dumps(shape))
    for name in names:
        source, target = ROOT / name, BUILD / name
        if not target.exists() or source.read_bytes() != target.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def is_source(path: Path) -> bool:
    return path.is_file() and path.suffix != ".pyc" and ".egg-info" not in str(path)


def is_compiled() -> bool:
    code = "import importlib.util as u; print(u.find_spec('queuelake.protocol').origin)"
    answer = subprocess.run(
        [PYTHON, "-I", "-c", code], cwd=VENV, capture_output=True, text=True, check=True
    )
    return not answer.stdout.strip().endswith(".py")


def digest(paths: list[Path]) -> str:
    total = hashlib.sha256()
    for path in paths:
        total.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def pip(*arguments: str | Path) -> None:
    quiet = ("--quiet", "--disable-pip-version-check")
    if not run(PYTHON, "-m", "pip", arguments[0], *quiet, *arguments[1:]):
        fail(f"pip {arguments[0]} did not succeed; its own words are above")


def works(python: Path) -> bool:
    probe: list[str | Path] = [python, "-c", "import pip"]
    return (
        python.exists() and not subprocess.run(probe, capture_output=True, check=False).returncode
    )


def run(*command: str | Path) -> bool:
    return subprocess.run(command, check=False).returncode == 0


def fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(1)


if __name__ == "__main__":
    main()
