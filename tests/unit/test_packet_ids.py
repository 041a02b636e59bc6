"""How several brokers share the packet ids of one client."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuelake.broker.packet_ids import ALONE, DELIVERY_ID_MIN, PACKET_ID_MAX, PacketIds


def test_a_broker_alone_has_all_of_them() -> None:
    assert (ALONE.own, ALONE.deliveries) == (32767, 32768)
    for packet_id in (1, PACKET_ID_MAX, DELIVERY_ID_MIN, 65535):
        assert ALONE.of_client(0, packet_id) == packet_id
        assert ALONE.of_shard(packet_id) == (0, packet_id)


@pytest.mark.parametrize("shards", [1, 2, 3, 5, 16])
def test_no_two_brokers_use_the_same_one(shards: int) -> None:
    ids = PacketIds(shards)
    used = [*range(1, ids.own + 1), *range(DELIVERY_ID_MIN, DELIVERY_ID_MIN + ids.deliveries)]
    seen = [ids.of_client(shard, one) for shard in range(shards) for one in used]
    assert len(set(seen)) == len(seen)
    assert min(seen) >= 1
    assert max(seen) <= 65535


@given(st.integers(1, 16), st.data())
def test_an_answer_finds_back(shards: int, data: st.DataObject) -> None:
    ids = PacketIds(shards)
    shard = data.draw(st.integers(0, shards - 1))
    own = st.integers(1, ids.own)
    deliveries = st.integers(DELIVERY_ID_MIN, DELIVERY_ID_MIN + ids.deliveries - 1)
    packet_id = data.draw(own | deliveries)
    assert ids.of_shard(ids.of_client(shard, packet_id)) == (shard, packet_id)
