"""Places where a test may end the process, as a crash would."""

from __future__ import annotations

import os
import signal

VARIABLE = "QUEUELAKE_FAILPOINT"


def failpoint(name: str) -> None:
    """Nothing, unless the environment names this very place: then the process is gone."""
    if os.environ.get(VARIABLE) == name:
        os.kill(os.getpid(), signal.SIGKILL)
