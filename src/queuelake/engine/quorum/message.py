"""What a quorum queue knows of a message: where it is in the log, its size and how it fared."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from queuelake.engine.quorum.effects import Delivery

# Where a message is.
READY: Final = 0
RETURNED: Final = 1
HELD: Final = 2
DELAYED: Final = 3
LETTER: Final = 4


@final
@mypyc_attr(acyclic=True)
class Message:
    __slots__ = (
        "acquired",
        "annotations",
        "expires_ms",
        "failures",
        "index",
        "lock_ms",
        "place",
        "priority",
        "size",
        "token",
    )

    def __init__(self, index: int, size: int, priority: int, expires_ms: int) -> None:
        self.index: int = index  # of its command: the payload is there
        self.size: int = size
        self.priority: int = priority
        self.expires_ms: int = expires_ms  # not handed out from then on; 0: never expires
        self.acquired: int = 0
        self.failures: int = 0
        self.place: int = READY
        self.lock_ms: int = 0  # held: to be settled before; 0: whenever
        self.annotations: dict[str, str] | None = None
        self.token: str = ""  # under which it is deferred, or why it is a dead letter

    def is_expired(self, now_ms: int) -> bool:
        return 0 < self.expires_ms <= now_ms

    def delivery(self, msg_id: int) -> Delivery:
        return Delivery(
            msg_id, self.index, self.size, self.acquired, self.failures, self.annotations
        )


@final
@mypyc_attr(acyclic=True)
class Letter:
    """A message which waits in the backlog of dead letters."""

    __slots__ = ("message", "reason")

    def __init__(self, message: Message, reason: str) -> None:
        self.message: Message = message
        self.reason: str = reason
