"""A vehicle which is awake."""

from __future__ import annotations

from typing import final

from queuelake.engine.kinds import fanout as f
from queuelake.storage import sdv_tables as t


@final
class Awake:
    """Its machine, and what that need not know."""

    __slots__ = ("awaits", "digest", "goes_back", "mark", "searched", "vehicle", "vin", "wanted")

    def __init__(self, vin: str, policy: f.FanoutPolicy) -> None:
        self.vin: str = vin
        self.digest: bytes = t.digest(vin)
        self.vehicle: f.Vehicle = f.Vehicle(policy)
        self.wanted: f.Fetch | None = None  # what is to be looked for
        self.mark: bytes = b""  # of the message in flight, the very object
        self.searched: bool = False  # whether its session was asked
        self.awaits: set[bytes] = set()  # data of rows which were passed over
        # Some of it has come, or nobody has looked from the start since the vehicle woke.
        self.goes_back: bool = True
