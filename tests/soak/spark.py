"""The tests of the pipeline which take minutes: `python -m tests.soak.spark [arguments of pytest]`.

Clusters, drivers which are killed at each step, long examples.
"""

from __future__ import annotations

import sys

import pytest


def main() -> int:
    return pytest.main(["-m", "slow", "tests/pipeline", "tests/examples", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
