"""A commit group: what happened since the last seal, and its rows in the store."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, final

from queuelake.broker.line import Outgoing
from queuelake.broker.participant import Participant
from queuelake.broker.session import Session
from queuelake.protocol.message import Message
from queuelake.storage import api, records
from queuelake.storage.api import Batch
from queuelake.storage.queue_rows import ROW_ENTRIES_MAX, ChunkWriter, RowEntries, put_row, u64

if TYPE_CHECKING:
    from queuelake.broker.connection import Connection

log = logging.getLogger("queuelake.runner")


@final
class Group:
    """What happened since the last seal."""

    __slots__ = (
        "after",
        "again",
        "answers",
        "batch",
        "bytes",
        "cursors",
        "holders",
        "marks",
        "messages",
        "participants",
        "received",
        "retained",
        "sessions",
        "settlements",
    )

    def __init__(self) -> None:
        self.batch: Batch = Batch()
        self.messages: list[Message] = []
        self.received: list[tuple[Session, int]] = []  # QoS 2 packet ids whose PUBREC waits
        self.sessions: list[Session] = []  # those with new entries in `storing`
        self.cursors: list[Session] = []  # those whose cursor changed
        self.participants: list[Participant] = []
        self.holders: list[Connection] = []  # connections with answers held back
        self.retained: list[bytes] = []  # topics whose retained message changed
        self.after: list[Callable[[], None]] = []  # called when durable
        self.again: list[Callable[[], None]] = []  # called when it has failed
        self.marks: list[tuple[Session, int, int]] = []  # session, its last sequence, bytes
        self.bytes: int = 0
        self.answers: int = 0  # which clients wait for
        self.settlements: int = 0  # of those: nobody waits for their answers

    def is_empty(self) -> bool:
        return (
            not self.messages
            and not self.participants
            and not self.cursors
            and not self.holders
            and not self.after
            and self.batch.is_empty()
        )

    def is_awaited(self) -> bool:
        """Whether anybody waits for something else than what settlements bring about."""
        if self.messages or self.after or self.answers > self.settlements:
            return True
        return any([participant.is_awaited() for participant in self.participants])

    def seal(self, next_chunk: int) -> int:
        """Turn what was collected into rows of the batch; returns the next free chunk id."""
        batch = self.batch
        for participant in self.participants:  # it grows on the way
            try:
                participant.prepare()
            except Exception:  # what one cannot read must not stop what others have to write
                log.exception("before a commit")
        for participant in self.participants:
            participant.write(batch)
        if self.messages:
            self._leave_out_ended()
            writer = ChunkWriter(batch, next_chunk)
            for message in self.messages:
                writer.add(message)
            next_chunk = writer.finish()
            for session in self.sessions:
                if session.storing is not None:
                    size = self._put_rows(session.id, session.storing, writer)
                    self.marks.append((session, session.storing[-1].seq, size))
                session.sealed = session.storing
                session.storing = None
        for session in self.cursors:
            session.cursor_dirty = False
            if session.persistent:
                batch.put(api.CURSORS, u64(session.id), encode_cursor(session))
                batch.trim(session.id, session.settled_seq)
        return next_chunk

    def _put_rows(self, session_id: int, entries: list[Outgoing], writer: ChunkWriter) -> int:
        """The rows of one session; returns the bytes of their messages."""
        # The usual group: one session gets all of it in one row, so its chunks are that row's own.
        owner = len(self.sessions) == 1 and len(entries) <= ROW_ENTRIES_MAX
        total = 0
        for start in range(0, len(entries), ROW_ENTRIES_MAX):
            part = entries[start : start + ROW_ENTRIES_MAX]
            row = RowEntries()
            size = 0
            for entry in part:
                number = entry.message.place
                chunk_id, place = writer.chunk_ids[number], writer.places[number]
                row.add(entry.first, entry.ids, entry.shared, chunk_id, place)
                size += entry.message.size()
            put_row(self.batch, session_id, part[0].seq, size, row, owner)
            total += size
        return total

    def _leave_out_ended(self) -> None:
        """A message only sessions which ended would get must not lie in the store for ever."""
        if all([session.persistent for session in self.sessions]):
            return
        messages: dict[int, Message] = {}
        for session in self.sessions:
            if not session.persistent:
                session.storing = None
            elif session.storing is not None:
                for entry in session.storing:
                    messages[entry.message.place] = entry.message
        self.messages = list(messages.values())
        for place, message in enumerate(self.messages):
            message.place = place


def encode_cursor(session: Session) -> bytes:
    return records.encode(
        records.Cursor(
            session.settled_seq,
            session.sent_seq,
            sorted(session.settled),
            sorted(session.released),
            sorted(session.inbound),
        )
    )
