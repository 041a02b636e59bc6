"""A vehicle which is awake."""

from __future__ import annotations

from typing import final

from queuelake.engine.kinds import fanout as f
from queuelake.storage import sdv_tables as t


@final
class Awake:
    """Its machine, and what that need not know."""

    __slots__ = (
        "awaits",
        "digest",
        "goes_back",
        "mark",
        "number",
        "searched",
        "topic",
        "topic_filter",
        "vehicle",
        "vin",
        "wanted",
    )

    def __init__(self, vin: str, topic_filter: bytes, policy: f.FanoutPolicy) -> None:
        self.vin: str = vin
        self.digest: bytes = t.digest(vin)
        self.number: int = int.from_bytes(self.digest[:4], "big")  # which dispatcher it has
        self.topic_filter: bytes = topic_filter  # of all its requests
        self.topic: bytes = topic_filter[:-1]  # the request follows
        self.vehicle: f.Vehicle = f.Vehicle(policy)
        self.wanted: f.Fetch | None = None  # what is to be looked for
        self.mark: bytes = b""  # of the message in flight, the very object
        self.searched: bool = False  # whether its session was asked
        self.awaits: set[bytes] = set()  # data of rows which were passed over
        # Some of it has come, or nobody has looked from the start since the vehicle woke.
        self.goes_back: bool = True

    def is_idle(self) -> bool:
        """Nothing would be lost with it, but for what it takes to make it again."""
        return self.vehicle.is_idle() and self.wanted is None and not self.awaits
