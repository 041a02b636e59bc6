"""Reading a mailbox again: from a sequence, from a time, or from the first entry there is."""

from __future__ import annotations

from typing import Final

import msgspec

from queuelake.errors import RefusedError
from queuelake.storage import api
from queuelake.storage import ecq_tables as t
from queuelake.storage.api import ReadTransaction, Store

ALLOWED: Final = 'one of {"seqno": N}, {"ts": milliseconds}, {"to": "first"}'


class BadRewindError(RefusedError):
    """It does not say where to read from."""

    reason_code = 0x99


def target(store: Store, owner: bytes, body: bytes, last: int) -> int:
    """The position from behind which to read; `last` is the last sequence of the owner.

    Raises:
        BadRewindError: the body is none of the three forms.
    """
    try:
        asked: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _bad(body) from None
    if not isinstance(asked, dict) or len(asked) != 1:
        raise _bad(body)
    ((key, value),) = asked.items()
    if key == "to" and value == "first":
        return 0
    if key not in ("seqno", "ts") or type(value) is not int or value < 0:
        raise _bad(body)
    if key == "seqno":
        return min(max(0, value - 1), last)
    with store.view() as view:
        return _last_before(view, t.digest(owner), value)


def _last_before(view: ReadTransaction, owner: bytes, ts_ms: int) -> int:
    """The last sequence which was written before a time: they are in the order of their times."""
    end = t.last_row(view, owner)
    if end is None:
        return 0
    low, high = 0, end.seq  # what is asked for is in this range, both included
    while low < high:
        middle = (low + high + 1) // 2
        row = _first_from(view, owner, middle)
        if row is not None and row.ts_ms < ts_ms:
            low = row.seq
        else:
            high = middle - 1
    return low


def _first_from(view: ReadTransaction, owner: bytes, seq: int) -> t.IndexRow | None:
    for key, value in view.scan(api.ECQ_INDEX, t.index_key(owner, seq), t.index_end(owner)):
        return t.read_index_row(key, value)
    return None


def _bad(body: bytes) -> BadRewindError:
    shown = body[:100].decode("utf-8", "replace")
    return BadRewindError(f"rewind {shown!r}: allowed: {ALLOWED}")
