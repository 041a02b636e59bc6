"""The API key in front of every method: only those of the health service are open.

As over HTTP (`admin/auth.py`), it is checked before anybody looks which method is meant, and also
before a message is waited for: somebody without a key keeps no call open.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

import grpc

from queuelake.admin.auth import Gate
from queuelake.admin.grpc.queue_admin import needed_role
from queuelake.admin.grpc.status import refuse
from queuelake.apikey import Caller, Role
from queuelake.control import CALLER

OPEN_SERVICE = "/grpc.health.v1.Health/"


class RequireKey(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Lets a call pass when it presents a key which may make it."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        if details.method.startswith(OPEN_SERVICE):
            return await continuation(details)
        header = _authorization(details.invocation_metadata)
        caller, needed = self._gate.identify(header), needed_role(details.method)
        if caller is None or not caller.may(needed):
            refusing = partial(self._refuse, header, caller, needed)
            # Whatever the method is: a handler of a stream begins before the first message.
            return grpc.stream_stream_rpc_method_handler(refusing)
        CALLER.set(caller.name)  # this task serves this one call, and asks on their behalf
        return await continuation(details)

    async def _refuse(
        self,
        header: bytes | None,
        caller: Caller | None,
        needed: Role,
        _requests: Any,
        context: Any,
    ) -> None:
        await refuse(
            context, await self._gate.refusal(header, caller, needed, _address(context.peer()))
        )


def _authorization(metadata: Iterable[tuple[str, str | bytes]]) -> bytes | None:
    for name, value in metadata:
        if name == "authorization":
            return value if isinstance(value, bytes) else value.encode()
    return None


def _address(peer: str) -> str:
    """`ipv4:127.0.0.1:50000` without the kind of address and the port."""
    return peer.partition(":")[2].rpartition(":")[0] or "an unknown address"
