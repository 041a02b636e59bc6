"""Leases of lakes: one holder at a time may change a lake, and each has a greater epoch than all
before it.

Time is that of the broker's clock, which does not jump. A lease is durable before it is answered.
What is kept longer needs no commit: after a restart a lease which was held is held for its whole
time again, and only its holder can keep it meanwhile.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, final

import msgspec

from queuelake.broker.clock import Clock
from queuelake.broker.runner import Runner
from queuelake.errors import LeaseLostError, LeaseTakenError, RefusedError
from queuelake.flight import Lease, LeaseAsked
from queuelake.storage.api import META, Store

LEASES_KEY: Final = b"leases"  # in META
LAKES_MAX: Final = 1_000
TTL_S_MAX: Final = 3_600.0
TEXT_CHARACTERS_MAX: Final = 1_000


class _Held(msgspec.Struct, array_like=True):
    """The last lease of a lake which was not given back."""

    lake: str
    holder: str
    epoch: int
    ttl_ms: int


class _Row(msgspec.Struct, array_like=True):
    epoch: int = 0  # the last one given
    held: list[_Held] = []


@final
class Leases:
    """All lakes which this broker guards."""

    def __init__(self, store: Store, runner: Runner, clock: Clock) -> None:
        self._runner = runner
        self._clock = clock
        with store.view() as view:
            value = view.get(META, LEASES_KEY)
        row = msgspec.msgpack.decode(value, type=_Row) if value is not None else _Row()
        self._epoch = row.epoch
        self._held = {one.lake: one for one in row.held}
        now_ms = clock.now_ms()
        self._until_ms = {one.lake: now_ms + one.ttl_ms for one in row.held}

    def ask(self, asked: LeaseAsked) -> Lease:
        """Give a lease, or keep one longer; it counts when the commit which has it is durable.

        Raises:
            RefusedError: somebody else has it, or has had it since.
        """
        for name, text in (("lake", asked.lake), ("holder", asked.holder)):
            if not 0 < len(text) <= TEXT_CHARACTERS_MAX:
                limit = f"may have 1 to {TEXT_CHARACTERS_MAX}"
                raise RefusedError(f"{name} has {len(text)} characters, {limit}")
        if not 0 < asked.ttl_s <= TTL_S_MAX:
            raise RefusedError(f"ttl_s is {asked.ttl_s}, may be up to {TTL_S_MAX:.0f}")
        held = self._held.get(asked.lake)
        if asked.epoch:
            if held is None or held.epoch != asked.epoch:
                raise LeaseLostError(f"lease {asked.epoch} of {asked.lake} {_since(held)}")
            return self._keep(held, asked)
        if held is not None and held.holder != asked.holder:
            until_ms = self._until_ms[asked.lake]
            if self._clock.now_ms() < until_ms:
                raise LeaseTakenError(
                    f"{asked.lake} is held by {held.holder} until {_time(until_ms)}"
                )
        return self._give(asked)

    def release(self, lease: Lease) -> None:
        """Give it back; one which somebody else has by now is not touched."""
        held = self._held.get(lease.lake)
        if held is not None and held.epoch == lease.epoch:
            self._forget(held)
            self._write()

    def _give(self, asked: LeaseAsked) -> Lease:
        self._epoch += 1
        ttl_ms = int(asked.ttl_s * 1000)
        self._held[asked.lake] = _Held(asked.lake, asked.holder, self._epoch, ttl_ms)
        self._make_room()
        self._write()
        return self._lease(self._held[asked.lake])

    def _keep(self, held: _Held, asked: LeaseAsked) -> Lease:
        ttl_ms = int(asked.ttl_s * 1000)
        if ttl_ms != held.ttl_ms:
            held.ttl_ms = ttl_ms
            self._write()
        return self._lease(held)

    def _lease(self, held: _Held) -> Lease:
        until_ms = self._clock.now_ms() + held.ttl_ms
        self._until_ms[held.lake] = until_ms
        return Lease(held.lake, held.epoch, until_ms)

    def _make_room(self) -> None:
        """Those whose time is over may be forgotten: epochs are given for all lakes together."""
        if len(self._held) <= LAKES_MAX:
            return
        now_ms = self._clock.now_ms()
        for held in list(self._held.values()):
            if self._until_ms.get(held.lake, now_ms + 1) <= now_ms:
                self._forget(held)

    def _forget(self, held: _Held) -> None:
        del self._held[held.lake]
        self._until_ms.pop(held.lake, None)

    def _write(self) -> None:
        # The runner carries rows of META over to the next group when a commit fails.
        row = _Row(self._epoch, list(self._held.values()))
        self._runner.put(META, LEASES_KEY, msgspec.msgpack.encode(row))


def _since(held: _Held | None) -> str:
    return "was given back" if held is None else f"is over: {held.holder} has lease {held.epoch}"


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
