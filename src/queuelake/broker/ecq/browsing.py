"""Looking into mailboxes: which there are, and what is in one, page by page as the store has it."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Final

from queuelake.control_ecq import (
    PAYLOADS_BYTES_MAX,
    EcqEntry,
    EcqEntryPage,
    EcqOwner,
    EcqOwnerPage,
)
from queuelake.errors import RefusedError
from queuelake.storage import api
from queuelake.storage import ecq_tables as t

if TYPE_CHECKING:
    from queuelake.storage.api import ReadTransaction

LAST_OWNER: Final = b"\xff" * (t.DIGEST_BYTES + 1)


def owner_page(
    view: ReadTransaction, reading: Container[bytes], cursor: str, limit: int
) -> EcqOwnerPage:
    """The owners behind `cursor`, the digest of one; `reading` has those who read now."""
    try:
        after = bytes.fromhex(cursor)
    except ValueError:
        raise RefusedError(f"cursor {cursor!r} is none of ours") from None
    owners: list[EcqOwner] = []
    last = b""
    for key, value in view.scan(api.ECQ_SEQNO, after + b"\0" if after else b"", LAST_OWNER):
        if len(owners) == limit:
            return EcqOwnerPage(owners, last.hex())
        name = t.read_numbers(value)[2]
        last_seq, written_ms = t.last_written(view, key, value)
        acked, acked_ms = _position(view, key)
        shown = name.decode(errors="replace")
        attached = name in reading
        owners.append(EcqOwner(shown, attached, last_seq, written_ms, acked, acked_ms))
        last = key
    return EcqOwnerPage(owners)


def entry_page(
    view: ReadTransaction, name: bytes, attached: bool, cursor: str, limit: int
) -> EcqEntryPage:
    """The entries of an owner behind `cursor`, a sequence number."""
    if cursor and not cursor.isdecimal():
        raise RefusedError(f"cursor {cursor!r} is none of ours")
    owner = t.digest(name)
    rows = t.read_index(view, owner, min(int(cursor or 0), api.SEQUENCE_MAX - 1), limit + 1)
    entries: list[EcqEntry] = []
    room = PAYLOADS_BYTES_MAX
    for row in rows:
        if len(entries) == limit or room <= 0:
            break
        record = t.read_entry(view, owner, row)
        payload = record.payload if record is not None else b""
        shown = payload[:room]
        room -= len(shown)
        key = row.key.decode(errors="replace")
        entries.append(EcqEntry(row.seq, key, row.ts_ms, row.expires_ms, len(payload), shown))
    more = len(entries) < len(rows)
    acked, acked_ms = _position(view, owner)
    following = str(entries[-1].seqno) if more else None
    return EcqEntryPage(name.decode(), attached, acked, acked_ms, entries, following)


def _position(view: ReadTransaction, owner: bytes) -> tuple[int, int]:
    state = view.get(api.ECQ_STATE, owner)
    if state is None:
        return 0, 0
    acked, acked_ms, _ = t.read_numbers(state)
    return acked, acked_ms
