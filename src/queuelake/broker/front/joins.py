"""Packets of a client which several shards answer: what they said so far, and what the client
hears. Pure."""

from __future__ import annotations

from queuelake.broker.front import server_packets as sp
from queuelake.protocol import encoder


class AckJoin:
    """PUBACK, PUBREC or PUBCOMP of several shards for one packet.

    Where each shard has to do its part one refusal is a refusal; `any_will_do`: it is the affair of
    one of them, and the others can only say that they know nothing of it.
    """

    def __init__(self, shards: list[int], any_will_do: bool) -> None:
        self.accepted: list[int] = []
        self._waiting = set(shards)
        self._any_will_do = any_will_do
        self._best: bytes | None = None

    def answered(self, shard: int, ack: bytes) -> bytes | None:
        """What the client hears, when all have answered."""
        self._waiting.discard(shard)
        if sp.reason_of(ack) < 0x80:
            self.accepted.append(shard)
        if self._best is None or self._rank(ack) < self._rank(self._best):
            self._best = ack
        return None if self._waiting else self._best

    def _rank(self, ack: bytes) -> int:
        reason = sp.reason_of(ack)
        is_refusal = reason >= 0x80
        return reason + 0x100 if is_refusal is self._any_will_do else reason


class CodesJoin:
    """SUBACK or UNSUBACK: `places` says for each filter of the client which shards have it."""

    def __init__(self, version: int, packet_id: int, places: list[list[int]]) -> None:
        self._version = version
        self._packet_id = packet_id
        self._places = places
        self.asked = sorted({shard for shards in places for shard in shards})
        self._waiting = set(self.asked)
        self._codes: list[list[int]] = [[] for _ in places]
        self._words: list[str] = []

    def of(self, shard: int) -> list[int]:
        """The filters, by number, which this shard is asked for."""
        return [number for number, shards in enumerate(self._places) if shard in shards]

    def waits_for(self, shard: int) -> bool:
        return shard in self._waiting

    def answered(self, shard: int, answer: bytes) -> bool:
        """Whether all have."""
        codes, words = sp.codes_of(self._version, answer)
        for number, code in zip(self.of(shard), codes, strict=False):
            self._codes[number].append(code)
        if words and words not in self._words:
            self._words.append(words)
        self._waiting.discard(shard)
        return not self._waiting

    def suback(self, size_max: int) -> bytes:
        """What a shard refused is refused, whatever the others say; without words when the client
        takes no packet that long (0: any)."""
        codes = bytes([max(codes) for codes in self._codes])
        words = encoder.suback(self._version, self._packet_id, codes, "; ".join(self._words))
        if size_max and len(words) > size_max:
            return encoder.suback(self._version, self._packet_id, codes)
        return words

    def unsuback(self, _: int) -> bytes:
        """What was in one of them is gone."""
        codes = bytes([min(codes, default=0) for codes in self._codes])
        return encoder.unsuback(self._version, self._packet_id, codes)
