"""Which shard of a cluster a topic, a queue, a mailbox or a vehicle belongs to. Pure.

Every node has to find the same place without asking, so it is a hash of a name and nothing else;
see docs/decisions/0020-shards.md for why which name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final
from zlib import crc32

from queuelake.names import DEAD_LETTERS, MQ_PREFIXES, PREFIX, RESPONSES
from queuelake.protocol.topics import is_shared, split_shared

EVERYWHERE: Final = -1
SPLIT: Final = -2  # a trigger: each vehicle it names has a place

TRIGGER: Final = b"$SDV-FANOUT/trigger"
FANOUT: Final = b"$SDV-FANOUT/"
MAILBOXES: Final = b"$ECQ/"
MAILBOX_WRITES: Final = b"$ECQ/w/"
SYSTEM: Final = b"$SYS/"
VIN: Final = b"{VIN}"

REMEMBERED_MAX: Final = 100_000  # topics
REMEMBERED_BYTES_MAX: Final = 128  # of one


@final
class Placing:
    """`heartbeats` are templates of topics by which a vehicle says that it is there."""

    def __init__(self, shards: int, heartbeats: Iterable[str] = ()) -> None:
        self.shards: Final = shards
        self._heartbeats: Final = [one.encode().split(b"/") for one in heartbeats]
        self._topics: Final[dict[bytes, int]] = {}

    def of(self, name: bytes) -> int:
        """Of a client, a mailbox's owner or a vehicle."""
        return crc32(name) % self.shards

    def of_queue(self, name: str) -> int:
        """Of a durable queue, its name without `$queue/`."""
        bare = name.removeprefix(DEAD_LETTERS).removeprefix(RESPONSES)
        return self.of(bare.partition("/")[0].encode())

    def of_topic(self, topic: bytes) -> int:
        """Where a publish goes: a shard, EVERYWHERE or SPLIT."""
        found = self._topics.get(topic)
        if found is None:
            found = self._find(topic)
            if len(topic) <= REMEMBERED_BYTES_MAX:
                if len(self._topics) >= REMEMBERED_MAX:
                    self._topics.clear()
                self._topics[topic] = found
        return found

    def of_filter(self, topic_filter: bytes) -> int:
        """Where a subscription goes: a shard, or EVERYWHERE. One to `$queue/{name}` may mean a
        message queue, which is everywhere: only brokers know that."""
        inner = split_shared(topic_filter)[1] if is_shared(topic_filter) else topic_filter
        if inner.startswith(MQ_PREFIXES):
            return EVERYWHERE
        if inner.startswith(PREFIX):
            return self._of_queue_topic(inner)
        if inner.startswith(MAILBOXES):
            return self.of(_level(inner, len(MAILBOXES)))
        if inner.startswith(SYSTEM):
            return 0
        return EVERYWHERE

    def _find(self, topic: bytes) -> int:
        if topic[:1] == b"$":
            if topic.startswith(PREFIX):
                return self._of_queue_topic(topic)
            if topic.startswith(MAILBOX_WRITES):
                return self.of(_level(topic, len(MAILBOX_WRITES)))
            if topic.startswith(MAILBOXES):
                return self.of(_level(topic, len(MAILBOXES)))
            if topic == TRIGGER:
                return SPLIT
            if topic.startswith(FANOUT):
                return EVERYWHERE
        if self._heartbeats:
            levels = topic.split(b"/")
            for template in self._heartbeats:
                if vin := _vehicle(template, levels):
                    return self.of(vin)
        return self.of(topic)

    def _of_queue_topic(self, topic: bytes) -> int:
        return self.of_queue(topic[len(PREFIX) :].decode("utf-8", "replace"))


def _level(topic: bytes, start: int) -> bytes:
    """The level which begins there."""
    return topic[start:].partition(b"/")[0]


def _vehicle(template: list[bytes], levels: list[bytes]) -> bytes:
    """The vehicle which such a topic names; empty: it is none of this template."""
    vin = b""
    if len(template) == len(levels):
        for wanted, level in zip(template, levels, strict=True):
            if wanted == VIN:
                vin = level
            elif wanted != level:
                return b""
    return vin
