"""gRPC of the admin process: `queuelake/v1/queue_admin.proto`, health and reflection.

The third door beside REST and the console to the same `Services`, with the same keys. Only
`server.py` is imported from outside, and only where gRPC is wanted: the library takes its time.
"""
