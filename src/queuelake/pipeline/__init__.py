"""Spark over queues: the data source `queuelake`, the lake, and the jobs which fill and use it."""
