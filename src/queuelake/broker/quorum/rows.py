"""A quorum queue in the store: writing what changed, and reading it back.

Its sequences are those of its messages. The index of a command is the sequence of the last message
before it and a number behind that, so that messages of one commit have dense sequences and the
machine has indexes which rise with each command.

What consumers hold is not written: when a queue is read, all its consumers are gone, and what they
held is in the line of returns. That is nobody's failure, so nothing is counted, but that a message
was handed out is known of each (`Head.marks` for the first time, a note for later ones).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from queuelake.broker.queues.rows import runs, write_blocks
from queuelake.broker.quorum.chunks import Chunks
from queuelake.engine.quorum import message as places
from queuelake.engine.quorum.machine import QuorumQueue
from queuelake.engine.quorum.message import Letter, Message
from queuelake.engine.quorum.policy import QuorumPolicy
from queuelake.engine.settled import Settled
from queuelake.storage import api, quorum_tables
from queuelake.storage import queue_tables as t
from queuelake.storage.api import Batch, ReadTransaction
from queuelake.storage.quorum_tables import Head, Headers, Note

if TYPE_CHECKING:
    from queuelake.broker.quorum.host import QuorumHost

PARTITION: Final = 0
CHUNKS_PER_SLICE: Final = 200  # some milliseconds when they are full
COMMAND_BITS: Final = 20  # so many commands may come between two messages, or a sequence is skipped


def seq_of(index: int) -> int:
    """The sequence of the message at an index, or of the last one before it."""
    return index >> COMMAND_BITS


# Writing


def write_messages(batch: Batch, host: QuorumHost) -> None:
    """Those which came since the last commit; what is gone already is never written."""
    tail, gone = host.tail, host.gone
    if not tail.pending:
        return
    for record in tail.pending:
        if record.seq in gone:
            tail.records.pop(record.seq, None)
    live = [record for record in tail.pending if record.seq not in gone]
    tail.storing = live
    tail.pending = []
    for run in runs(live) if live else []:
        first = run[0].seq
        for start, last, _ in t.put_chunk(batch, host.id, PARTITION, first, run):
            stored = run[start - first : last - first + 1]
            key = quorum_tables.headers_key(host.id, start)
            batch.put(api.QUORUM, key, quorum_tables.headers_of(stored))
            host.chunks.add(start, last, len(stored))


def write_gone(batch: Batch, host: QuorumHost) -> None:
    for first in host.dead_chunks:
        batch.delete_chunk(host.id, PARTITION, first)
        batch.delete(api.QUORUM, quorum_tables.headers_key(host.id, first))
    host.dead_chunks = []
    write_blocks(batch, host.id, t.EVERYBODY, PARTITION, host.gone)
    machine = host.machine
    size = machine.waiting_bytes() + machine.held_bytes
    state = t.partition_state(host.gone.upto, host.last, size)
    batch.put(api.PARTITIONS, t.partition_key(host.id, PARTITION), state)


def write_notes(batch: Batch, host: QuorumHost) -> None:
    """In the order in which they came to their places, the last time counts."""
    for seq in host.dead_notes:
        batch.delete(api.QUORUM, quorum_tables.note_key(host.id, seq))
    host.dead_notes = []
    for index, message in host.noted.items():
        seq = seq_of(index)
        if seq not in host.gone:
            host.moves += 1
            host.notes.add(seq)
            note = _note(host.machine, message, host.moves)
            batch.put(api.QUORUM, quorum_tables.note_key(host.id, seq), quorum_tables.encode(note))
    host.noted = {}


def _note(machine: QuorumQueue, message: Message, move: int) -> Note:
    return Note(
        message.place,
        move,
        message.acquired,
        message.failures,
        machine.delays.due_ms.get(message.index, 0),
        message.token,
        message.annotations,
    )


def head_of(host: QuorumHost) -> bytes:
    machine = host.machine
    marks = {priority: seq_of(index) for priority, index in machine.marks.items()}
    head = Head(marks, machine.last_active_ms, machine.rejecting, host.moves)
    return quorum_tables.encode(head)


# Reading


@final
class Reading:
    """The machine as the store has it, without sessions, read a slice at a time.

    The host is made to fit it. Nothing may be written meanwhile.
    """

    __slots__ = ("_held", "_host", "_machine", "_moved", "_next", "_notes")

    def __init__(self, view: ReadTransaction, host: QuorumHost, policy: QuorumPolicy) -> None:
        host.chunks = Chunks()
        host.gone, host.last = _read_gone(view, host.id)
        head = quorum_tables.read_head(view, host.id)
        notes = quorum_tables.read_notes(view, host.id)
        host.notes = set(notes)
        host.moves = head.moves
        machine = QuorumQueue(policy)
        machine.index = host.last << COMMAND_BITS
        machine.last_active_ms = head.last_active_ms
        machine.rejecting = head.rejecting
        machine.marks = {priority: seq << COMMAND_BITS for priority, seq in head.marks.items()}
        self._host: QuorumHost = host
        self._machine: QuorumQueue = machine
        self._notes: dict[int, Note] = notes
        self._next: int = 0  # where the next slice begins
        self._moved: list[tuple[int, Message, Note]] = []
        self._held: list[Message] = []

    def read_on(self, view: ReadTransaction, chunks: int) -> bool:
        """The next so many chunks; False: that was all."""
        host = self._host
        found = quorum_tables.read_headers(view, host.id, self._next, chunks)
        for first, headers in found:
            live = _messages(first, headers, host.gone)
            for message in live:
                self._take(message)
            host.chunks.add(first, first + headers.count - 1, len(live))
            self._next = first + headers.count
        return len(found) == chunks

    def _take(self, message: Message) -> None:
        machine = self._machine
        note = self._notes.get(seq_of(message.index))
        if note is not None:
            self._moved.append((note.move, message, note))
        elif message.index <= machine.marks.get(message.priority, 0):
            message.acquired = 1
            self._held.append(message)
        else:
            machine.stored(message)

    def machine(self) -> QuorumQueue:
        """When all is read."""
        machine = self._machine
        self._moved.sort(key=_move)
        for _, message, note in self._moved:
            _put(machine, message, note)
        for message in self._held:
            _enter(machine, message)
            machine.take_back(message)
        machine.noted = []  # it is known, and what was held is found by the marks again
        return machine


def sequences(view: ReadTransaction, queue_id: int) -> int:
    """How many messages a queue can have at most, without a look at them."""
    value = view.get(api.PARTITIONS, t.partition_key(queue_id, PARTITION))
    if value is None:
        return 0
    low, last, _ = t.read_partition_state(value)
    return last - low


def _read_gone(view: ReadTransaction, queue_id: int) -> tuple[Settled, int]:
    """What is gone, and the last sequence."""
    low = last = 0
    value = view.get(api.PARTITIONS, t.partition_key(queue_id, PARTITION))
    if value is not None:
        low, last, _ = t.read_partition_state(value)
    gone = Settled(low)
    prefix = t.lane_key(queue_id, t.EVERYBODY, PARTITION)
    for key, bits in t.scan_prefix(view, api.SETTLED, prefix):
        gone.restore(int.from_bytes(key[len(prefix) :], "big"), int.from_bytes(bits, "little"))
    return gone, last


def _messages(first: int, headers: Headers, gone: Settled) -> list[Message]:
    sizes, priorities, expires = headers.sizes, headers.priorities, headers.expires_ms
    found: list[Message] = []
    for at in range(headers.count):
        if first + at not in gone:
            found.append(
                Message(
                    first + at << COMMAND_BITS,
                    sizes[at] if len(sizes) > 1 else sizes[0],
                    priorities[at] if len(priorities) > 1 else priorities[0],
                    expires[at] if len(expires) > 1 else expires[0],
                )
            )
    return found


def _move(one: tuple[int, Message, Note]) -> int:
    return one[0]


def _enter(machine: QuorumQueue, message: Message) -> None:
    machine.total += 1
    if message.expires_ms:
        machine.uses_expiry = True


def _put(machine: QuorumQueue, message: Message, note: Note) -> None:
    message.acquired, message.failures = note.acquired, note.failures
    message.annotations = note.annotations
    _enter(machine, message)
    if note.place == places.DELAYED:
        machine.delay(message, note.due_ms, note.token)
    elif note.place == places.LETTER:
        message.place = places.LETTER
        message.token = note.token
        machine.letters.append(Letter(message, note.token))
        machine.letters_bytes += message.size
    else:
        machine.take_back(message)
