"""Retained messages: an index of topics in memory, messages in the store.

The newest messages stay in memory up to a limit; older ones are read from the store when a
subscription asks for them. A message may be forgotten only when its commit group is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from queuelake.protocol.message import Message
from queuelake.protocol.topics import has_wildcard


@final
class _Entry:
    __slots__ = ("expires_ms", "group", "message", "size", "volatile")

    def __init__(self, message: Message, group: int, volatile: bool) -> None:
        self.message: Message | None = message
        self.expires_ms: int = message.expires_ms
        self.size: int = message.size()
        self.group: int = group  # the commit group which makes it durable
        self.volatile: bool = volatile  # only in memory: a `$SYS` topic


@final
class _Node:
    __slots__ = ("children", "topic")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node] = {}
        self.topic: bytes | None = None


@final
class Retained:
    """Topic -> the last message published to it with the retain flag."""

    __slots__ = ("_entries", "_load", "_memory_max", "_resident", "_root", "memory_bytes")

    def __init__(self, memory_bytes_max: int, load: Callable[[bytes], Message | None]) -> None:
        self._entries: dict[bytes, _Entry] = {}
        self._root: _Node = _Node()
        self._load: Callable[[bytes], Message | None] = load
        self._memory_max: int = memory_bytes_max
        self._resident: dict[bytes, _Entry] = {}  # entries with their message, oldest first
        self.memory_bytes: int = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, topic: bytes) -> bool:
        return topic in self._entries

    def set(self, message: Message, group: int, volatile: bool = False) -> None:
        topic = message.topic
        if topic in self._entries:
            self._forget_message(topic)
        else:
            self._add_to_tree(topic)
        entry = _Entry(message, group, volatile)
        self._entries[topic] = entry
        if not volatile:
            self._resident[topic] = entry
            self.memory_bytes += entry.size

    def remove(self, topic: bytes) -> bool:
        if topic not in self._entries:
            return False
        self._forget_message(topic)
        del self._entries[topic]
        self._remove_from_tree(topic)
        return True

    def match(self, topic_filter: bytes, now_ms: int) -> list[Message]:
        """The messages whose topic matches, expired ones left out."""
        found: list[Message] = []
        for topic in self.topics(topic_filter):
            message = self.get(topic, now_ms)
            if message is not None:
                found.append(message)
        return found

    def topics(self, topic_filter: bytes) -> list[bytes]:
        """The topics which match and have a message."""
        found: list[bytes] = []
        if not has_wildcard(topic_filter):
            if topic_filter in self._entries:
                found.append(topic_filter)
        else:
            _match(self._root, topic_filter.split(b"/"), 0, found)
        return found

    def get(self, topic: bytes, now_ms: int) -> Message | None:
        """The message of a topic, unless it has none or it has expired."""
        entry = self._entries.get(topic)
        if entry is None or (entry.expires_ms and now_ms >= entry.expires_ms):
            return None
        return entry.message if entry.message is not None else self._load(topic)

    def expired(self, now_ms: int) -> list[bytes]:
        return [
            topic
            for topic, entry in self._entries.items()
            if entry.expires_ms and now_ms >= entry.expires_ms
        ]

    def shrink(self, durable_group: int) -> None:
        """Forget messages over the limit of memory, the oldest first; the store has them."""
        while self.memory_bytes > self._memory_max:
            topic = next(iter(self._resident))
            if self._resident[topic].group > durable_group:
                return
            self._forget_message(topic)

    def _forget_message(self, topic: bytes) -> None:
        entry = self._resident.pop(topic, None)
        if entry is not None:
            entry.message = None
            self.memory_bytes -= entry.size

    def _add_to_tree(self, topic: bytes) -> None:
        node = self._root
        for level in topic.split(b"/"):
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        node.topic = topic

    def _remove_from_tree(self, topic: bytes) -> None:
        path = [self._root]
        levels = topic.split(b"/")
        for level in levels:
            path.append(path[-1].children[level])
        path[-1].topic = None
        for depth in range(len(levels), 0, -1):
            if path[depth].children or path[depth].topic is not None:
                return
            del path[depth - 1].children[levels[depth - 1]]


def _match(node: _Node, levels: list[bytes], depth: int, found: list[bytes]) -> None:
    if depth == len(levels):
        if node.topic is not None:
            found.append(node.topic)
        return
    level = levels[depth]
    if level == b"#":
        _everything(node, found, depth == 0)
    elif level == b"+":
        for name, child in node.children.items():
            if depth or name[:1] != b"$":  # wildcards at the first level never match `$` topics
                _match(child, levels, depth + 1, found)
    else:
        child_node = node.children.get(level)
        if child_node is not None:
            _match(child_node, levels, depth + 1, found)


def _everything(node: _Node, found: list[bytes], at_root: bool) -> None:
    if node.topic is not None:
        found.append(node.topic)
    for name, child in node.children.items():
        if not at_root or name[:1] != b"$":
            _everything(child, found, False)
