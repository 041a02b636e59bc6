"""What a task of Spark needs of the Flight service: rows out of a range, rows onto a stage.

Rule 1. Only the standard library and pyarrow, and functions and classes of our own which need no
        more: then this also works on nodes where the package is not installed but arrives with
        the job, pickled by value.
Rule 2. The export process may go away and come back at any time. What can be done again is done
        again, for as long as `retry_s` goes by without progress; only then is it an error.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import flight

from queuelake.errors import (
    AnswerError,
    BadCredentialsError,
    BrokerDownError,
    LeaseLostError,
    LeaseTakenError,
    NotAuthorizedError,
    NotFoundError,
    QueuelakeError,
    RefusedError,
)
from queuelake.flight import parse_error

BACKOFF_S_MIN = 0.1
BACKOFF_S_MAX = 2.0
# Of a task's rows this much is kept until the stage has them: so far it can begin again by itself.
# Beyond that a lost connection fails the task, and Spark runs it again.
RESEND_BYTES_MAX = 64 * 1024 * 1024
# A server whose machine vanished without a word is noticed; gRPC servers dislike quicker pings.
KEEPALIVE_MS = 310_000


@dataclass(frozen=True)
class Endpoint:
    """Where the Flight service is and how to enter; goes to every task."""

    uri: str
    token: str
    tls_ca: str = ""  # PEM text of the certificates to trust; empty: those of this machine
    retry_s: float = 60.0

    def __repr__(self) -> str:
        return f"Endpoint({self.uri!r})"  # never the token: Spark logs what it pickles


def connect(endpoint: Endpoint) -> flight.FlightClient:
    """A client; nothing is sent yet."""
    options: list[tuple[str, int | str]] = [
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        # Else gRPC itself waits up to two minutes before it looks again whether the server is back.
        ("grpc.max_reconnect_backoff_ms", int(1000 * BACKOFF_S_MAX)),
    ]
    roots = endpoint.tls_ca.encode() or None
    uri = endpoint.uri
    if uri.startswith("flight"):  # as the broker calls it; Arrow says what is below
        uri = uri.replace("flight", "grpc", 1)
    try:
        return flight.FlightClient(uri, tls_root_certs=roots, generic_options=options)
    except pa.ArrowException as error:
        raise RefusedError(f"uri {endpoint.uri!r}: {error}") from None


def call_options(endpoint: Endpoint, timeout_s: float | None = None) -> flight.FlightCallOptions:
    bearer = f"Bearer {endpoint.token}".encode()
    return flight.FlightCallOptions(timeout=timeout_s, headers=[(b"authorization", bearer)])


def act(
    client: flight.FlightClient,
    endpoint: Endpoint,
    action: str,
    body: bytes,
    timeout_s: float | None = None,
) -> list[bytes]:
    """Every result of an action, again and again while nobody answers."""
    patience = Patience(endpoint)
    while True:
        try:
            options = call_options(endpoint, timeout_s)
            results = client.do_action(flight.Action(action, body), options)
            return [result.body.to_pybytes() for result in results]
        except flight.FlightError as error:
            patience.after(error)


def read_rows(endpoint: Endpoint, ticket: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """The rows of a `flight.Range`; after an interruption from the row at which it happened."""
    columns: list[str] = ticket.get("columns", [])
    place = dict(ticket)
    if columns and "seqno" not in columns:
        place["columns"] = [*columns, "seqno"]
    patience = Patience(endpoint)
    with connect(endpoint) as client:
        while True:
            try:
                asked = flight.Ticket(json.dumps(place).encode())
                for chunk in client.do_get(asked, call_options(endpoint)):
                    batch = chunk.data
                    if batch.num_rows == 0:
                        continue
                    place["after"] = batch.column("seqno")[-1].as_py()
                    patience.renew()
                    yield batch.select(columns) if columns else batch
                return
            except flight.FlightError as error:
                patience.after(error)


def stage_rows(
    endpoint: Endpoint, stage: dict[str, Any], batches: Iterator[pa.RecordBatch]
) -> dict[str, Any] | None:
    """Put rows onto the stage as one file; the answer is a `flight.Staged`. None: no rows."""
    kept = Kept(batches)
    patience = Patience(endpoint)
    attempt = 0
    with connect(endpoint) as client:
        while (first := kept.first()) is not None:
            named = dict(stage, task=f"{stage['task']}-{attempt}")
            try:
                return _put(client, endpoint, named, first.schema, kept.replay())
            except flight.FlightError as error:
                if not kept.whole:
                    raise translated(error, endpoint) from None
                patience.after(error)
                attempt += 1
    return None


def _put(
    client: flight.FlightClient,
    endpoint: Endpoint,
    stage: dict[str, Any],
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
) -> dict[str, Any]:
    command = flight.FlightDescriptor.for_command(json.dumps(stage).encode())
    writer, reader = client.do_put(command, schema, call_options(endpoint))
    answer: dict[str, Any] | None = None
    try:
        for batch in batches:
            writer.write_batch(batch)
        writer.done_writing()
        metadata = reader.read()
        if metadata is not None:
            answer = json.loads(metadata.to_pybytes())
    finally:
        # The server's own error comes with the end of the call, and hides what the write said.
        writer.close()
    if answer is None:
        raise flight.FlightServerError("INTERNAL_ERROR: rows were sent, and nothing was answered")
    return answer


class Kept:
    """Batches which can be begun again, while they are few."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._rest = (batch for batch in batches if batch.num_rows)
        self._kept: list[pa.RecordBatch] = []
        self._bytes = 0
        self.whole = True  # nothing was given away which is not kept

    def first(self) -> pa.RecordBatch | None:
        if not self._kept:
            batch = next(self._rest, None)
            if batch is not None:
                self._keep(batch)
        return self._kept[0] if self._kept else None

    def replay(self) -> Iterator[pa.RecordBatch]:
        yield from tuple(self._kept)
        for batch in self._rest:
            self._keep(batch)
            yield batch

    def _keep(self, batch: pa.RecordBatch) -> None:
        self._bytes += batch.nbytes
        if self._bytes <= RESEND_BYTES_MAX:
            self._kept.append(batch)
        else:
            self.whole = False
            self._kept.clear()


