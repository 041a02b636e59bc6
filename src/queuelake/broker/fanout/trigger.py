"""A trigger as a platform publishes it: which vehicles are to get which payload, as which request.

It is right as a whole or wrong as a whole. A hundred thousand vehicles are an ordinary trigger, so
what is looked for in every name is looked for in all of them at once.
"""

from __future__ import annotations

from typing import Final, final

import msgspec

from queuelake.errors import RefusedError
from queuelake.protocol import reasons
from queuelake.storage.sdv_tables import NAME_BYTES_MAX

FORBIDDEN: Final = "/+#\0"  # a name is one level of a topic
_SHOWN_CHARACTERS_MAX: Final = 64


class TriggerError(RefusedError):
    """The trigger is wrong; nothing of it was used."""

    reason_code = reasons.PAYLOAD_FORMAT_INVALID


class _Body(msgspec.Struct):
    ids: list[str]
    request_id: str
    data_id: str


@final
class Trigger:
    """`vins` are all different."""

    __slots__ = ("data_id", "request_id", "vins")

    def __init__(self, vins: list[str], request_id: str, data_id: str) -> None:
        self.vins: list[str] = vins
        self.request_id: str = request_id
        self.data_id: str = data_id


_DECODER: Final = msgspec.json.Decoder(_Body)


def read_trigger(payload: bytes) -> Trigger:
    """Read the JSON of a trigger.

    Raises:
        TriggerError: it is none.
    """
    try:
        body = _DECODER.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TriggerError(f"trigger: {error}") from error
    check_name("request_id", body.request_id)
    check_data_id(body.data_id)
    vins = list(dict.fromkeys(body.ids))
    if vins:
        _check_vins(vins)
    return Trigger(vins, body.request_id, body.data_id)


def check_name(member: str, name: str) -> None:
    if not name or any(one in name for one in FORBIDDEN):
        shown = repr(name[:_SHOWN_CHARACTERS_MAX])
        raise TriggerError(f"trigger: {member} is {shown}; allowed: a text without / + #")
    _check_size(member, name)


def check_data_id(data_id: str) -> None:
    if not data_id or "\0" in data_id:
        raise TriggerError("trigger: data_id is empty; allowed: the id of a payload")
    _check_size("data_id", data_id)


def _check_size(member: str, name: str) -> None:
    size = len(name.encode())
    if size > NAME_BYTES_MAX:
        problem = f"trigger: {member} has {size} bytes, the limit is {NAME_BYTES_MAX}"
        raise TriggerError(problem)


def _check_vins(vins: list[str]) -> None:
    everything = "\n".join(vins)
    longest = max(map(len, vins))
    if "" not in vins and not any(one in everything for one in FORBIDDEN):
        if longest * 4 <= NAME_BYTES_MAX:
            return
    for vin in vins:
        check_name("one of ids", vin)
