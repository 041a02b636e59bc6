"""What a cluster needs of the engine below it: a log, a lease, and messages between nodes.

`nats_engine` provides it with NATS JetStream, a simulation with dice. All calls are made on the
loop. Positions begin at 1 and never restart; 0 is before the first entry. Nothing is retried here:
who calls knows whether trying again is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from queuelake.errors import QueuelakeError


class EngineError(QueuelakeError):
    """The engine did not do it. See the subclasses for what is known."""


class UnknownOutcomeError(EngineError):
    """No answer, or none that says: it may have been done, or may still be."""


class ConflictingWriteError(EngineError):
    """Certainly not done: the log or the record is not where the caller believes it is."""


class UnavailableError(EngineError):
    """A read was not answered: no leader, no connection. Nothing was changed."""


class Lease(msgspec.Struct, frozen=True, array_like=True):
    """Who owns a shard. `node` is empty when the last owner left; `heir` may then go first."""

    epoch: int
    node: str
    heir: str = ""


class Log(Protocol):
    """The replicated log of one shard."""

    part_bytes_max: int  # of one appended value

    async def append(self, parts: list[bytes], after: int) -> int:
        """Append these, the first one right behind position `after`; returns the last position.

        Raises:
            ConflictingWriteError: the log does not end at `after`, or somebody else appended
                between two of them: they are not all in it, and will not be.
            UnknownOutcomeError: the first few of them may be in the log, now or later.
        """
        ...

    async def read(self, position: int, count: int) -> list[bytes]:
        """Up to `count` values from this position on; empty when it is not here yet.

        A node may be a little behind: what is not here yet can be in the log already.

        Raises:
            UnavailableError: nobody answered.
            TruncatedError: the log begins behind this position.
        """
        ...

    async def ends(self) -> tuple[int, int]:
        """The first and the last position; (n + 1, n) when there is nothing.

        They may be old for a moment, while servers start: only an append knows the end.
        """
        ...

    async def size_bytes(self) -> int: ...

    async def truncate(self, upto: int) -> None:
        """Forget everything up to and including this position."""
        ...


class TruncatedError(EngineError):
    """What was asked for is not in the log any more."""


class Leases(Protocol):
    """The ownership record of one shard: read it, or replace the revision that was read."""

    async def read(self) -> tuple[Lease | None, int]:
        """The record and its revision; (None, 0) before there was one."""
        ...

    async def write(self, lease: Lease, revision: int) -> int:
        """Replace that revision; returns the new one.

        Raises:
            ConflictingWriteError: the record has another revision.
            UnknownOutcomeError: nobody knows whether it was replaced.
        """
        ...


Receiver = Callable[[bytes], None]


class Messenger(Protocol):
    """Messages between nodes: at most once, in order from one sender to one subject."""

    node: str
    payload_bytes_max: int

    def send(self, subject: str, data: bytes) -> None:
        """Never waits. What cannot be sent now may be lost; see `on_trouble`."""
        ...

    async def receive(self, subject: str, receiver: Receiver) -> None:
        """Call back for everything sent to this subject from now on."""
        ...

    async def is_there(self, node: str) -> bool:
        """False only when the engine knows that this node's process is not connected to it."""
        ...