class Patience:
    """Waits a little longer after each failure, and gives up `retry_s` after the last progress."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.renew()

    def renew(self) -> None:
        self._deadline = time.monotonic() + self._endpoint.retry_s
        self._backoff_s = BACKOFF_S_MIN

    def after(self, error: flight.FlightError) -> None:
        """Wait, if another attempt makes sense; else raise the error in our words."""
        problem = translated(error, self._endpoint)
        if not isinstance(problem, BrokerDownError):
            raise problem from None
        if time.monotonic() + self._backoff_s > self._deadline:
            raise problem from None
        time.sleep(self._backoff_s)
        self._backoff_s = min(2 * self._backoff_s, BACKOFF_S_MAX)


def translated(error: flight.FlightError, endpoint: Endpoint) -> QueuelakeError:
    """The error of the server as ours, with the server's words."""
    code, words = parse_error(str(error))
    if isinstance(error, flight.FlightUnauthenticatedError):
        return BadCredentialsError(f"{endpoint.uri}: {words}")
    if isinstance(error, flight.FlightUnauthorizedError):
        return NotAuthorizedError(words)
    if isinstance(error, flight.FlightUnavailableError | flight.FlightTimedOutError):
        return BrokerDownError(f"no answer from {endpoint.uri}: {words}")
    if isinstance(error, flight.FlightServerError):
        known = (NotFoundError, NotAuthorizedError, RefusedError, LeaseTakenError, LeaseLostError)
        classes = {kind.code: kind for kind in known}
        if code in classes:
            return classes[code](words)
        return AnswerError(code, words, 500)
    return QueuelakeError(f"{endpoint.uri}: {words}")
