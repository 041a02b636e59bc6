"""MQTT properties of messages as columns: the content type, and the user properties as a map.

All messages are read together, a property of each at a time: there are as many steps as the
message with the most properties has, however many messages there are.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from queuelake.errors import StorageError
from queuelake.export.chunks import Ints, Texts
from queuelake.export.schemas import TYPES
from queuelake.protocol import properties as p

_MAP: Final = TYPES["map<string,string>"]
_FIXED: Final = {p.FLAG: 2, p.U16: 3, p.U32: 5}  # bytes, with the identifier
_UNKNOWN: Final = -1
_TEXT: Final = 0  # as long as it says itself

# What follows each identifier.
_SIZES: Final = np.full(256, _UNKNOWN, np.int64)
for _identifier, _kind in p.TYPES.items():
    _SIZES[_identifier] = _FIXED.get(_kind, _TEXT)


class Properties:
    """Of the messages of a batch, checked by the decoder when they came."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        _, offsets, data = texts.values.buffers()
        first = texts.values.offset
        ends = np.frombuffer(offsets, np.int32)[first : first + len(texts.values) + 1]
        self._data = data
        self._bytes = np.frombuffer(data or b"", np.uint8)
        self._content_types = _Places()
        self._names = _Places()
        self._values = _Places()
        self._read(ends[:-1].astype(np.int64), ends[1:].astype(np.int64))

    def content_types(self) -> pa.Array:
        """Null where a message has none."""
        found = np.full(len(self._texts.values), -1)
        found[self._content_types.rows()] = np.arange(len(self._content_types.rows()))
        texts = self._content_types.texts(self._data)
        return self._texts.spread(texts.take(pa.array(found, mask=found < 0)))

    def user_properties(self) -> pa.Array:
        """Of a name which is there twice, the last value."""
        count = len(self._texts.values)
        rows = self._names.rows()
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum(np.bincount(rows, minlength=count), out=offsets[1:])
        names, values = self._names.texts(self._data), self._values.texts(self._data)
        maps = pa.MapArray.from_arrays(pa.array(offsets), names, values, _MAP)
        if _is_repeated(rows, names):
            maps = pa.array([list(dict(one).items()) for one in maps.to_pylist()], _MAP)
        return self._texts.spread(maps)

    def _read(self, at: Ints, ends: Ints) -> None:
        rows = np.flatnonzero(at < ends)
        while len(rows):
            here, stop = at[rows], ends[rows]
            identifiers = self._bytes[here]
            sizes = _SIZES[identifiers]
            if (unknown := sizes == _UNKNOWN).any():
                raise StorageError(f"0x{identifiers[unknown][0]:02X} is no property of a message")
            begin = here + 3
            end = np.where(sizes == _TEXT, begin + self._length(here + 1), here + sizes)
            is_user = identifiers == p.USER_PROPERTY
            if is_user.any():
                user, name_end = rows[is_user], end[is_user]
                self._names.add(user, begin[is_user], name_end)
                value_end = name_end + 2 + self._length(name_end)
                self._values.add(user, name_end + 2, value_end)
                end[is_user] = value_end
            if (is_type := identifiers == p.CONTENT_TYPE).any():
                self._content_types.add(rows[is_type], begin[is_type], end[is_type])
            if (end > stop).any():
                raise StorageError("a property of a message is longer than all its properties")
            at[rows] = end
            rows = rows[end < stop]

    def _length(self, at: Ints) -> Ints:
        """The two bytes there; whether they are within the message is looked at afterwards."""
        last = len(self._bytes) - 1
        high = self._bytes[np.minimum(at, last)].astype(np.int64)
        return (high << 8) + self._bytes[np.minimum(at + 1, last)]


class _Places:
    """Where texts lie, and of which message they are."""

    def __init__(self) -> None:
        self._rows: list[Ints] = []
        self._begins: list[Ints] = []
        self._ends: list[Ints] = []

    def add(self, rows: Ints, begins: Ints, ends: Ints) -> None:
        self._rows.append(rows)
        self._begins.append(begins)
        self._ends.append(ends)

    def rows(self) -> Ints:
        return _sorted(self._rows)

    def texts(self, data: pa.Buffer) -> pa.Array:
        """In the order of their messages, and as they are in a message."""
        begins, ends = _sorted(self._begins), _sorted(self._ends)
        if not len(begins):
            return pa.array([], pa.string())
        # Every other one of these is a text; between them is what lies between the texts.
        offsets = np.stack([begins, ends], 1).astype(np.int32).ravel()
        buffers = [None, pa.py_buffer(offsets), data]
        found = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
        return as_text(found.take(pa.array(np.arange(0, len(offsets), 2))))


def as_text(values: pa.Array) -> pa.Array:
    """Bytes as text; what is not UTF-8 must not keep the rest back."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([one.decode("utf-8", "replace") for one in values.to_pylist()], pa.string())


def _is_repeated(rows: Ints, names: pa.Array) -> bool:
    """Whether a message has two properties of one name."""
    if (rows[1:] != rows[:-1]).all():
        return False
    numbers: NDArray[np.int64] = pc.dictionary_encode(names).indices.to_numpy().astype(np.int64)
    return len(np.unique(rows * len(rows) + numbers)) < len(rows)


def _sorted(parts: list[Ints]) -> Ints:
    """All of them; each part is in order, and mostly there is one."""
    if len(parts) == 1:
        return parts[0]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)
