"""An owner which is online: its machine, the entries it is being sent, and their packets.

The newest entries are kept here for a moment, so that what is written while the owner waits for it
is not read back from the store: `tail` has every entry above `tail_from`. Where that is, is known
when the store has been read to its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from queuelake.broker.deliveries import Consumer, Delivery
from queuelake.broker.ecq.topics import address
from queuelake.broker.queues.incoming import EXPIRY
from queuelake.engine.kinds import ecq as m
from queuelake.engine.policy.settings import Policy
from queuelake.protocol.message import EXPIRY_S_MAX, FIRST_BYTE, encode_ids
from queuelake.protocol.packets import V5
from queuelake.protocol.wire import ONE_BYTE, TWO_BYTES, varint
from queuelake.storage import api
from queuelake.storage import ecq_tables as t
from queuelake.storage.api import ReadTransaction
from queuelake.storage.chunk import Record

if TYPE_CHECKING:
    from queuelake.broker.ecq.service import Mailboxes
    from queuelake.broker.session import Session, Subscription

TAIL_ENTRIES_MAX: Final = 32
TAIL_BYTES_MAX: Final = 64 * 1024
ROWS_PER_FETCH_MAX: Final = 1_000
SEQNO: Final = b"\x26\0\x09ecq-seqno"
FIRST: Final = FIRST_BYTE | 1 << 1
UNKNOWN: Final = 1 << 62  # above every sequence: nothing is known to be in the tail


@final
class Reader(Consumer):
    """`wanted` is the fetch which is to be made in the next turn."""

    __slots__ = (
        "_ids",
        "_service",
        "_tail_bytes",
        "active_ms",
        "digest",
        "entries",
        "machine",
        "name",
        "session",
        "tail",
        "tail_from",
        "topic",
        "wanted",
    )

    def __init__(self, service: Mailboxes, session: Session, policy: Policy, now_ms: int) -> None:
        self._service: Mailboxes = service
        self.session: Session = session
        self.name: bytes = session.name
        self.digest: bytes = t.digest(session.name)
        self.topic: bytes = address(session.name) + b"/"
        self.machine: m.Mailbox = m.Mailbox(policy)
        self.entries: dict[int, Record] = {}  # of the batch, by their sequence
        self.wanted: m.Fetch | None = None
        self.active_ms: int = now_ms  # when it last looked, or acknowledged something
        self.tail: list[Record] = []
        self.tail_from: int = UNKNOWN
        self._tail_bytes: int = 0
        self._ids: bytes = b""

    def subscribed(self, subscription: Subscription) -> None:
        number = subscription.subscription_id
        self._ids = encode_ids([number]) if number else b""

    # Entries

    def written(self, record: Record) -> None:
        """An entry is in the store, the newest of its owner."""
        self._tail_bytes += record.size()
        tail = [one for one in self.tail if one.key != record.key] if self.tail else []
        tail.append(record)
        self.tail = tail
        if len(tail) > TAIL_ENTRIES_MAX or self._tail_bytes > TAIL_BYTES_MAX:
            self.forget_tail(record.seq)

    def forget_tail(self, upto: int) -> None:
        self.tail = []
        self.tail_from = upto
        self._tail_bytes = 0

    def distrust_tail(self) -> None:
        """Look into the store next time, whatever was heard of writes."""
        self.forget_tail(UNKNOWN)

    def find_in_tail(self, fetch: m.Fetch, oldest_ms: int, now_ms: int) -> m.Read | None:
        """What is above a position; None: the store has to be asked."""
        if fetch.after < self.tail_from:
            return None
        found: list[int] = []
        for record in self.tail:
            if record.seq > fetch.after and not _is_over(record, oldest_ms, now_ms):
                self.entries[record.seq] = record
                found.append(record.seq)
                if len(found) == fetch.count:
                    break
        if not found and self.tail:
            self.forget_tail(self.tail[-1].seq)
        return m.Read(found, 0)

    def find(self, view: ReadTransaction, fetch: m.Fetch, oldest_ms: int, now_ms: int) -> m.Read:
        """The same from the store; a long stretch of entries which are over is seen in parts."""
        found: list[int] = []
        left = ROWS_PER_FETCH_MAX
        last = fetch.after
        start = t.index_key(self.digest, fetch.after + 1)
        for key, value in view.scan(api.ECQ_INDEX, start, t.index_end(self.digest)):
            row = t.read_index_row(key, value)
            left -= 1
            last = row.seq
            if not row.is_over(oldest_ms, now_ms):
                record = t.read_entry(view, self.digest, row)
                if record is not None:
                    self.entries[row.seq] = record
                    found.append(row.seq)
                    if len(found) == fetch.count:
                        return m.Read(found, 0)
            if left == 0:
                return m.Read(found, last)
        self.forget_tail(last)
        return m.Read(found, 0)

    def read_again(
        self, view: ReadTransaction, seq: int, oldest_ms: int, now_ms: int
    ) -> Record | None:
        """An entry of the batch as the store has it; None: it was replaced, or is over."""
        former = self.entries[seq]
        if _is_over(former, oldest_ms, now_ms):
            return None
        row = t.IndexRow(seq, former.ts_ms, former.expires_ms, 0, former.key)
        return t.read_entry(view, self.digest, row)

    def deliver(self, record: Record, tag: int) -> None:
        self.session.deliver(Delivery(self, record, 0, tag, 1))

    def withdraw(self) -> None:
        """What has not left will not."""
        self.wanted = None
        self.entries.clear()
        deliveries = self.session.deliveries
        if deliveries is not None:
            deliveries.forget(self)

    # As a consumer

    def is_out(self, delivery: Delivery) -> bool:
        return self.machine.is_out(delivery.attempt)

    def frame(self, delivery: Delivery, packet_id: bytes, now_ms: int) -> bytes:
        record = delivery.record
        topic = self.topic + record.key
        payload = record.payload
        if self.session.version != V5:
            left = varint(4 + len(topic) + len(payload))
            return b"".join(
                [ONE_BYTE[FIRST], left, TWO_BYTES[len(topic)], topic, packet_id, payload]
            )
        number = str(record.seq).encode()
        rest = record.properties
        if record.expires_ms:
            left_s = min(max(0, (record.expires_ms - now_ms + 999) // 1000), EXPIRY_S_MAX)
            rest = EXPIRY + left_s.to_bytes(4, "big") + rest[5:]
        size = len(self._ids) + len(SEQNO) + 2 + len(number) + len(rest)
        size_bytes = varint(size)
        length = 4 + len(topic) + len(size_bytes) + size + len(payload)
        return b"".join(
            [
                ONE_BYTE[FIRST],
                varint(length),
                TWO_BYTES[len(topic)],
                topic,
                packet_id,
                size_bytes,
                self._ids,
                SEQNO,
                TWO_BYTES[len(number)],
                number,
                rest,
                payload,
            ]
        )

    def acknowledged(self, delivery: Delivery, reason: int) -> None:
        outcome = m.DONE if reason < 0x80 else m.REJECTED
        self._service.settled(self, m.Settle(delivery.attempt, outcome, reason))

    def undeliverable(self, delivery: Delivery, size: int) -> None:
        self._service.settled(self, m.Settle(delivery.attempt, m.TOO_LARGE, 0x95))


def _is_over(record: Record, oldest_ms: int, now_ms: int) -> bool:
    return record.ts_ms < oldest_ms or (record.expires_ms != 0 and record.expires_ms <= now_ms)
