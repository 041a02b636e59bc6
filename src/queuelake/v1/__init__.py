"""The gRPC interface, version 1: `queue_admin.proto`, and what `scripts/protos` makes of it.

Fields and methods are only ever added. For clients and for the admin process alike.
"""
