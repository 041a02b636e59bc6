"""The log of a shard, and the record of who owns it, in JetStream.

The log is a stream with one subject: a position is its sequence. An append names the sequence it
must follow, so the stream refuses what comes from somebody who does not know its end. Reads are
answered by the nearest copy, which may be behind; only what a majority has is in a copy.

Parts are sent one after the other, each after the one before it was confirmed. Sent at once they
would be faster by a few milliseconds, but wrong: when somebody else appends before the second part,
that one is refused, and the third one, which names the position of the second, is not.
"""

from __future__ import annotations

import base64
import time
from typing import Any, Final

import msgspec
from nats.aio.msg import Msg

from queuelake.cluster.engine import (
    ConflictingWriteError,
    EngineError,
    Lease,
    TruncatedError,
    UnavailableError,
    UnknownOutcomeError,
)
from queuelake.cluster.nats_link import (
    Answer,
    ApiError,
    Link,
    NoAnswerError,
    read_answer,
    status_of,
)

PART_BYTES_MAX: Final = 1024 * 1024
# JetStream counts the headers of a message; it adds some to what it gives out.
HEADER_BYTES_MAX: Final = 1024
# Answers of so many parts are below what a server lets wait for a client (64 MiB).
READS_IN_FLIGHT_MAX: Final = 16
# How often a reader at the end of the log makes sure that the log did not begin anew behind it.
ENDS_INTERVAL_S: Final = 5.0

# Numbers of the JetStream API: the stream, or the record, is not at the expected sequence.
WRONG_LAST_SEQUENCE: Final = (10071, 10164)
NO_MESSAGE: Final = 10037


class NatsLog:
    """The log of one shard: `Log` of the engine."""

    def __init__(self, link: Link, stream: str, subject: str, state: dict[str, Any]) -> None:
        self.part_bytes_max = min(PART_BYTES_MAX, link.payload_bytes_max) - HEADER_BYTES_MAX
        self._link = link
        self._stream = stream
        self._subject = subject
        self._last_seen = int(state["last_seq"])
        self._ends_seen_s = time.monotonic()

    async def append(self, parts: list[bytes], after: int) -> int:
        for part in parts:
            assert len(part) <= self.part_bytes_max, "a part is longer than it may be"
            position = await _write(
                self._link, self._subject, part, {"Nats-Expected-Last-Sequence": str(after)}
            )
            if position != after + 1:
                raise UnknownOutcomeError(f"appended at {position} instead of {after + 1}")
            after = position
        self._last_seen = max(self._last_seen, after)
        return after

    async def read(self, position: int, count: int) -> list[bytes]:
        values: list[bytes] = []
        in_flight = 1
        while len(values) < count:
            first = position + len(values)
            asked = min(in_flight, count - len(values))
            found = await self._read_some(first, asked)
            values += found
            if len(found) < asked:
                break
            # Most who read are at the end, and there is one; who finds more is behind.
            in_flight = min(2 * in_flight, READS_IN_FLIGHT_MAX)
        if values:
            self._last_seen = max(self._last_seen, position + len(values) - 1)
        else:
            await self._check_truncation(position)
        return values

    async def ends(self) -> tuple[int, int]:
        state = await self._state()
        last = int(state["last_seq"])
        first = int(state["first_seq"]) if state["messages"] else last + 1
        self._last_seen = max(self._last_seen, last)
        self._ends_seen_s = time.monotonic()
        return first, last

    async def size_bytes(self) -> int:
        return int((await self._state())["bytes"])

    async def truncate(self, upto: int) -> None:
        # To purge behind the end would move the end.
        last = (await self.ends())[1]
        await self._call(f"STREAM.PURGE.{self._stream}", {"seq": min(upto, last) + 1})

    async def _read_some(self, first: int, count: int) -> list[bytes]:
        """The values here of `count` positions, up to the first one that is not here."""
        try:
            asked = [self._ask(position) for position in range(first, first + count)]
            answers = await self._link.answers(asked)
        except NoAnswerError as error:
            raise UnavailableError(f"position {first} of the log: {error}") from error
        values: list[bytes] = []
        for position, answer in enumerate(answers, first):
            status = status_of(answer)
            if status == 404:
                break
            if status:
                raise UnavailableError(f"position {position} of the log: status {status}")
            if _sequence(answer) != position:
                await self._check_hole(position)
                break
            values.append(answer.data)
        return values

    def _ask(self, position: int) -> Answer:
        """Ask for the first value from a position on: more than its own says that it is gone."""
        question = {"seq": position, "next_by_subj": self._subject}
        subject = f"$JS.API.DIRECT.GET.{self._stream}"
        return self._link.ask(subject, msgspec.json.encode(question))

    async def _check_hole(self, position: int) -> None:
        first, _ = await self.ends()
        if position < first:
            raise TruncatedError(f"position {position} of the log is gone, it begins at {first}")
        raise UnavailableError(f"position {position} is missing in the copy which answered")

    async def _check_truncation(self, position: int) -> None:
        """Nothing is here from this position on. Not yet, or was all of it forgotten?"""
        idle_s = time.monotonic() - self._ends_seen_s
        if position > self._last_seen and idle_s < ENDS_INTERVAL_S:
            return
        try:
            first, _ = await self.ends()
        except UnavailableError:
            return  # without a leader nobody truncates
        if position < first:
            raise TruncatedError(f"position {position} of the log is gone, it begins at {first}")

    async def _state(self) -> dict[str, Any]:
        info = await self._call(f"STREAM.INFO.{self._stream}", {})
        state: dict[str, Any] = info["state"]
        return state

    async def _call(self, subject: str, body: object) -> dict[str, Any]:
        try:
            return await self._link.call(subject, body)
        except (ApiError, NoAnswerError) as error:
            raise UnavailableError(f"{subject}: {error}") from error


