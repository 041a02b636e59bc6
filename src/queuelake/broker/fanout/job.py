"""One trigger on its way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, final

from queuelake.broker.fanout.vehicles import Vehicle, Vehicles
from queuelake.storage import sdv_tables as t

if TYPE_CHECKING:
    from queuelake.broker.connection import Connection

# What is done with a trigger, in this order.
READING: Final = -1
PUTTING: Final = 0
DROPPING: Final = 1
CALLING: Final = 2


@final
class Job:
    """How far it is; `storing.py` is who changes it."""

    __slots__ = (
        "answer",
        "are_recent",
        "at",
        "bytes",
        "connection",
        "count",
        "data_id",
        "drops",
        "gave_way",
        "group",
        "is_giving_way",
        "is_last",
        "is_shared",
        "line",
        "recent",
        "record",
        "request",
        "request_id",
        "rows",
        "size",
        "slices",
        "stage",
        "ts_ms",
        "vehicles",
    )

    def __init__(
        self,
        vehicles: Vehicles,
        request_id: str,
        data_id: str,
        ts_ms: int,
        connection: Connection | None,
    ) -> None:
        self.vehicles: Vehicles = vehicles
        self.request_id: str = request_id
        self.data_id: str = data_id
        self.request: bytes = t.digest(request_id)
        self.ts_ms: int = ts_ms
        self.connection: Connection | None = connection
        # In bulk: called with the number of rows when the last slice is put.
        self.record: Callable[[int], None] | None = None
        self.answer: Callable[[bool], None] | None = None  # told the end, where nobody published
        self.at: int = 0  # how many parts, or buckets, are done with in this stage
        self.group: int = 0  # the commit which has a slice of it now; 0: none
        self.slices: int = 0  # which are durable
        self.count: int = 0  # rows
        self.size: int = 0
        self.is_last: bool = False  # no slice is left to be put
        self.is_giving_way: bool = False
        self.gave_way: bool = False  # for the next slice, which it does once
        self.is_shared: bool = False  # others sent something since the last slice
        self.stage: int = READING
        self.drops: Iterator[bool] | None = None  # under way
        self.line: list[Vehicle] = []  # the next of them, in order
        self.rows: dict[bytes, bytes] = {}  # of the next slice, so far
        self.recent: int = 0  # how many more it has, of vehicles which are connected
        self.are_recent: bool = True  # no slice had any other rows
        self.bytes: int = 0  # of both
