"""The packet ids a broker gives: the lower half to messages of sessions, the upper to deliveries of
queues.

In a cluster with several shards one client is served by the brokers of all of them, and sees ids of
each in a stretch of its own: its answer says which broker it is for, and a message which is sent
again has the id it had, though nobody remembers it. So each broker uses only as many as fit.
"""

from __future__ import annotations

from typing import Final, final

PACKET_ID_MAX: Final = 32767  # of sessions
DELIVERY_ID_MIN: Final = 32768
DELIVERY_IDS: Final = 32768


@final
class PacketIds:
    """How many ids each of several brokers has, and how one client sees them."""

    __slots__ = ("deliveries", "own", "shards")

    def __init__(self, shards: int) -> None:
        self.shards: int = shards
        self.own: int = PACKET_ID_MAX // shards
        self.deliveries: int = 1 << (DELIVERY_IDS // shards).bit_length() - 1  # a power of two

    def of_client(self, shard: int, packet_id: int) -> int:
        """What the client sees as the id of a message which a shard has sent."""
        if packet_id > PACKET_ID_MAX:
            return packet_id + shard * self.deliveries
        return packet_id + shard * self.own

    def of_shard(self, packet_id: int) -> tuple[int, int]:
        """The shard an answer of the client is for, and the id there; a shard which there is not:
        the client has made this id up."""
        if packet_id > PACKET_ID_MAX:
            shard, rest = divmod(packet_id - DELIVERY_ID_MIN, self.deliveries)
            return shard, DELIVERY_ID_MIN + rest
        shard, rest = divmod(packet_id - 1, self.own)
        return shard, 1 + rest


ALONE: Final = PacketIds(1)
