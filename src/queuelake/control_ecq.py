"""What can be asked about device mailboxes: the names of the control operations, their answers.

As in control.py, the Structs are the answers of the broker and of the REST API alike. A mailbox is
meant by its owner, the client id of the device.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from queuelake.ecq_settings import RejectPolicy

# Operations, with their arguments.
ECQ_STATUS: Final = "ecq_status"  # -> EcqStatus
ECQ_INSPECT: Final = "ecq_inspect"  # owner -> EcqInspection
ECQ_OWNERS: Final = "ecq_owners"  # limit, cursor -> EcqOwnerPage
ECQ_ENTRIES: Final = "ecq_entries"  # owner, limit, cursor -> EcqEntryPage
ECQ_GC: Final = "ecq_gc"  # -> EcqGcAnswer
ECQ_CONFIG: Final = "ecq_config"  # -> EcqConfigInfo
ECQ_CONFIGURE: Final = "ecq_configure"  # settings (JSON) -> EcqConfigInfo
ECQ_REWIND: Final = "ecq_rewind"  # owner, body (JSON of EcqRewind) -> EcqPosition

OWNERS_PER_PAGE_MAX: Final = 1_000
ENTRIES_PER_PAGE_MAX: Final = 1_000
# A page ends early here, and a longer payload is cut: a control frame has a limit.
PAYLOADS_BYTES_MAX: Final = 4 * 1024 * 1024

EMPTY: Final = "empty"
NONE: Final = "none"

Milliseconds = Annotated[int, Meta(ge=0, description="milliseconds")]
DurationText = Annotated[str, Meta(description='such as "7d", or milliseconds as "604800000"')]
Moment = Annotated[int, Meta(ge=0, description="milliseconds since 1970 (UTC); 0: never")]
Next = Annotated[str | None, Meta(description="`cursor` of the next page; null on the last one")]
Sequence = Annotated[int, Meta(ge=0, description="sequence number in one mailbox")]


class EcqPlace(Struct, frozen=True):
    clientid: str
    seqno: Sequence


class EcqRange(Struct, frozen=True):
    """In the order of the table, which is no order people know."""

    first: EcqPlace
    last: EcqPlace


class EcqStatus(Struct, frozen=True):
    """`ecq_status`: what the tables hold; `seqno` of a consumer state is the acknowledged one."""

    messages: EcqRange | Literal["empty"]
    consumer_states: EcqRange | Literal["empty"]
    number_of_queues: int


class EcqInspection(Struct, frozen=True):
    """`ecq_inspect`: one mailbox; `queue` names its sequence numbers: first, last."""

    acked: Sequence | Literal["none"]
    last_ack_ts: Annotated[str, Meta(description="RFC 3339, or none")]
    queue: Annotated[str, Meta(description='"empty", "[n]", "[a,b]" or "[a,...,b]"')]


class EcqOwner(Struct, frozen=True):
    owner: str
    attached: Annotated[bool, Meta(description="whether it reads now")]
    last: Annotated[Sequence, Meta(description="the last number which was given")]
    written_at_ms: Moment
    acked: Sequence = 0
    acked_at_ms: Moment = 0


class EcqOwnerPage(Struct, frozen=True):
    """`ecq_owners`: in the order of the table, which is no order people know."""

    owners: list[EcqOwner]
    next: Next = None


class EcqEntry(Struct, frozen=True):
    seqno: Sequence
    key: str
    written_at_ms: Moment
    expires_at_ms: Moment
    payload_bytes: int
    payload: Annotated[bytes, Meta(description="base64; cut when it is very long")]


class EcqEntryPage(Struct, frozen=True):
    """`ecq_entries`: what is in one mailbox, the oldest first; acknowledged ones may be there."""

    owner: str
    attached: Annotated[bool, Meta(description="whether it reads now")]
    acked: Sequence
    acked_at_ms: Moment
    entries: list[EcqEntry]
    next: Next = None


class EcqGcAnswer(Struct, frozen=True):
    """`ecq_gc`: false when a run is under way already."""

    started: bool


class EcqRewind(Struct, frozen=True):
    """Where to read again from: exactly one of the three."""

    seqno: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    ts: Annotated[int, Meta(ge=0, description="milliseconds since the epoch")] | UnsetType = UNSET
    to: Literal["first"] | UnsetType = UNSET


class EcqPosition(Struct, frozen=True):
    """`ecq_rewind`: everything above `acked` is delivered again."""

    owner: str
    acked: Sequence


class EcqConfigUpdate(Struct, frozen=True):
    """What may be changed at run time; a key which is not there stays as it is."""

    writer_pool_size: Annotated[int, Meta(ge=0, le=10240)] | UnsetType = UNSET
    data_retention: Milliseconds | DurationText | UnsetType = UNSET
    gc_interval: Milliseconds | DurationText | UnsetType = UNSET
    reader_batch_size: Annotated[int, Meta(ge=1, le=31)] | UnsetType = UNSET
    write_timeout: Milliseconds | DurationText | UnsetType = UNSET
    read_timeout: Milliseconds | DurationText | UnsetType = UNSET
    max_keys_per_queue: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    max_bytes_per_queue: (
        Annotated[int, Meta(ge=0)] | Annotated[str, Meta(description='such as "10MiB"')] | UnsetType
    ) = UNSET
    reject_policy: RejectPolicy | UnsetType = UNSET
    state_retention: Milliseconds | DurationText | UnsetType = UNSET
    puback_no_match: bool | UnsetType = UNSET


class EcqConfigOrigin(Struct, frozen=True):
    """As people wrote it."""

    writer_pool_size: int
    data_retention: str
    gc_interval: str
    reader_batch_size: int
    write_timeout: str
    read_timeout: str
    max_keys_per_queue: int
    max_bytes_per_queue: int
    reject_policy: RejectPolicy
    state_retention: str
    puback_no_match: bool


class EcqConfigInUse(Struct, frozen=True):
    """As it was understood."""

    writer_pool_size: int
    data_retention: Milliseconds
    gc_interval: Milliseconds
    reader_batch_size: int
    write_timeout: Milliseconds
    read_timeout: Milliseconds
    max_keys_per_queue: int
    max_bytes_per_queue: int
    reject_policy: RejectPolicy
    state_retention: Milliseconds
    puback_no_match: bool


class EcqConfigInfo(Struct, frozen=True):
    """`ecq_config`."""

    origin: EcqConfigOrigin
    inuse: EcqConfigInUse


class EcqFigures(Struct, frozen=True):
    """In `metrics`: all mailboxes together. The counters begin at 0 with the broker."""

    queues: Annotated[int, Meta(description="mailboxes in the store")] = 0
    attached: Annotated[int, Meta(description="owners which read now")] = 0
    writes: int = 0
    write_errors_by_reason: dict[str, int] = field(default_factory=dict)
    compacted: Annotated[int, Meta(description="entries replaced by one of the same key")] = 0
    delivered: int = 0
    acked: int = 0
    rejected: int = 0
    dead_lettered: int = 0
    expired: int = 0
    direct_publish_rejected: int = 0
    polls: int = 0
    rewinds: int = 0
    gc_runs: int = 0
