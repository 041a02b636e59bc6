"""Topic names and topic filters: what is legal, what matches, what a shared filter means."""

from __future__ import annotations

from typing import Final

PLUS: Final = 0x2B
HASH: Final = 0x23


def topic_problem(topic: bytes, levels_max: int) -> str:
    """Say why a topic name may not be published to; empty when it may."""
    if not topic:
        return "topic name is empty"
    if has_wildcard(topic):
        return "topic name holds a wildcard"
    if topic.count(b"/") >= levels_max:
        return f"topic name has more than {levels_max} levels"
    return ""


def filter_problem(topic_filter: bytes, levels_max: int) -> str:
    """Say why a topic filter may not be subscribed to; empty when it may."""
    if not topic_filter:
        return "topic filter is empty"
    levels = topic_filter.split(b"/")
    if len(levels) > levels_max:
        return f"topic filter has more than {levels_max} levels"
    for position, level in enumerate(levels):
        if b"#" in level and (level != b"#" or position != len(levels) - 1):
            return "'#' must stand alone at the end of a topic filter"
        if b"+" in level and level != b"+":
            return "'+' must fill a whole level of a topic filter"
    return ""


def has_wildcard(topic_filter: bytes) -> bool:
    # As numbers: `b"+" in ...` first tries its left side as a number, and fails slowly.
    return PLUS in topic_filter or HASH in topic_filter


def is_shared(topic_filter: bytes) -> bool:
    return topic_filter.startswith(b"$share/")


def split_shared(topic_filter: bytes) -> tuple[bytes, bytes]:
    """Split `$share/{group}/{filter}`; both parts are empty when it is not of that form."""
    parts = topic_filter.split(b"/", 2)
    if len(parts) < 3 or not parts[1] or not parts[2] or has_wildcard(parts[1]):
        return b"", b""
    return parts[1], parts[2]


def matches(topic_filter: bytes, topic: bytes) -> bool:
    """Whether a topic name matches a filter. The router does the same with an index."""
    if topic[:1] == b"$" and topic_filter[:1] in (b"+", b"#"):
        return False
    wanted = topic_filter.split(b"/")
    levels = topic.split(b"/")
    for position, level in enumerate(wanted):
        if level == b"#":
            return True
        if position >= len(levels):
            return False
        if level != b"+" and level != levels[position]:
            return False
    return len(wanted) == len(levels)
