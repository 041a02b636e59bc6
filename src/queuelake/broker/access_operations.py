"""What the admin process and the CLI may ask about users and permissions: see control_access.py."""

from __future__ import annotations

from queuelake import control_access as ops
from queuelake.broker.core import Broker
from queuelake.broker.operation import Operation
from queuelake.control_access import LoggedIn


class AccessOperations:
    """Each method answers one named request; whatever hashes or writes runs in a thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._authenticator = broker.authenticator

    def table(self) -> dict[str, Operation]:
        return {ops.LOG_IN: self.log_in}

    async def log_in(self, args: dict[str, object]) -> LoggedIn:
        name, password = _text(args, "name"), _text(args, "password")
        ip = _text(args, "ip")
        role = await self._broker.hashing(
            lambda: self._authenticator.log_in(name, password.encode(errors="replace"), ip)
        )
        return LoggedIn(role)


def _text(args: dict[str, object], name: str) -> str:
    return str(args.get(name, ""))
