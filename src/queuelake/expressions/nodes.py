"""The tree an expression is parsed into: each node gives its value for one message.

Calls are strict but for three forms: `coalesce`, `iif` and `is_empty` take a variable the message
does not have as empty, and the first two evaluate only what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, final

from queuelake.expressions.errors import EvaluationError, UnboundError
from queuelake.expressions.fields import Fields
from queuelake.expressions.values import Value, anything, is_empty


class Node(Protocol):
    def evaluate(self, fields: Fields) -> Value: ...


@final
class Literal:
    __slots__ = ("value",)

    def __init__(self, value: str | int | float | bool) -> None:
        self.value = value

    def evaluate(self, fields: Fields) -> Value:
        return self.value


@final
class Array:
    __slots__ = ("nodes",)

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes

    def evaluate(self, fields: Fields) -> Value:
        return [node.evaluate(fields) for node in self.nodes]


@final
class Variable:
    __slots__ = ("_read",)

    def __init__(self, read: Callable[[Fields], Value]) -> None:
        self._read = read

    def evaluate(self, fields: Fields) -> Value:
        return self._read(fields)


@final
class Call:
    """A function on its arguments, each already what the function takes."""

    __slots__ = ("_arguments", "_column", "_implementation", "_name", "_sees_fields")

    def __init__(
        self,
        name: str,
        column: int,
        implementation: Callable[..., Value],
        arguments: Sequence[Callable[[Fields], object]],
        sees_fields: bool,
    ) -> None:
        self._name = name
        self._column = column
        self._implementation = implementation
        self._arguments = arguments
        self._sees_fields = sees_fields

    def evaluate(self, fields: Fields) -> Value:
        try:
            values = [argument(fields) for argument in self._arguments]
            if self._sees_fields:
                return self._implementation(fields, *values)
            return self._implementation(*values)
        except (ValueError, ArithmeticError, RecursionError) as error:
            raise EvaluationError(f"{self._name}() at column {self._column}: {error}") from error


def argument(convert: Callable[[Value], object], node: Node) -> Callable[[Fields], object]:
    """The value of a node, turned into what a function takes; of a literal only once.

    Raises ValueError when the function does not take this literal.
    """
    if isinstance(node, Literal):
        constant = convert(node.value)
        return lambda fields: constant
    evaluate = node.evaluate
    if convert is anything:
        return evaluate
    return lambda fields: convert(evaluate(fields))


@final
class Coalesce:
    """The first value which is not empty, of a list or of the arguments."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: Sequence[Node]) -> None:
        first = nodes[0]
        if len(nodes) == 1 and isinstance(first, Array):
            nodes = first.nodes
        self._nodes = nodes

    def evaluate(self, fields: Fields) -> Value:
        is_single = len(self._nodes) == 1
        for node in self._nodes:
            value = _value_or_empty(node, fields)
            if is_single and isinstance(value, list):
                return next((item for item in value if not is_empty(item)), "")
            if not is_empty(value):
                return value
        return ""


@final
class Choice:
    """`iif(condition, then, otherwise)`: a condition holds when it is true, or not empty."""

    __slots__ = ("_condition", "_otherwise", "_then")

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._condition, self._then, self._otherwise = nodes

    def evaluate(self, fields: Fields) -> Value:
        value = _value_or_empty(self._condition, fields)
        holds = value if isinstance(value, bool) else not is_empty(value)
        return (self._then if holds else self._otherwise).evaluate(fields)


@final
class IsEmpty:
    __slots__ = ("_node",)

    def __init__(self, nodes: Sequence[Node]) -> None:
        (self._node,) = nodes

    def evaluate(self, fields: Fields) -> Value:
        return is_empty(_value_or_empty(self._node, fields))


def _value_or_empty(node: Node, fields: Fields) -> Value:
    try:
        return node.evaluate(fields)
    except UnboundError:
        return ""
