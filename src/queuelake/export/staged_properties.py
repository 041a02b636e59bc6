"""MQTT properties of staged rows, encoded for all of them at once.

A row's properties are its content type, its key (consumers find it as `partition-key`), and its map
as user properties. In a durable queue some of these mean something, as they do in a PUBLISH.
"""

from __future__ import annotations

import time
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from queuelake.engine.message import PRIORITY_DEFAULT, PRIORITY_MAX
from queuelake.errors import RefusedError
from queuelake.export.staged_columns import COLUMNS, DELAY_MS_MAX, check_text, column, text
from queuelake.protocol import properties as p

PARTITION_KEY: Final = "partition-key"
MESSAGE_ID: Final = "message-id"
PRIORITY: Final = "priority"
DELAY_MS: Final = "delay-ms"
DELIVER_AT: Final = "deliver-at"
# Only the broker says these, or they are about settlements.
DROPPED: Final = frozenset(
    {"group-id", "queue", "partition", "offset", "delivery-count", "x-source-topic"}
)
SPECIAL: Final = frozenset({PARTITION_KEY, MESSAGE_ID, PRIORITY, DELAY_MS, DELIVER_AT, *DROPPED})
DIGITS_MAX: Final = 18

_NONE: Final = pa.scalar(b"", pa.binary())
Ints = NDArray[np.int64]


class Found:
    """What the properties of a block of rows are, and say."""

    def __init__(self, key: pa.Array | bytes, message_id: pa.Array | bytes) -> None:
        self.key = key
        self.message_id = message_id
        self.encoded: pa.Array | bytes = b""
        self.priority: NDArray[np.uint8] | None = None
        self.delay_ms: Ints | None = None


def read(
    block: pa.Table, keys: pa.Array | bytes, ids: pa.Array | bytes, has_meaning: bool
) -> Found:
    """
    Raises:
        RefusedError: a row breaks a rule.
    """
    found = Found(keys, ids)
    maps = _maps(block)
    if maps is not None and has_meaning and _any_special(maps):
        maps = _take_special(maps, found, block.num_rows)
    parts: list[Any] = []
    content_type = text(block, "content_type")
    if isinstance(content_type, pa.Array):
        parts.append(_prefixed(content_type, bytes([p.CONTENT_TYPE])))
    if isinstance(found.key, pa.Array):
        parts.append(_prefixed(found.key, _user_head(PARTITION_KEY)))
    if not has_meaning:  # it travels as any other property, and the queue has no use for it
        if isinstance(ids, pa.Array):
            parts.append(_prefixed(ids, _user_head(MESSAGE_ID)))
        found.key = found.message_id = b""
    if maps is not None:
        parts.append(_encoded_maps(maps))
    if len(parts) == 1:
        found.encoded = parts[0]
    elif parts:
        found.encoded = pc.binary_join_element_wise(*parts, _NONE)
    return found


def _maps(block: pa.Table) -> pa.MapArray | None:
    if "properties" not in block.column_names:
        return None
    maps = column(block, "properties")
    if len(maps.keys) == 0 or maps.null_count == len(maps):
        return None
    names = _flat(maps, maps.keys)
    check_text("name of a property", names)
    check_text("value of a property", _flat(maps, maps.items).fill_null(""))
    return maps


def _flat(maps: pa.MapArray, values: pa.Array) -> pa.Array:
    """The part of the keys or values which a slice of maps refers to."""
    first, last = maps.offsets[0].as_py(), maps.offsets[len(maps)].as_py()
    return values.slice(first, last - first)


def _encoded_maps(maps: pa.MapArray) -> pa.Array:
    names = _flat(maps, maps.keys).cast(pa.binary())
    values = _flat(maps, maps.items).fill_null("").cast(pa.binary())
    user = bytes([p.USER_PROPERTY])
    pairs = pc.binary_join_element_wise(_with_length(names, user), _with_length(values, b""), _NONE)
    offsets = maps.offsets.to_numpy()
    counts = np.diff(offsets)
    if maps.null_count:  # what a null refers to is nobody's
        valid = maps.is_valid().to_numpy(zero_copy_only=False)
        pairs = pairs.filter(pa.array(np.repeat(valid, counts)))
        counts = np.where(valid, counts, 0)
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(ends), pairs)
    return pc.binary_join(lists, _NONE)


