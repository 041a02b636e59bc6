"""The control protocol: how the admin process and the CLI ask the broker, over a Unix socket.

A frame is a 4-byte big-endian length and one msgpack message. The caller sends a `Request`, the
broker answers with one `Response` of the same id, in any order. Rules:

- Only the user who runs the broker may connect: the socket has mode 0600.
- The socket is `<data-dir>/control.sock`. Where that path is longer than the system allows, the
  broker makes a private directory instead and writes the path to `<data-dir>/control.path`.
- A call is never sent twice: after a lost connection the *next* call connects again.
- The answers of the broker's operations are the Structs in the middle of this file, and the
  same Structs are the answers of the REST API.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from queuelake.control_cluster import ClusterFigures
from queuelake.control_ecq import EcqFigures
from queuelake.control_mq import MqFigures
from queuelake.control_pipeline import ArchiveFigures
from queuelake.control_queues import QueueMetrics
from queuelake.control_sdv import SdvFigures
from queuelake.errors import FrameError
from queuelake.settings import Console, Log

FRAME_BYTES_MAX = 16 * 1024 * 1024
LENGTH_BYTES = 4
CHILD_STARTED = "child_started"  # a child process says that its addresses answer
SOCKET_NAME = "control.sock"
SOCKET_POINTER_NAME = "control.path"
# sun_path holds 108 bytes on Linux and 104 on macOS, with the NUL at its end.
SOCKET_PATH_BYTES_MAX = 103

# On whose behalf this task asks, for the audit.
CALLER: ContextVar[str] = ContextVar("caller", default="")

T = TypeVar("T")


# The envelope.


class Request(Struct, frozen=True):
    """`caller`: on whose behalf; empty: the user who runs the broker, from a shell."""

    id: int
    op: str
    args: dict[str, object] = {}
    caller: str = ""


class Failure(Struct, frozen=True):
    code: str
    message: str
    http_status: int


class Response(Struct, frozen=True):
    id: int
    ok: bool
    result: msgspec.Raw = msgspec.Raw(b"\xc0")
    error: Failure | None = None


# The answers of the operations.


class Problem(Struct, frozen=True):
    """Every error of the REST API, whatever its status."""

    code: str
    message: str


class Readiness(Struct, frozen=True, omit_defaults=True):
    """`readiness`: whether clients can be served now, and if not, every reason."""

    ready: bool
    reasons: list[str] = []


class Status(Struct, frozen=True):
    """`status`: what runs, since when, where, and how much of it."""

    version: str
    compiled: Annotated[bool, Meta(description="whether the hot path is compiled")]
    started_at_ms: Annotated[int, Meta(description="milliseconds since 1970 (UTC)")]
    uptime_s: float
    addresses: Annotated[dict[str, str], Meta(description="listener name to URL")]
    connections: int = 0
    sessions: int = 0
    subscriptions: int = 0
    retained_messages: int = 0


class ClientInfo(Struct, frozen=True):
    """`client`: one client, connected or with a session which waits for it."""

    client_id: str
    connected: bool
    username: str | None = None
    address: Annotated[str | None, Meta(description="host:port, while connected")] = None
    listener: str | None = None
    protocol_level: Annotated[int | None, Meta(description="3, 4 (3.1.1) or 5")] = None
    connected_at_ms: Annotated[int | None, Meta(description="milliseconds since 1970 (UTC)")] = None
    keepalive_s: int = 0
    clean_start: bool = False
    session_expiry_s: Annotated[int, Meta(description="4294967295: never")] = 0
    subscriptions: int = 0
    inflight_messages: int = 0
    queued_messages: int = 0
    queued_bytes: int = 0


class ClientPage(Struct, frozen=True):
    """`clients` {limit, cursor, search}: sorted by client id; `next_cursor` null: no more."""

    items: list[ClientInfo]
    next_cursor: str | None = None


class Histogram(Struct, frozen=True):
    """Observations by size: `counts[i]` are those up to `bounds[i]` and above the bound before it.

    `counts` has one more entry than `bounds`, for what is above the last bound.
    """

    bounds: list[float] = []
    counts: list[int] = field(default_factory=lambda: [0])
    sum: float = 0.0


class MetricsSnapshot(Struct, frozen=True):
    """`metrics`: every counter since the start, and every gauge now. `*_by_qos` are [0, 1, 2]."""

    version: str
    compiled: bool
    ready: bool = False
    started_at_s: float = 0.0
    connections: int = 0
    sessions: int = 0
    sessions_persistent: int = 0
    subscriptions: int = 0
    retained_messages: int = 0
    messages_received_by_qos: list[int] = field(default_factory=lambda: [0, 0, 0])
    messages_sent_by_qos: list[int] = field(default_factory=lambda: [0, 0, 0])
    messages_dropped_by_reason: dict[str, int] = {}
    bytes_received: int = 0
    bytes_sent: int = 0
    publish_refused: int = 0
    denied_by_action: dict[str, int] = {}
    connects: int = 0
    disconnects_by_reason: dict[str, int] = {}
    logins_refused_by_reason: dict[str, int] = {}
    commit_duration_s: Histogram = Histogram()
    commit_group_messages: Histogram = Histogram()
    commit_failures: int = 0
    loop_lag_s: Annotated[float, Meta(description="now")] = 0.0
    loop_lags_s: Histogram = Histogram()
    store_bytes: int = 0
    store_map_bytes: int = 0
    store_free_bytes: int = 0
    store_bytes_max: int = 0
    disk_free_bytes: int = 0
    resident_memory_bytes: int = 0
    cpu_s: float = 0.0
    open_files: int = 0
    open_files_max: int = 0
    child_restarts: dict[str, int] = {}
    audit_entries: int = 0
    audit_failures: int = 0
    queues: int = 0
    queue_metrics: Annotated[list[QueueMetrics], Meta(description="the largest queues")] = []
    queues_left_out: int = 0
    webhook_alerts_by_result: dict[str, int] = {}
    spans_by_result: dict[str, int] = {}
    mq: Annotated[MqFigures, Meta(description="message queues")] = MqFigures()
    ecq: Annotated[EcqFigures, Meta(description="device mailboxes")] = EcqFigures()
    sdv: Annotated[SdvFigures, Meta(description="vehicle fan-out")] = SdvFigures()
    archive: ArchiveFigures = ArchiveFigures()
    cluster: Annotated[list[ClusterFigures], Meta(description="by shard; empty: no cluster")] = []


class GrpcStart(Struct, frozen=True):
    """Where the admin process serves gRPC, and with TLS when there is a certificate."""

    bind: str
    port: int
    certificate: str = ""
    key: str = ""


class AdminStart(Struct, frozen=True):
    """The one line of JSON which the admin process reads from its standard input at its start."""

    data_dir: str
    fd: int
    log: Log = Log()
    lake: str = ""  # lake.path
    console: Console = Console()
    grpc: GrpcStart | None = None


class ExportStart(Struct, frozen=True):
    """The same line for the export process."""

    data_dir: str
    bind: str
    port: int
    certificate: str = ""
    key: str = ""
    log: Log = Log()
    stores: int = 1  # of the node: one for each shard of its cluster
    heartbeats: list[str] = []  # topics which are where their vehicle is


def encode_frame(message: Request | Response) -> bytes:
    body = msgspec.msgpack.encode(message)
    if len(body) > FRAME_BYTES_MAX:
        raise FrameError(f"control frame of {len(body)} bytes; the limit is {FRAME_BYTES_MAX}")
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def frame_length(head: bytes) -> int:
    """Read the length in front of a frame, and refuse it before its bytes are waited for."""
    length = int.from_bytes(head, "big")
    if length > FRAME_BYTES_MAX:
        raise FrameError(f"control frame of {length} bytes; the limit is {FRAME_BYTES_MAX}")
    return length


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """Return the body of the next frame, or None when the other side has closed."""
    try:
        length = frame_length(await reader.readexactly(LENGTH_BYTES))
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def socket_path(data_dir: Path) -> Path:
    """Where the broker of this data directory listens, if it runs."""
    with contextlib.suppress(FileNotFoundError):
        return Path((data_dir / SOCKET_POINTER_NAME).read_text(encoding="utf-8").strip())
    return data_dir.resolve() / SOCKET_NAME
