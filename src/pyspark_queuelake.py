"""Only what Spark looks for: `format("queuelake")` registers itself."""
