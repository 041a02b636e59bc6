"""Functions on MQTT topics."""

from __future__ import annotations

from typing import Final

from queuelake.expressions.functions.function import Function
from queuelake.expressions.values import Value, anything, check_count, items, join, to_text
from queuelake.protocol.topics import filter_problem, matches

LEVELS_MAX: Final = 65_535


def _topic_join(*values: Value) -> str:
    """`topic_join(levels)` or `topic_join(parent, level)`; never a double slash between two."""
    if len(values) == 1:
        return join("/", [_level(level) for level in items(values[0])])
    parent, level = _level(values[0]), _level(values[1])
    if not parent:
        raise ValueError("the parent topic is empty")
    return join("", [parent, "" if parent.endswith("/") else "/", level])


def _topic_match(topic: str, topic_filter: str) -> bool:
    octets = topic_filter.encode()
    problem = filter_problem(octets, LEVELS_MAX)
    if problem:
        raise ValueError(problem)
    return matches(octets, topic.encode())


def _topic_split(topic: str) -> Value:
    check_count(topic.count("/"))
    return [*topic.split("/")]


def _level(value: Value) -> str:
    if value is None:
        raise ValueError("nothing where a topic level is needed")
    return to_text(value)


TOPICS: Final[dict[str, Function]] = {
    "topic_join": Function(_topic_join, anything, anything, optional=1),
    "topic_match": Function(_topic_match, _level, _level),
    "topic_split": Function(_topic_split, _level),
}
