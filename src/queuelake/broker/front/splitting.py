"""A trigger of vehicle fan-out, split by the shards of the vehicles it names. Pure."""

from __future__ import annotations

import msgspec

from queuelake.broker.fanout.trigger import TriggerError, read_trigger
from queuelake.placing import Placing


def split_trigger(payload: bytes, placing: Placing) -> dict[int, bytes]:
    """The trigger for each shard which has one of the vehicles; none: it is not right, or names
    nobody, and any broker can say so."""
    vins_of: dict[int, list[str]] = {}
    try:
        trigger = read_trigger(payload)
        while vins := trigger.next_vins():
            for vin in vins:
                vins_of.setdefault(placing.of(vin.encode()), []).append(vin)
    except TriggerError:
        return {}
    return {
        shard: msgspec.json.encode(
            {"ids": vins, "request_id": trigger.request_id, "data_id": trigger.data_id}
        )
        for shard, vins in vins_of.items()
    }
