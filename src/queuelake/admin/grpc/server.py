"""The gRPC server of the admin process: on the same loop as HTTP, with limits of its own."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2_grpc

from queuelake.admin.bodies import MESSAGE_BYTES_MAX
from queuelake.admin.grpc.guard import RequireKey
from queuelake.admin.grpc.health import Health
from queuelake.admin.grpc.queue_admin import SERVICE, queue_admin_handler
from queuelake.admin.grpc.reflection import reflection_handlers
from queuelake.admin.services import Services
from queuelake.control import GrpcStart

CALLS_MAX = 256
SHUTDOWN_TIMEOUT_S = 1.0
OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_concurrent_streams", CALLS_MAX),  # of one connection
    ("grpc.max_connection_idle_ms", 300_000),
    ("grpc.keepalive_time_ms", 60_000),  # whoever is gone watches nothing any more
    ("grpc.so_reuseport", 0),  # two servers on one port would each get some of the calls
)

log = logging.getLogger(__name__)


@asynccontextmanager
async def serving(services: Services, start: GrpcStart) -> AsyncIterator[None]:
    """Serve gRPC meanwhile. Where it cannot, the log says so, and the rest goes on without it."""
    server = grpc.aio.server(
        interceptors=(RequireKey(services.gate),),
        options=OPTIONS,
        maximum_concurrent_rpcs=CALLS_MAX,
    )
    checks = Health(services)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    names = (SERVICE.full_name, health.SERVICE_NAME)
    server.add_generic_rpc_handlers((queue_admin_handler(services), *reflection_handlers(names)))
    try:
        _listen(server, start)
        await server.start()
    except (OSError, RuntimeError) as error:
        log.error("gRPC does not listen on %s:%d: %s", start.bind, start.port, error)
    try:
        yield
    finally:
        checks.close()
        await server.stop(SHUTDOWN_TIMEOUT_S)


def _listen(server: Any, start: GrpcStart) -> None:
    host = f"[{start.bind}]" if ":" in start.bind else start.bind
    address = f"{host}:{start.port}"
    if start.certificate:
        pair = (Path(start.key).read_bytes(), Path(start.certificate).read_bytes())
        server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    else:
        server.add_insecure_port(address)
