"""What every machine is: `apply(meta, command)` changes its state and returns effects.

Rule 1. Everything that changes a queue happens in `apply()`, and only there.
Rule 2. No clock, no dice, no I/O: time and position come in with the command, so a replica and a
        replay reach the same state.
Rule 3. Look first, then change, then answer: a refused command changes nothing.
Rule 4. A machine holds positions and sizes, never payloads.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import mypyc_attr


@final
@mypyc_attr(acyclic=True)
class Meta:
    """Where and when a command takes effect."""

    __slots__ = ("index", "now_ms")

    def __init__(self, index: int, now_ms: int) -> None:
        self.index: int = index
        self.now_ms: int = now_ms


@mypyc_attr(acyclic=True)
class Command:
    """What is asked of a machine."""

    __slots__ = ()


@mypyc_attr(acyclic=True)
class Effect:
    """What a machine asks of the world, once its state is durable."""

    __slots__ = ()
