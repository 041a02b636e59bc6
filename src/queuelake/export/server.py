"""The Flight service: `flight.py` says what it answers. Threads of gRPC call these methods."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
from pyarrow import flight

from queuelake import control, control_client, control_pipeline
from queuelake import flight as contract
from queuelake.apikey import Caller, KeyFile, Role
from queuelake.control import ExportStart
from queuelake.errors import BrokerDownError, QueuelakeError, RefusedError
from queuelake.export.auth import MIDDLEWARE, RequireKey, caller_with_role
from queuelake.export.ranges import read_range
from queuelake.export.shards import find_shards, queue_flags
from queuelake.export.staging import Staging
from queuelake.export.stores import Stores

STREAMS_MAX: Final = 32
STREAM_WAIT_S: Final = 30.0
CALL_TIMEOUT_S: Final = 30.0
READING_CALLS: Final = frozenset({"batch", "sdv_request", "status"})  # of `flight.CALLS`

# Actions which the broker answers: the type of their body, and the name of the operation.
_FORWARDED: Final[dict[str, tuple[type[msgspec.Struct], str]]] = {
    contract.LEASE: (contract.LeaseAsked, control_pipeline.LAKE_LEASE),
    contract.RELEASE: (contract.Lease, control_pipeline.LAKE_RELEASE),
    contract.JOB: (contract.JobTold, control_pipeline.JOB_TOLD),
}

T = TypeVar("T")

log = logging.getLogger("queuelake.export")


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves from its construction until `shutdown`."""

    def __init__(self, start: ExportStart, stores: Stores) -> None:
        self._data_dir = Path(start.data_dir)
        self._stores = stores
        self._staging = Staging(stores)
        self._streams = threading.BoundedSemaphore(STREAMS_MAX)
        host = f"[{start.bind}]" if ":" in start.bind else start.bind
        pairs = None
        if start.certificate:
            pairs = [(Path(start.certificate).read_bytes(), Path(start.key).read_bytes())]
        super().__init__(
            f"{'grpc+tls' if pairs else 'grpc'}://{host}:{start.port}",
            tls_certificates=pairs,
            middleware={MIDDLEWARE: RequireKey(KeyFile(self._data_dir))},
        )

    def do_get(self, _context: Any, ticket: flight.Ticket) -> flight.GeneratorStream:
        with _as_flight_errors():
            wanted = _decode(ticket.ticket, contract.Range)
            schema, batches = read_range(self._stores.of_queue(wanted.queue_id), wanted)
        return flight.GeneratorStream(schema, self._stream(batches))

    def _stream(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Taken here, not in do_get: a generator which was never started releases nothing.
        if not self._streams.acquire(timeout=STREAM_WAIT_S):
            raise flight.FlightUnavailableError(
                f"TOO_MANY_REQUESTS: {STREAMS_MAX} reads are under way; come later"
            )
        try:
            with _as_flight_errors():
                yield from batches
        finally:
            self._streams.release()

    def do_put(
        self, context: Any, descriptor: flight.FlightDescriptor, reader: Any, writer: Any
    ) -> None:
        with _as_flight_errors(), _on_behalf_of(caller_with_role(context, "operator")):
            stage = _decode(descriptor.command or b"", contract.Stage)
            self._staging.do_put(stage, reader, writer)

    def do_action(self, context: Any, action: flight.Action) -> Iterator[flight.Result]:
        name, body = action.type, action.body.to_pybytes()
        with _as_flight_errors():
            if name == contract.SHARDS:
                asked = _decode(body, contract.ShardsAsked)
                for found in self._shards(asked):
                    yield flight.Result(msgspec.json.encode(found))
                return
            with _on_behalf_of(caller_with_role(context, _needed_role(name, body))):
                answer = self._answer(name, body)
            yield flight.Result(msgspec.json.encode(answer))

    def _shards(self, asked: contract.ShardsAsked) -> Iterator[list[contract.Shard]]:
        for number, store in enumerate(self._stores.readers):
            yield from find_shards(store, queue_flags(self._stores, number), asked)

    def _answer(self, name: str, body: bytes) -> object:
        if name == contract.COMMIT:
            return self._staging.commit(_decode(body, contract.CommitAsked))
        if name == contract.ABORT:
            self._staging.abort(_decode(body, contract.AbortAsked))
            return None
        if name == contract.ARCHIVED:
            self._archived(_decode(body, contract.ArchivedTold))
            return None
        if name == contract.CALL:
            call = _decode(body, contract.Call)
            if call.op not in contract.CALLS:
                allowed = ", ".join(sorted(contract.CALLS))
                raise RefusedError(f"operation {call.op!r} cannot be called; allowed: {allowed}")
            if call.op == control_pipeline.BATCH:
                return self._staging.batch(call.args)
            return self._broker(call.op, call.args)
        if name in _FORWARDED:
            kind, operation = _FORWARDED[name]
            return self._broker(operation, msgspec.to_builtins(_decode(body, kind)))
        raise RefusedError(f"there is no action {name!r}")

    def _archived(self, told: contract.ArchivedTold) -> None:
        for number, part in enumerate(self._stores.divide(told)):
            args = msgspec.to_builtins(part)
            self._stores.ask(number, control_pipeline.LAKE_ARCHIVED, args, CALL_TIMEOUT_S)

    def _broker(self, operation: str, args: dict[str, object]) -> object:
        return control_client.call(self._data_dir, operation, args, CALL_TIMEOUT_S)

    def list_actions(self, _context: Any) -> list[tuple[str, str]]:
        return [
            (contract.SHARDS, "how far the shards of queues reach"),
            (contract.COMMIT, "make staged rows visible"),
            (contract.ABORT, "forget staged rows"),
            (contract.CALL, "an operation of the broker"),
            (contract.ARCHIVED, "what the lake has"),
            *[(name, f"the broker's {operation}") for name, (_, operation) in _FORWARDED.items()],
        ]


def _needed_role(action: str, body: bytes) -> Role:
    """What somebody must be to have this done."""
    if action == contract.CALL and _decode(body, contract.Call).op in READING_CALLS:
        return "viewer"
    return "operator"


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise RefusedError(f"this is no {kind.__name__}: {error}") from None


@contextlib.contextmanager
def _on_behalf_of(caller: Caller) -> Iterator[None]:
    token = control.CALLER.set(caller.name)
    try:
        yield
    finally:
        control.CALLER.reset(token)


@contextlib.contextmanager
def _as_flight_errors() -> Iterator[None]:
    """Errors as `flight.py` describes them. What nobody expected goes to the log whole."""
    try:
        yield
    except flight.FlightError:
        raise
    except QueuelakeError as error:
        # Also when a node says it of another one.
        is_down = error.code == BrokerDownError.code
        kind = flight.FlightUnavailableError if is_down else flight.FlightServerError
        raise kind(f"{error.code}: {error}") from None
    except Exception:
        log.exception("a call failed")
        raise flight.FlightServerError(
            "INTERNAL_ERROR: the call failed; see the broker's log"
        ) from None
