"""The right to change a lake: one holder at a time, by the word of the broker.

A lease ends by itself when it is not renewed. Its holder counts the time from before it asked, so
it stops before the broker gives the lease to somebody else, as far as clocks run alike. What no
clock can prevent (a process which sleeps between a look at the lease and its commit) the epoch
does: each commit writes it into the table, and no commit with a smaller one follows.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from queuelake.errors import LeaseLostError, LeaseTakenError, QueuelakeError, RefusedError
from queuelake.flight import Lease, LeaseAsked

TTL_S: Final = 60.0
MARGIN_S: Final = 5.0  # of the time left, for a commit to end
RETRY_S: Final = 1.0  # to a broker which is away
WAIT_S: Final = 0.2  # for a holder; an archive with a backlog lets go for a little longer


class Leases(Protocol):
    """Whoever gives leases: the broker, through the Flight service."""

    def lease(self, asked: LeaseAsked) -> Lease: ...

    def release(self, lease: Lease) -> None: ...


class HeldLease:
    """A lease which is kept until it is given back; a thread renews it."""

    def __init__(self, leases: Leases, lake: str, holder: str, ttl_s: float = TTL_S) -> None:
        self._leases = leases
        self._holder = holder
        self._ttl_s = ttl_s
        self._over = threading.Event()
        self._lost = ""
        self.lake = lake
        asked_at = time.monotonic()
        self._lease = leases.lease(LeaseAsked(lake, holder, ttl_s))
        self._until = asked_at + ttl_s
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    @property
    def epoch(self) -> int:
        return self._lease.epoch

    def check(self) -> None:
        """Raises LeaseLostError when a commit which begins now might come too late."""
        if self._lost:
            raise LeaseLostError(f"the lease of {self.lake} was lost: {self._lost}")
        left = self._until - time.monotonic()
        if left < min(MARGIN_S, self._ttl_s / 4):
            raise LeaseLostError(
                f"the lease of {self.lake} could not be renewed for {self._ttl_s - left:.0f} s"
                f" of {self._ttl_s:.0f} s"
            )

    def release(self) -> None:
        self._over.set()
        self._thread.join()
        try:
            self._leases.release(self._lease)
        except QueuelakeError:
            pass  # it ends by itself

    def _renew(self) -> None:
        pause_s = self._ttl_s / 3
        while not self._over.wait(pause_s):
            asked_at = time.monotonic()
            asked = LeaseAsked(self.lake, self._holder, self._ttl_s, self._lease.epoch)
            try:
                self._lease = self._leases.lease(asked)
            except RefusedError as exc:
                self._lost = str(exc)
                return
            except QueuelakeError:
                pause_s = RETRY_S  # the broker is away: `check` says when that takes too long
                continue
            self._until = asked_at + self._ttl_s
            pause_s = self._ttl_s / 3


@contextmanager
def held(
    leases: Leases, lake: str, job: str, *, wait_s: float = 0.0, ttl_s: float = TTL_S
) -> Iterator[HeldLease]:
    """The lease of a lake for the length of a block; waits for its holder at most `wait_s`."""
    lease = acquire(leases, lake, job, wait_s, ttl_s)
    try:
        yield lease
    finally:
        lease.release()


def acquire(leases: Leases, lake: str, job: str, wait_s: float, ttl_s: float = TTL_S) -> HeldLease:
    holder = f"{job}@{socket.gethostname()}:{os.getpid()}"
    end = time.monotonic() + wait_s
    while True:
        try:
            return HeldLease(leases, lake, holder, ttl_s)
        except LeaseTakenError:
            if time.monotonic() + WAIT_S > end:
                raise
            time.sleep(WAIT_S)