def _prefixed(values: pa.Array, head: bytes) -> pa.Array:
    """A property for each row which has a value; nothing for others."""
    encoded = _with_length(values, head)
    return pc.if_else(pc.equal(pc.binary_length(values), 0), _NONE, encoded)


def _with_length(values: pa.Array, head: bytes) -> pa.Array:
    """`head`, two bytes of length, the value."""
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(">u2")
    raw = pa.py_buffer(lengths.tobytes())
    sizes = pa.FixedSizeBinaryArray.from_buffers(pa.binary(2), len(values), [None, raw])
    return pc.binary_join_element_wise(
        pa.scalar(head, pa.binary()), sizes.cast(pa.binary()), values, _NONE
    )


def _user_head(name: str) -> bytes:
    return bytes([p.USER_PROPERTY]) + len(name).to_bytes(2, "big") + name.encode()


# Properties which mean something: row by row


def _any_special(maps: pa.MapArray) -> bool:
    names = _flat(maps, maps.keys)
    return bool(pc.any(pc.is_in(names, pa.array(sorted(SPECIAL)))).as_py())


def _take_special(maps: pa.MapArray, found: Found, count: int) -> pa.MapArray:
    """Note what the properties say; returns the maps without those which do not travel on."""
    keys = _as_list(found.key, count)
    ids = _as_list(found.message_id, count)
    priority = np.full(count, PRIORITY_DEFAULT, np.uint8)
    delay_ms = np.zeros(count, np.int64)
    left: list[list[tuple[str, str]]] = []
    now_ms = int(time.time() * 1000)
    for n, pairs in enumerate(maps.to_pylist()):
        kept: list[tuple[str, str]] = []
        for name, value in pairs or []:
            value = value or ""
            if name == PARTITION_KEY:
                keys[n] = keys[n] or value.encode()
                continue  # it is written from the key
            if name == MESSAGE_ID:
                ids[n] = ids[n] or value.encode()
                continue
            if name in DROPPED:
                continue
            if name == PRIORITY:
                priority[n] = min(max(0, _number(name, value)), PRIORITY_MAX)
            elif name == DELAY_MS:
                delay_ms[n] = _delay(value)
            elif name == DELIVER_AT:
                delay_ms[n] = delay_ms[n] or _delay_until(value, now_ms)
            kept.append((name, value))
        left.append(kept)
    found.key = pa.array(keys, pa.binary()) if any(keys) else b""
    found.message_id = pa.array(ids, pa.binary()) if any(ids) else b""
    found.priority = priority if (priority != PRIORITY_DEFAULT).any() else None
    found.delay_ms = delay_ms if delay_ms.any() else None
    return pa.array(left, COLUMNS["properties"])


def _as_list(values: pa.Array | bytes, count: int) -> list[bytes]:
    if isinstance(values, bytes):
        return [values] * count
    found: list[bytes] = values.to_pylist()
    return found


def _delay(value: str) -> int:
    delay_ms = _number(DELAY_MS, value)
    if not 0 <= delay_ms <= DELAY_MS_MAX:
        raise RefusedError(f"{DELAY_MS} = {value[:64]!r}: allowed: 0..{DELAY_MS_MAX}")
    return delay_ms


def _delay_until(value: str, now_ms: int) -> int:
    delay_ms = _number(DELIVER_AT, value) - now_ms
    if delay_ms > DELAY_MS_MAX:
        raise RefusedError(f"{DELIVER_AT} = {value[:64]!r}: allowed: a time within ten years")
    return max(0, delay_ms)


def _number(name: str, value: str) -> int:
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > DIGITS_MAX:
        allowed = f"a whole number of at most {DIGITS_MAX} digits"
        raise RefusedError(f"{name} = {value[:64]!r}: allowed: {allowed}")
    return int(value)
