"""Whether the hot path is compiled."""

from __future__ import annotations

from queuelake.protocol import wire as hot_module


def is_compiled() -> bool:
    return not str(hot_module.__file__).endswith(".py")
