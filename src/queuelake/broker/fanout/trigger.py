"""A trigger as a platform publishes it: which vehicles are to get which payload, as which request.

It is right as a whole or wrong as a whole. A hundred thousand vehicles are an ordinary trigger, so
they are read a part at a time, and what is looked for in every name is looked for in all names of a
part at once.
"""

from __future__ import annotations

from typing import Final, final

import msgspec

from queuelake.errors import RefusedError
from queuelake.protocol import reasons
from queuelake.storage.sdv_tables import NAME_BYTES_MAX

FORBIDDEN: Final = "/+#\0"  # a name is one level of a topic
PART_BYTES: Final = 2 * 1024  # of JSON, read at once
IDS: Final = b'"ids"'
REST_BYTES_MAX: Final = 8 * 1024
_SHOWN_CHARACTERS_MAX: Final = 64


class TriggerError(RefusedError):
    """The trigger is wrong; nothing of it was used."""

    reason_code = reasons.PAYLOAD_FORMAT_INVALID


class _Body(msgspec.Struct):
    ids: msgspec.Raw
    request_id: str
    data_id: str


@final
class Trigger:
    """What it says; `next_vins` reads on in the vehicles it names."""

    __slots__ = ("_at", "_ids", "_step", "data_id", "request_id")

    def __init__(self, ids: bytes, request_id: str, data_id: str) -> None:
        self._ids: bytes = ids  # the JSON of a list
        self._at: int = 1
        # Where a character may be written as several, a quotation mark may be part of a name.
        self._step: int = PART_BYTES if b"\\" not in ids else len(ids)
        self.request_id: str = request_id
        self.data_id: str = data_id

    def next_vins(self) -> list[str]:
        """Some more vehicles, maybe not for the first time; none: these were all.

        Raises:
            TriggerError: these are none.
        """
        if self._at >= len(self._ids):
            return []
        cut = self._next_cut()
        part = b"[" + self._ids[self._at : cut] + b"]"
        is_all = self._at == 1 and cut == len(self._ids) - 1
        self._at = cut + 1
        try:
            vins = _VINS.decode(part)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise TriggerError(f"trigger: ids: {error}") from error
        if vins:
            _check_vins(vins)
        elif not is_all:
            raise TriggerError("trigger: ids: JSON is malformed: a comma with no name beside it")
        return vins

    def _next_cut(self) -> int:
        """The place of a comma between two names, or of the end of the list."""
        ids, start = self._ids, self._at
        cut = ids.find(b",", start + self._step)
        while cut >= 0 and ids.count(b'"', start, cut) % 2:  # it is part of a name
            cut = ids.find(b",", cut + 1)
        return cut if cut >= 0 else len(ids) - 1


_DECODER: Final = msgspec.json.Decoder(_Body)
_VINS: Final = msgspec.json.Decoder(list[str])


def read_trigger(payload: bytes) -> Trigger:
    """Read the JSON of a trigger, all but the vehicles.

    Raises:
        TriggerError: it is none.
    """
    body, ids = _without_ids(payload)
    if body is None:
        try:
            body = _DECODER.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise TriggerError(f"trigger: {error}") from error
        ids = bytes(body.ids)
    check_name("request_id", body.request_id)
    if problem := data_id_problem(body.data_id):
        raise TriggerError(f"trigger: {problem}")
    if not ids.startswith(b"["):
        raise TriggerError("trigger: ids is no list; allowed: a list of VINs")
    return Trigger(ids, body.request_id, body.data_id)


def _without_ids(payload: bytes) -> tuple[_Body | None, bytes]:
    """The members of a trigger and the JSON of its list, found without reading the list: that is
    read part by part later. None where it takes a closer look to know which list it is."""
    start = payload.find(b"[", payload.find(IDS))
    end = payload.find(b"]", start)
    rest = payload[: start + 1] + payload[end:]
    if start < 0 or end < 0 or len(rest) > REST_BYTES_MAX:
        return None, b""
    # With one list of that name and nothing escaped, what reads as JSON without it did so with it.
    if b"\\" in rest or rest.count(IDS) != 1:
        return None, b""
    try:
        body = _DECODER.decode(rest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None, b""
    return (body, payload[start : end + 1]) if bytes(body.ids) == b"[]" else (None, b"")


def check_name(member: str, name: str) -> None:
    if not name or any(one in name for one in FORBIDDEN):
        shown = repr(name[:_SHOWN_CHARACTERS_MAX])
        raise TriggerError(f"trigger: {member} is {shown}; allowed: a text without / + #")
    if problem := _size_problem(member, name):
        raise TriggerError(f"trigger: {problem}")


def data_id_problem(data_id: str) -> str:
    """Why no payload can have this id; nothing: one can."""
    if not data_id or "\0" in data_id:
        return "data_id is empty; allowed: the id of a payload"
    return _size_problem("data_id", data_id)


def _size_problem(member: str, name: str) -> str:
    size = len(name.encode())
    if size <= NAME_BYTES_MAX:
        return ""
    return f"{member} has {size} bytes, the limit is {NAME_BYTES_MAX}"


def _check_vins(vins: list[str]) -> None:
    everything = "\n".join(vins)
    longest = max(map(len, vins))
    if "" not in vins and not any(one in everything for one in FORBIDDEN):
        if longest * 4 <= NAME_BYTES_MAX:
            return
    for vin in vins:
        check_name("one of ids", vin)
