"""Writes to mailboxes on their way into the store: collected, numbered, written, known.

A write gets its sequence when its commit group is sealed, not before: one which waited too long is
left out and leaves no gap. Of several writes to one key in a group the last one is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import mypyc_attr

from queuelake.broker.ecq.owners import Owner, Owners
from queuelake.broker.pipeline.write_log import WriteLog
from queuelake.broker.queues.incoming import skip_property
from queuelake.protocol.properties import USER_PROPERTY
from queuelake.storage import ecq_tables as t
from queuelake.storage.api import ECQ_SEQNO, Batch, ReadTransaction, Store
from queuelake.storage.chunk import Record

if TYPE_CHECKING:
    from queuelake.broker.session import Session
    from queuelake.protocol.message import Message

SEQNO_NAME: Final = b"ecq-seqno"
CLAIMED_AHEAD: Final = 64  # sequences of an owner


@final
@mypyc_attr(acyclic=True)
class Write:
    """One PUBLISH; `session` and `packet_id` say who waits for the answer."""

    __slots__ = ("key", "owner", "packet_id", "record", "session")

    def __init__(
        self, owner: bytes, record: Record, session: Session | None, packet_id: int
    ) -> None:
        self.owner: bytes = owner
        self.record: Record = record
        self.key: bytes = t.key_digest(record.key)
        self.session: Session | None = session
        self.packet_id: int = packet_id


@final
class Writes:
    """`pending` belong to the group being collected, `sealed` to the one being committed."""

    __slots__ = (
        "_batch",
        "_sealed_owners",
        "_store",
        "accepted",
        "log",
        "owners",
        "pending",
        "sealed",
    )

    def __init__(self, store: Store, log: WriteLog) -> None:
        self._store: Store = store
        self.log: WriteLog = log
        self.owners: Owners = Owners()
        self.pending: list[Write] = []
        self.sealed: list[Write] = []  # the last one of each key, in order
        self.accepted: int = 0  # all of them
        self._sealed_owners: dict[bytes, Owner] = {}
        self._batch: Batch | None = None

    def owner(self, view: ReadTransaction, name: bytes) -> Owner:
        """What is known of an owner; the store does not know of the commit under way."""
        return self._sealed_owners.get(name) or self.owners.get(view, name)

    def last_seq(self, name: bytes) -> int:
        """The last sequence an owner was given."""
        with self._store.view() as view:
            return self.owner(view, name).next_seq - 1

    def is_changing(self, name: bytes) -> bool:
        return name in self._sealed_owners or any([one.owner == name for one in self.pending])

    def exists(self, name: bytes) -> bool:
        """Whether anything was ever written to an owner."""
        if self.is_changing(name):
            return True
        with self._store.view() as view:
            return view.get(ECQ_SEQNO, t.digest(name)) is not None

    def emptied(self, batch: Batch, name: bytes, owner: bytes, last: t.IndexRow) -> None:
        """The newest entry of an owner is deleted with this batch: no other row says any more which
        sequence was its last, so none is claimed ahead."""
        next_seq = last.seq + 1
        known = self._sealed_owners.get(name) or self.owners.known(name)
        if known is not None:
            next_seq = known.claimed = max(next_seq, known.next_seq)
        t.put_seqno(batch, owner, next_seq, last.ts_ms, name)

    def take_overdue(self, before_ms: int) -> list[Write]:
        """Those which came before this time; they are forgotten."""
        pending = self.pending
        if not pending or pending[0].record.ts_ms >= before_ms:
            return []
        overdue: list[Write] = []
        self.pending = []
        for write in pending:
            if write.record.ts_ms < before_ms and write.session is not None:
                overdue.append(write)
                self.forget_sizes(write.owner)
            else:
                self.pending.append(write)  # in time, or a will: nobody would send it again
        return overdue

    def seal(self, batch: Batch) -> None:
        """Number what was collected, and put it into the batch."""
        pending = self.pending
        if not pending:
            return
        self.pending = []
        self.accepted = len(pending)
        self._batch = batch
        owners: dict[bytes, Owner] = {}
        latest: dict[bytes, Write] = {}
        with self._store.view() as view:
            for write in pending:
                owner = owners.get(write.owner)
                if owner is None:
                    owner = owners[write.owner] = self.owners.get(view, write.owner)
                write.record.seq = owner.next_seq
                owner.next_seq += 1
                latest[owner.digest + write.key] = write
        log = self.log
        for prefix, write in latest.items():
            log.add(t.put_entry(batch, prefix, write.record))
        now_ms = pending[-1].record.ts_ms
        numbers = batch.tables[ECQ_SEQNO]
        was_emptied = len(numbers) > 0  # some owner, which may have lost its claim so
        for name, owner in owners.items():
            if owner.next_seq > owner.claimed or (was_emptied and owner.digest in numbers):
                owner.claimed = owner.next_seq + CLAIMED_AHEAD
                t.put_seqno(batch, owner.digest, owner.claimed, now_ms, name)
        self.sealed = list(latest.values())
        if len(self.sealed) < len(pending):
            self.sealed.sort(key=_sequence)
        self._sealed_owners = owners

    def replaced(self) -> int:
        """How many entries the commit replaced, in the store or before they came there."""
        if self._batch is None:
            return 0
        return self._batch.replaced + self.accepted - len(self.sealed)

    def stored(self) -> list[Write]:
        """What is in the store now."""
        written = self.sealed
        self._forget_sealed()
        return written

    def _forget_sealed(self) -> None:
        self.sealed = []
        self.accepted = 0
        self._sealed_owners = {}
        self._batch = None

    def rolled_back(self) -> None:
        """None of it was ever written, and the numbers are free again."""
        self.pending = []
        self._forget_sealed()
        self.owners.clear()
        self.log.rolled_back()

    # Limits

    def over_limit(self, write: Write, keys_max: int, bytes_max: int) -> str:
        """Why an owner may not have this entry too, or count it and return nothing."""
        with self._store.view() as view:
            owner = self.owner(view, write.owner)
            sizes = owner.sizes
            if sizes is None:
                sizes = owner.measure(view)
                for other in self.sealed + self.pending:
                    if other.owner == owner.name:
                        owner.grow(sizes, other.key, t.entry_size(other.record.key, other.record))
        name = write.owner.decode()[:100]
        if keys_max and write.key not in sizes and len(sizes) >= keys_max:
            return f"mailbox of {name!r} has {len(sizes)} of {keys_max} keys"
        size = t.entry_size(write.record.key, write.record)
        total = owner.bytes + size - sizes.get(write.key, 0)
        if bytes_max and total > bytes_max:
            return f"mailbox of {name!r} would have {total} of {bytes_max} bytes"
        owner.grow(sizes, write.key, size)
        return ""

    def forget_all_sizes(self) -> None:
        """There are other limits, or none for a while: nobody counts then."""
        self.owners.forget_sizes()
        for owner in self._sealed_owners.values():
            owner.sizes = None

    def forget_sizes(self, name: bytes) -> None:
        """Entries of this owner are gone: count again when somebody has to know."""
        owner = self._sealed_owners.get(name) or self.owners.known(name)
        if owner is not None:
            owner.sizes = None


def record_of(message: Message, key: bytes) -> Record:
    """The entry a PUBLISH makes: all of its properties, an expiry interval first, where it is
    found without searching when it has to be counted down."""
    properties = message.properties()
    if message.expires_ms:
        at = message.expiry_at - (message.payload_at - len(properties)) - 1
        properties = properties[at : at + 5] + properties[:at] + properties[at + 5 :]
    if SEQNO_NAME in properties:
        properties = _without_seqno(properties)
    return Record(
        b"", key, b"", b"", properties, message.payload(), 1, 0, message.ts_ms, message.expires_ms
    )


def _without_seqno(properties: bytes) -> bytes:
    """Only the broker says which sequence an entry has."""
    kept: list[bytes] = []
    at = 0
    while at < len(properties):
        end = skip_property(properties, at)
        name = properties[at + 3 : at + 3 + len(SEQNO_NAME)]
        is_seqno = properties[at] == USER_PROPERTY and name == SEQNO_NAME
        if not is_seqno or properties[at + 1] << 8 | properties[at + 2] != len(SEQNO_NAME):
            kept.append(properties[at:end])
        at = end
    return b"".join(kept)


def _sequence(write: Write) -> int:
    return write.record.seq
