"""One vehicle of a fan-out as a machine: which of its rows is sent next, and what an answer means.

A vehicle has rows in the store, in order of their keys; this machine holds none of them but the one
in flight. It exists only while its vehicle is connected and something goes on: what it knows does
not survive it, the rows do.

Rule 1. At most one row is in flight.
Rule 2. Whatever might be a moment to send is an `Attempt`; when it is none, nothing happens.
Rule 3. A row is settled before the next one is looked for, and that one comes after it: a row whose
        deletion is under way is not sent again.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from queuelake.engine.machine import Command, Effect, Meta

# What made somebody look for a row.
BATCH: Final = 0
HEARTBEAT: Final = 1
ACK: Final = 2
SUBSCRIBE: Final = 3
DATA: Final = 4
CAUSES: Final = ("batch", "heartbeat", "ack", "subscribe", "data")

# How a row ends.
ACKED: Final = 0
REJECTED: Final = 1
EXPIRED: Final = 2
CANCELLED: Final = 3
DROPPED: Final = 4

# What a PUBACK with an error means.
DONE: Final = 0
RETRY: Final = 1
BURY: Final = 2

REJECTS_MAX: Final = 5
RETRY_MS_FIRST: Final = 1_000
REFUSED_FROM: Final = 0x80


@final
@mypyc_attr(acyclic=True)
class Row:
    """One request which waits for one vehicle; `key` is its place in the order of all rows."""

    __slots__ = ("data_id", "key", "request_id", "size", "ts_ms", "vin")

    def __init__(
        self, key: bytes, ts_ms: int, vin: str, request_id: str, data_id: str, size: int
    ) -> None:
        self.key: bytes = key
        self.ts_ms: int = ts_ms
        self.vin: str = vin
        self.request_id: str = request_id
        self.data_id: str = data_id
        self.size: int = size  # bytes in the store


@final
class FanoutPolicy:
    """What all vehicles share of the configuration."""

    __slots__ = ("ack_timeout_ms", "on_reject")

    def __init__(self) -> None:
        self.on_reject: int = DONE
        self.ack_timeout_ms: int = 0  # 0: none


@final
class Attempt(Command):
    """Something may be sent now. `is_ready`: the vehicle is connected, and subscribed to it."""

    __slots__ = ("cause", "is_ready")

    def __init__(self, cause: int, is_ready: bool) -> None:
        self.cause: int = cause
        self.is_ready: bool = is_ready


@final
class Offer(Command):
    """The answer to `Fetch`: the next row, or None. `is_held`: the session of the vehicle has it
    from an earlier connection, and sends it by itself."""

    __slots__ = ("cause", "is_held", "row")

    def __init__(self, row: Row | None, cause: int, is_held: bool) -> None:
        self.row: Row | None = row
        self.cause: int = cause
        self.is_held: bool = is_held


@final
class NotTaken(Command):
    """The answer to `Send`, or what became of it: the session does not have the message."""

    __slots__ = ()


@final
class Acknowledge(Command):
    """PUBACK. `row` is the one it is about, or None when that is gone."""

    __slots__ = ("is_ready", "reason", "row")

    def __init__(self, row: Row | None, reason: int, is_ready: bool) -> None:
        self.row: Row | None = row
        self.reason: int = reason
        self.is_ready: bool = is_ready


@final
class Tick(Command):
    """Time has passed."""

    __slots__ = ()


@final
class Fetch(Effect):
    """Find the first row after this key which can be sent; the answer is an `Offer`."""

    __slots__ = ("after", "cause")

    def __init__(self, after: bytes, cause: int) -> None:
        self.after: bytes = after
        self.cause: int = cause


@final
class Send(Effect):
    """Put the message of this row in line for the vehicle, at QoS 1."""

    __slots__ = ("cause", "row")

    def __init__(self, row: Row, cause: int) -> None:
        self.row: Row = row
        self.cause: int = cause


@final
class Settle(Effect):
    """Delete the row."""

    __slots__ = ("outcome", "row")

    def __init__(self, row: Row, outcome: int) -> None:
        self.row: Row = row
        self.outcome: int = outcome


@final
class Bury(Effect):
    """Copy the row to the dead letters; it is settled besides."""

    __slots__ = ("reason", "row")

    def __init__(self, row: Row, reason: int) -> None:
        self.row: Row = row
        self.reason: int = reason


@final
class WakeAt(Effect):
    """Make an attempt then."""

    __slots__ = ("due_ms",)

    def __init__(self, due_ms: int) -> None:
        self.due_ms: int = due_ms


@final
class Disconnect(Effect):
    """MQTT allows a message to be sent again on a new connection only."""

    __slots__ = ()


@final
class Vehicle:
    """The machine."""

    __slots__ = ("_policy", "in_flight", "rejects", "retry_key", "retry_ms", "sent_ms")

    def __init__(self, policy: FanoutPolicy) -> None:
        self._policy: FanoutPolicy = policy
        self.in_flight: Row | None = None
        self.sent_ms: int = 0  # or when it was found in the session
        self.rejects: int = 0  # of the row `retry_key`
        self.retry_key: bytes = b""
        self.retry_ms: int = 0  # nothing is sent before; 0: it may be

    def apply(self, meta: Meta, command: Command) -> list[Effect]:
        effects: list[Effect] = []
        if isinstance(command, Attempt):
            if command.is_ready:
                self._look(meta, b"", command.cause, effects)
        elif isinstance(command, Offer):
            self._take(meta, command, effects)
        elif isinstance(command, NotTaken):
            self.in_flight = None
        elif isinstance(command, Acknowledge):
            self._acknowledge(meta, command, effects)
        elif isinstance(command, Tick):
            self._tick(meta, effects)
        else:
            raise AssertionError(f"no such command: {command!r}")
        return effects

    def is_idle(self) -> bool:
        """Whether it may be forgotten."""
        return self.in_flight is None and self.retry_ms == 0

    def _look(self, meta: Meta, after: bytes, cause: int, effects: list[Effect]) -> None:
        if self.in_flight is not None or meta.now_ms < self.retry_ms:
            return
        self.retry_ms = 0
        effects.append(Fetch(after, cause))

    def _take(self, meta: Meta, command: Offer, effects: list[Effect]) -> None:
        row = command.row
        if row is None or meta.now_ms < self.retry_ms:
            return  # an answer which came while the host looked makes it wait
        assert self.in_flight is None
        self.in_flight = row
        self.sent_ms = meta.now_ms
        if row.key != self.retry_key:
            self.retry_key = b""
            self.rejects = 0
        if not command.is_held:
            effects.append(Send(row, command.cause))

    def _acknowledge(self, meta: Meta, command: Acknowledge, effects: list[Effect]) -> None:
        row = command.row
        flying = self.in_flight
        if row is not None and flying is not None and flying.key == row.key:
            self.in_flight = None
        if row is not None and not self._is_retried(meta, row, command.reason, effects):
            if command.reason < REFUSED_FROM:
                effects.append(Settle(row, ACKED))
            else:
                if self._policy.on_reject == BURY:
                    effects.append(Bury(row, command.reason))
                effects.append(Settle(row, REJECTED))
        if command.is_ready:
            self._look(meta, row.key if row is not None else b"", ACK, effects)

    def _is_retried(self, meta: Meta, row: Row, reason: int, effects: list[Effect]) -> bool:
        if reason < REFUSED_FROM or self._policy.on_reject != RETRY:
            return False
        if row.key != self.retry_key:
            self.retry_key = row.key
            self.rejects = 0
        self.rejects += 1
        if self.rejects >= REJECTS_MAX:
            return False
        # Those behind it wait as well: the order of a vehicle's requests is kept.
        self.retry_ms = meta.now_ms + (RETRY_MS_FIRST << (self.rejects - 1))
        effects.append(WakeAt(self.retry_ms))
        return True

    def _tick(self, meta: Meta, effects: list[Effect]) -> None:
        timeout_ms = self._policy.ack_timeout_ms
        if timeout_ms and self.in_flight is not None and meta.now_ms - self.sent_ms >= timeout_ms:
            effects.append(Disconnect())
