"""Only what Spark looks for: `format("queuelake")` registers itself."""

from queuelake.pipeline.source import QueuelakeSource as DefaultSource

__all__ = ["DefaultSource"]
