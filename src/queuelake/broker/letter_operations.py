"""What operators do with messages by hand: many dead letters at once, and publishing one.

Many dead letters are worked through a slice at a time: each slice is one commit, others are served
between them, and what was done stays done when the rest fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec

from queuelake import control_queues as ops
from queuelake import names
from queuelake.broker import queue_views, redrive
from queuelake.broker.operation import Operation
from queuelake.broker.queue_views import Place
from queuelake.broker.queues import publishing
from queuelake.broker.queues.durable import DurableHost
from queuelake.broker.queues.incoming import PARTITION_KEY
from queuelake.broker.queues.registry import Queues
from queuelake.broker.quorum.host import QuorumHost
from queuelake.control_queues import DeadLetter, LetterChoice, LettersDone, NewMessage
from queuelake.engine import commands as c
from queuelake.errors import NotFoundError, RefusedError
from queuelake.protocol import properties as p
from queuelake.protocol.wire import varint
from queuelake.storage.chunk import Record

LETTERS_PER_SLICE: Final = 200
PUBLISHER: Final = b"admin"
TEXT_BYTES_MAX: Final = 65535

T = TypeVar("T")
Origin = DurableHost | QuorumHost  # where dead letters come from


class LetterOperations:
    """Each method answers one named request; `durable` waits for the commit."""

    def __init__(self, queues: Queues, durable: Callable[[], Awaitable[None]]) -> None:
        self._queues = queues
        self._durable = durable

    def table(self) -> dict[str, Operation]:
        return {
            ops.QUEUE_DLQ_DISCARD: self.discard,
            ops.QUEUE_DLQ_RETRY_MANY: self.retry_many,
            ops.QUEUE_DLQ_DISCARD_MANY: self.discard_many,
            ops.QUEUE_PUBLISH: self.publish,
        }

    async def discard(self, args: dict[str, object]) -> None:
        host, message_id = self._queue(args), str(args.get("id", ""))
        letters = redrive.letters_of(host)
        place = queue_views.message_place(letters, message_id) if letters is not None else None
        if letters is None or place is None or not self._discard(host, letters, place):
            address = names.address(host.name)
            raise NotFoundError(f"queue {address!r} has no dead letter {message_id!r}")
        await self._durable()

    async def discard_many(self, args: dict[str, object]) -> LettersDone:
        return await self._for_many(args, self._discard)

    async def retry_many(self, args: dict[str, object]) -> LettersDone:
        return await self._for_many(args, self._retry)

    def _discard(self, host: Origin, letters: DurableHost, place: Place) -> bool:
        now_ms = self._queues.clock.now_ms()
        dead = queue_views.find_record(letters, place, now_ms)
        if dead is None or queue_views.shown_dead_letter(letters, 0, dead, host.topic) is None:
            return False
        letters.apply(c.Remove(*place), now_ms)
        return True

    def _retry(self, host: Origin, letters: DurableHost, place: Place) -> bool:
        try:
            redrive.redrive(host, f":{place.partition}:{place.offset}", self._queues.clock.now_ms())
        except NotFoundError:
            return False  # somebody else was quicker
        return True

    async def _for_many(
        self, args: dict[str, object], treat: Callable[[Origin, DurableHost, Place], bool]
    ) -> LettersDone:
        host, choice = self._queue(args), _decode(args.get("choice"), LetterChoice)
        fits = _chooser(choice)
        letters = redrive.letters_of(host)
        if letters is None:
            return LettersDone(0)
        done = 0
        begin = Place(0, 0)
        while True:
            wanted = min(LETTERS_PER_SLICE, choice.limit - done)
            places, following = self._chosen(host, letters, begin, fits, wanted)
            done += sum([treat(host, letters, place) for place in places])
            if places:
                await self._durable()
            place = queue_views.parse_place(following) if following else None
            if place is None or done == choice.limit:
                return LettersDone(done, place is not None)
            begin = place

    def _chosen(
        self,
        host: Origin,
        letters: DurableHost,
        begin: Place,
        fits: Callable[[DeadLetter], bool],
        limit: int,
    ) -> tuple[list[Place], str | None]:
        """Where the next dead letters are which are meant, and where to look on."""

        def chosen(number: int, record: Record) -> Place | None:
            letter = queue_views.shown_dead_letter(letters, number, record, host.topic)
            return Place(number, record.seq) if letter is not None and fits(letter) else None

        partitions = [(number, 0) for number in range(len(letters.machine.partitions))]
        now_ms = self._queues.clock.now_ms()
        return queue_views.read_page(letters, begin, partitions, limit, now_ms, chosen)

    async def publish(self, args: dict[str, object]) -> None:
        """As a client would, with all limits."""
        host, message = self._queue(args), _decode(args.get("message"), NewMessage)
        if message.payload and message.payload_base64 is not None:
            raise RefusedError("the body has payload and payload_base64; allowed: one of them")
        pairs = [
            (_text("the name of a property", key), _text(f"properties.{key}", value))
            for key, value in message.properties.items()
        ]
        if message.key:
            pairs.append((PARTITION_KEY, _text("key", message.key)))
        properties = p.write_user(pairs)
        if message.content_type:
            content_type = _text("content_type", message.content_type)
            properties += p.write_value(p.CONTENT_TYPE, content_type)
        payload = message.payload_base64
        body = varint(len(properties)) + properties
        reason = publishing.publish(
            self._queues,
            None,
            host.topic,
            1,
            body + (payload if payload is not None else message.payload.encode()),
            len(body),
            0,
            PUBLISHER,
            None,
            self._queues.clock.now_ms(),
        )
        if reason:
            raise RefusedError.because(reason, self._queues.problem)
        await self._durable()

    def _queue(self, args: dict[str, object]) -> Origin:
        name = str(args.get("name", ""))
        host: Origin = self._queues.quorum.find(name) or self._queues.get(name)
        host.active_ms = self._queues.clock.now_ms()
        return host


def _decode(body: object, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body if isinstance(body, bytes) and body else b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(f"the body is not as it should be: {error}") from error


def _text(name: str, value: str) -> bytes:
    """As a packet can hold it."""
    text = value.encode()
    if len(text) > TEXT_BYTES_MAX:
        raise RefusedError(f"{name} has {len(text)} bytes, the limit is {TEXT_BYTES_MAX}")
    if b"\0" in text:
        raise RefusedError(f"{name} holds a null character")
    return text


def _chooser(choice: LetterChoice) -> Callable[[DeadLetter], bool]:
    after, before = _moment(choice.moved_after), _moment(choice.moved_before)

    def fits(letter: DeadLetter) -> bool:
        if choice.reason is not None and letter.dlq_reason != choice.reason:
            return False
        if choice.group is not None and letter.dlq_group != choice.group:
            return False
        if choice.key is not None and letter.key != choice.key:
            return False
        if after is None and before is None:
            return True
        try:
            moved = _moment(letter.dlq_moved_at)
        except RefusedError:  # somebody else wrote it
            return False
        if moved is None:
            return False
        return (after is None or moved >= after) and (before is None or moved <= before)

    return fits


def _moment(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise RefusedError(f"time {text!r}: not ISO 8601, such as 2026-01-31T12:00:00Z") from error
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
