"""What can be asked about vehicle fan-out: the names of the control operations, their answers.

As in control.py, the Structs are the answers of the broker and of the REST API alike. A vehicle is
meant by its VIN, which is its client id.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType, field

from queuelake.sdv_settings import OnInvalid, OnReject, SameRequest

# Operations, with their arguments.
SDV_STATUS: Final = "sdv_status"  # -> SdvStatus
SDV_INSPECT: Final = "sdv_inspect"  # vin -> SdvVehicle
SDV_REQUEST: Final = "sdv_request"  # request_id -> SdvRequest
SDV_REQUESTS: Final = "sdv_requests"  # limit, cursor -> SdvRequestPage
SDV_CANCEL: Final = "sdv_cancel"  # request_id, vins (none: of every vehicle) -> SdvCancelled
SDV_GC: Final = "sdv_gc"  # -> SdvGcAnswer
SDV_CONFIG: Final = "sdv_config"  # -> SdvConfigInfo
SDV_CONFIGURE: Final = "sdv_configure"  # settings (JSON) -> SdvConfigInfo

ROWS_PER_INSPECTION_MAX: Final = 1_000
REQUESTS_PER_PAGE_MAX: Final = 1_000
REQUESTS_PER_SCRAPE_MAX: Final = 100
VINS_PER_CANCEL_MAX: Final = 100_000
TIME_TO_ACK_BOUNDS_S: Final = [
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
    *(5.0, 10.0, 30.0, 60.0, 300.0, 3600.0, 86400.0),
]

Milliseconds = Annotated[int, Meta(ge=0, description="milliseconds")]
Moment = Annotated[int, Meta(ge=0, description="milliseconds since the epoch")]
DurationText = Annotated[str, Meta(description='such as "7d", or milliseconds as "604800000"')]
Bytes = Annotated[int, Meta(ge=0, description="bytes")]


class SdvDataUsage(Struct, frozen=True):
    payload: Bytes
    meta: Bytes


class SdvMemoryUsage(Struct, frozen=True):
    """Keys and values in the store; nothing of it has to be in memory."""

    index: Bytes
    data: SdvDataUsage


class SdvStatus(Struct, frozen=True):
    """`sdv_status`."""

    remaining_messages: int
    unique_payloads: int
    memory_usage: SdvMemoryUsage


class SdvPending(Struct, frozen=True):
    ts: Moment
    request_id: str
    data_id: str
    has_data: bool


class SdvInFlight(Struct, frozen=True):
    ts: Moment
    request_id: str
    data_id: str
    sent_at_ms: Annotated[int, Meta(description="or found in the session when it was resumed")]


class SdvVehicle(Struct, frozen=True):
    """`sdv_inspect`: the rows of one vehicle, oldest first; the one in flight is among them."""

    vin: str
    connected: bool
    subscribed: bool
    in_flight: SdvInFlight | None
    pending: list[SdvPending]
    has_more: bool


class SdvRequest(Struct, frozen=True):
    """`sdv_request`: how far a request has come; one which is in flight is not pending any more."""

    request_id: str
    last_trigger_ms: Moment
    triggered: Annotated[int, Meta(description="rows of all triggers with this request")]
    pending: int
    in_flight: int
    acked: int
    rejected: int
    expired: int
    cancelled: int
    dropped: Annotated[int, Meta(description="replaced, or over max_pending_per_vehicle")]


class SdvRequestPage(Struct, frozen=True):
    """`sdv_requests`: in the order of the table, which is no order people know."""

    data: list[SdvRequest]
    cursor: Annotated[str, Meta(description="of the next page")] | None


class SdvCancelled(Struct, frozen=True):
    """`sdv_cancel`: what is on its way to a vehicle cannot be called back."""

    request_id: str
    cancelled: int
    in_flight: int


class SdvGcAnswer(Struct, frozen=True):
    """`sdv_gc`: false when a run is under way already."""

    started: bool


class SdvConfigUpdate(Struct, frozen=True):
    """What may be changed at run time; a key which is not there stays as it is."""

    dispatcher_pool_size: Annotated[int, Meta(ge=0, le=10240)] | UnsetType = UNSET
    data_retention: Milliseconds | DurationText | UnsetType = UNSET
    gc_interval: Milliseconds | DurationText | UnsetType = UNSET
    topic_prefix: str | UnsetType = UNSET
    same_request: SameRequest | UnsetType = UNSET
    on_invalid: OnInvalid | UnsetType = UNSET
    on_reject: OnReject | UnsetType = UNSET
    keep_referenced: bool | UnsetType = UNSET
    verify_sha1: bool | UnsetType = UNSET
    heartbeat_topics: list[str] | UnsetType = UNSET
    max_pending_per_vehicle: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    ack_timeout: Milliseconds | DurationText | UnsetType = UNSET


class SdvConfigOrigin(Struct, frozen=True):
    """As people wrote it."""

    dispatcher_pool_size: int
    data_retention: str
    gc_interval: str
    topic_prefix: str
    same_request: SameRequest
    on_invalid: OnInvalid
    on_reject: OnReject
    keep_referenced: bool
    verify_sha1: bool
    heartbeat_topics: list[str]
    max_pending_per_vehicle: int
    ack_timeout: str


class SdvConfigInUse(Struct, frozen=True):
    """As it was understood."""

    dispatcher_pool_size: int
    data_retention: Milliseconds
    gc_interval: Milliseconds
    topic_prefix: str
    same_request: SameRequest
    on_invalid: OnInvalid
    on_reject: OnReject
    keep_referenced: bool
    verify_sha1: bool
    heartbeat_topics: list[str]
    max_pending_per_vehicle: int
    ack_timeout: Milliseconds


class SdvConfigInfo(Struct, frozen=True):
    """`sdv_config`."""

    origin: SdvConfigOrigin
    inuse: SdvConfigInUse


class SdvFigures(Struct, frozen=True):
    """In `metrics`. The counters begin at 0 with the broker."""

    pending: int = 0
    inflight: int = 0
    unique_payloads: int = 0
    dispatched_by_trigger: Annotated[
        dict[str, int], Meta(description="batch, heartbeat, ack, subscribe, data")
    ] = field(default_factory=dict)
    acked: int = 0
    rejected: int = 0
    expired: int = 0
    missing_data: Annotated[int, Meta(description="rows passed over for want of their data")] = 0
    trigger_invalid: int = 0
    triggers: int = 0
    dropped: int = 0
    dead_lettered: int = 0
    gc_runs: int = 0
    time_to_ack_counts: list[int] = field(
        default_factory=lambda: [0] * (len(TIME_TO_ACK_BOUNDS_S) + 1)
    )
    time_to_ack_sum_s: float = 0.0
    requests: Annotated[
        list[SdvRequest], Meta(description="those used last, at most a hundred")
    ] = field(default_factory=list)
