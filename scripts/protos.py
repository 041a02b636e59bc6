"""What scripts/protos does in the finished environment: `protos.py [FOLDER]`, by default src."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "src"


def main() -> int:
    target = sys.argv[1] if len(sys.argv) > 1 else str(SOURCES)
    protos = sorted(str(path) for path in SOURCES.rglob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{SOURCES}"]
    command += [f"--{kind}_out={target}" for kind in ("python", "pyi", "grpc_python")]
    return subprocess.run([*command, *protos], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