class NatsLeases:
    """The ownership record of one shard: `Leases` of the engine."""

    def __init__(self, link: Link, bucket: str, shard: int) -> None:
        self._link = link
        self._stream = f"KV_{bucket}"
        self._subject = f"$KV.{bucket}.lease.{shard}"

    async def read(self) -> tuple[Lease | None, int]:
        # Not from the nearest copy: it may be behind, and the lease would seem not to change.
        body = {"last_by_subj": self._subject}
        try:
            message = (await self._link.call(f"STREAM.MSG.GET.{self._stream}", body))["message"]
        except ApiError as error:
            if error.number == NO_MESSAGE:
                return None, 0
            raise UnavailableError(f"the lease: {error}") from error
        except NoAnswerError as error:
            raise UnavailableError(f"the lease: {error}") from error
        revision = int(message["seq"])
        data = base64.b64decode(message.get("data", ""))
        if not data:
            return None, revision  # somebody deleted it with a tool
        try:
            return msgspec.json.decode(data, type=Lease), revision
        except msgspec.DecodeError as error:
            raise EngineError(f"the record {self._subject} is no lease: {error}") from error

    async def write(self, lease: Lease, revision: int) -> int:
        expected = {"Nats-Expected-Last-Subject-Sequence": str(revision)}
        return await _write(self._link, self._subject, msgspec.json.encode(lease), expected)


async def _write(link: Link, subject: str, data: bytes, expected: dict[str, str]) -> int:
    """Write when the stream is as expected; returns the sequence."""
    try:
        question = link.ask(subject, data, expected)
        return int(read_answer(await link.answer(question))["seq"])
    except ApiError as error:
        if error.number in WRONG_LAST_SEQUENCE:
            raise ConflictingWriteError(f"{subject}: {error}") from error
        raise UnknownOutcomeError(f"{subject}: {error}") from error
    except NoAnswerError as error:
        raise UnknownOutcomeError(f"{subject}: {error}") from error


def _sequence(message: Msg) -> int:
    assert message.headers is not None, "a direct get answers with headers"
    return int(message.headers["Nats-Sequence"])
