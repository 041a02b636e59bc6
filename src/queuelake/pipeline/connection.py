"""The Flight service as the driver sees it: every call with the structs of `queuelake.flight`.

`endpoint_from` reads where it is from options and the environment; `Connection` makes the calls.
Tasks only need `wire`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa

from queuelake import flight
from queuelake.apikey import read_api_key
from queuelake.errors import RefusedError
from queuelake.pipeline import wire
from queuelake.pipeline.wire import Endpoint
from queuelake.settings import Settings
from queuelake.tables import Table

URI_VARIABLE = "QUEUELAKE_FLIGHT_URI"
TOKEN_VARIABLE = "QUEUELAKE_TOKEN"
DATA_DIR_VARIABLE = "QUEUELAKE_DATA_DIR"
SCHEMES = ("flight", "flight+tls", "grpc", "grpc+tcp", "grpc+tls")
# What says where the service is, in the options of source and sink and of every job.
OPTIONS = ("uri", "token", "tls_ca", "dataDir", "retry_s")
ACTION_S_MAX = 60.0

T = TypeVar("T")


def endpoint_from(options: Mapping[str, str]) -> Endpoint:
    """Where to connect: the options, else the environment, else the defaults of a broker here."""
    environ = os.environ
    uri = options.get("uri") or environ.get(URI_VARIABLE)
    uri = uri or f"flight://127.0.0.1:{Settings().flight.port}"
    parts = urlsplit(uri)
    if parts.scheme not in SCHEMES or not parts.hostname or not parts.port:
        raise RefusedError(
            f"option 'uri': {uri!r} is not flight://HOST:PORT or flight+tls://HOST:PORT"
        )
    token = options.get("token") or environ.get(TOKEN_VARIABLE)
    if not token:
        data_dir = options.get("dataDir") or environ.get(DATA_DIR_VARIABLE) or Settings().data_dir
        token = read_api_key(Path(data_dir).expanduser())
    return Endpoint(uri, token, _read_roots(options.get("tls_ca")), _read_retry(options))


def _read_roots(path: str | None) -> str:
    """The certificates themselves: a task may run where the file is not."""
    if not path:
        return ""
    try:
        return Path(path).read_text()
    except OSError as error:
        raise RefusedError(f"option 'tls_ca': {path!r} cannot be read: {error.strerror}") from None


def _read_retry(options: Mapping[str, str]) -> float:
    text = options.get("retry_s")
    if text is None:
        return Endpoint.retry_s
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if value < 0:
        raise RefusedError(f"option 'retry_s': {text!r} is not a number of seconds")
    return value


class Connection:
    """Calls to the Flight service. Those which nobody answers are made again for `retry_s`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._client = wire.connect(endpoint)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def shards(
        self, table: Table = "messages", queue: str = "*", ts_ms: int = 0
    ) -> list[flight.Shard]:
        """How far each shard of these queues reaches."""
        asked = flight.ShardsAsked(table, queue, ts_ms)
        found: list[flight.Shard] = []
        for body in self._act(flight.SHARDS, asked):
            found += msgspec.json.decode(body, type=list[flight.Shard])
        return found

    def read(self, wanted: flight.Range) -> Iterator[pa.RecordBatch]:
        return wire.read_rows(self.endpoint, msgspec.to_builtins(wanted))

    def stage(self, stage: flight.Stage, batches: Iterator[pa.RecordBatch]) -> flight.Staged | None:
        """Rows on the stage, as one file to be named in the commit; None when there are no rows."""
        answer = wire.stage_rows(self.endpoint, msgspec.to_builtins(stage), batches)
        return None if answer is None else msgspec.convert(answer, flight.Staged)

    def commit(self, asked: flight.CommitAsked) -> flight.Committed:
        # As long as it takes: a large batch is copied in slices while others are served.
        return self._ask(flight.COMMIT, asked, flight.Committed, timeout_s=None)

    def abort(self, job: str, batch: int) -> None:
        self._act(flight.ABORT, flight.AbortAsked(job, batch))

    def lease(self, asked: flight.LeaseAsked) -> flight.Lease:
        return self._ask(flight.LEASE, asked, flight.Lease)

    def release(self, lease: flight.Lease) -> None:
        self._act(flight.RELEASE, lease)

    def archived(self, told: flight.ArchivedTold) -> None:
        self._act(flight.ARCHIVED, told)

    def job(self, told: flight.JobTold) -> flight.JobAnswer:
        return self._ask(flight.JOB, told, flight.JobAnswer)

    def call(self, op: str, args: dict[str, object] | None = None) -> object:
        """A control operation of `flight.CALLS`, with its answer as plain values."""
        body = b"".join(self._act(flight.CALL, flight.Call(op, args or {})))
        return msgspec.json.decode(body)

    def _ask(
        self,
        action: str,
        message: msgspec.Struct,
        kind: type[T],
        timeout_s: float | None = ACTION_S_MAX,
    ) -> T:
        return msgspec.json.decode(b"".join(self._act(action, message, timeout_s)), type=kind)

    def _act(
        self, action: str, message: msgspec.Struct, timeout_s: float | None = ACTION_S_MAX
    ) -> list[bytes]:
        body = flight.encode(message)
        return wire.act(self._client, self.endpoint, action, body, timeout_s)
