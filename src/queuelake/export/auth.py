"""The API key in front of every call: `authorization: Bearer key:secret`.

A viewer may read; everything else takes an operator. A wrong key is answered late, as in the admin
process; at most SLOWED_MAX wait at a time, because each of them holds a thread of the server, and
the rest is refused at once.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Final

from pyarrow import flight

from queuelake.apikey import Caller, KeyFile, Role

WRONG_KEY_DELAY_S: Final = 0.5
SLOWED_MAX: Final = 4
MIDDLEWARE: Final = "caller"

log = logging.getLogger("queuelake.export")


class Identified(flight.ServerMiddleware):  # type: ignore[misc]
    """Who makes this call."""

    def __init__(self, caller: Caller) -> None:
        super().__init__()
        self.caller = caller


class RequireKey(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets a call pass when it presents a key."""

    def __init__(self, keys: KeyFile) -> None:
        super().__init__()
        self._keys = keys
        self._lock = threading.Lock()
        self._slowed = 0

    def start_call(self, _info: Any, headers: dict[str, list[str | bytes]]) -> Identified:
        presented = headers.get("authorization")
        if not presented:
            raise flight.FlightUnauthenticatedError(
                "API_KEY_MISSING: an API key is needed, authorization: Bearer key:secret"
            )
        with self._lock:
            caller = self._keys.identify(_bearer(presented[0]))
        if caller is None:
            self._slow()
            raise flight.FlightUnauthenticatedError("BAD_API_KEY: the API key is wrong")
        return Identified(caller)

    def _slow(self) -> None:
        with self._lock:
            if self._slowed >= SLOWED_MAX:
                return
            self._slowed += 1
        log.warning("wrong API key")
        try:
            time.sleep(WRONG_KEY_DELAY_S)
        finally:
            with self._lock:
                self._slowed -= 1


def caller_with_role(context: flight.ServerCallContext, needed: Role) -> Caller:
    """Who calls, if they may do this.

    Raises:
        FlightUnauthorizedError: they may not.
    """
    caller: Caller = context.get_middleware(MIDDLEWARE).caller
    if not caller.may(needed):
        raise flight.FlightUnauthorizedError(
            f"FORBIDDEN: API key {caller.name!r} has the role {caller.role}; this needs {needed}"
        )
    return caller


def _bearer(header: str | bytes) -> bytes:
    """The `key:secret` in the header, or nothing when there is none."""
    text = header if isinstance(header, bytes) else header.encode()
    scheme, _, credentials = text.strip().partition(b" ")
    return credentials.strip() if scheme.lower() == b"bearer" else b""
