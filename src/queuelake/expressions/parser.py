"""Text to tree, by recursive descent, with the column of the first mistake.

    expression = call | variable | string | number | "true" | "false"
    call       = name "(" [argument {"," argument}] ")"
    argument   = expression | "[" [argument {"," argument}] "]"

Strings are '..' or "..", without escapes: a text with both quotes is made by `unescape`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Final, final

from queuelake.expressions.errors import BadExpressionError
from queuelake.expressions.fields import Fields
from queuelake.expressions.functions import FORMS, FUNCTIONS, Function
from queuelake.expressions.nodes import Array, Call, Literal, Node, argument
from queuelake.expressions.variables import resolve_variable

EXPRESSION_BYTES_MAX: Final = 4096
NESTING_MAX: Final = 64
INTEGER_MAX: Final = 2**63 - 1

SPACE: Final = re.compile(r"[ \t\r\n]*")
TOKEN: Final = re.compile(
    r"""(?P<number>[+-]?[0-9]+(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?)?)"""
    r"""|(?P<name>[A-Za-z][-A-Za-z0-9_.]*)"""
    r"""|(?P<string>'[^']*'|"[^"]*")"""
    r"""|(?P<mark>[()\[\],])"""
)
END: Final = "end"


def parse(text: str) -> Node:
    """The tree of an expression. Raises BadExpressionError."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise BadExpressionError(text, error.start + 1, "half of a surrogate pair") from None
    if size > EXPRESSION_BYTES_MAX:
        problem = f"the expression has {size} bytes, at most {EXPRESSION_BYTES_MAX}"
        raise BadExpressionError(text, 1, problem)
    return _Parser(text).whole()


@final
class _Parser:
    """Stands on one token: its kind, its text, and where it begins."""

    __slots__ = ("_at", "_depth", "_kind", "_next", "_text", "_token")

    def __init__(self, text: str) -> None:
        self._text = text
        self._next = 0
        self._depth = 0
        self._kind = END
        self._token = ""
        self._at = 0
        self._advance()

    def whole(self) -> Node:
        if self._kind == END:
            raise self._mistake("the expression is empty")
        if self._token == "[":
            raise self._mistake("a list cannot be a key; use concat or join_to_string")
        node = self._argument()
        if self._kind != END:
            raise self._mistake(f"{self._token!r} behind the end of the expression")
        return node

    def _argument(self) -> Node:
        kind, token, at = self._kind, self._token, self._at
        if kind == "name":
            self._advance()
            if self._token == "(" and self._kind == "mark":
                return self._call(token, at)
            return self._named(token, at)
        if kind == "string":
            self._advance()
            return Literal(token[1:-1])
        if kind == "number":
            self._advance()
            return self._number(token, at)
        if kind == "mark" and token == "[":
            nodes, _ = self._list("]")
            return Array(nodes)
        raise self._mistake(f"{self._shown()} where a value is needed")

    def _named(self, name: str, at: int) -> Node:
        if name in ("true", "false"):
            return Literal(name == "true")
        if name in FUNCTIONS or name in FORMS:
            raise self._mistake(f"the function {name!r} needs its '('")
        try:
            return resolve_variable(name)
        except ValueError as error:
            raise self._mistake_at(at, str(error)) from None

    def _number(self, token: str, at: int) -> Node:
        if token.lstrip("+-").isdigit():
            value = int(token)
            if abs(value) > INTEGER_MAX:
                raise self._mistake_at(at, f"{token} is beyond {INTEGER_MAX}")
            return Literal(value)
        decimal = float(token)
        if math.isinf(decimal):
            raise self._mistake_at(at, f"{token} is too large")
        return Literal(decimal)

    def _call(self, name: str, at: int) -> Node:
        form, function = FORMS.get(name), FUNCTIONS.get(name)
        if form is None and function is None:
            close = get_close_matches(name, [*FUNCTIONS, *FORMS], n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise self._mistake_at(at, f"unknown function {name!r}{hint}")
        nodes, starts = self._list(")")
        if form is not None:
            make, least, most = form
            self._check_count(name, at, len(nodes), least, most)
            return make(nodes)
        assert function is not None
        self._check_count(name, at, len(nodes), function.arguments_min, function.arguments_max)
        arguments = [
            self._converted(function, place, node, starts[place])
            for place, node in enumerate(nodes)
        ]
        return Call(name, at + 1, function.implementation, arguments, function.sees_fields)

    def _list(self, closing: str) -> tuple[list[Node], list[int]]:
        """From the opening mark over the closing one: the nodes, and where each begins."""
        opened = self._at
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise self._mistake(f"nested deeper than {NESTING_MAX} levels")
        self._advance()
        nodes: list[Node] = []
        starts: list[int] = []
        while not self._is(closing):
            if nodes:
                if not self._is(","):
                    self._expect_closed(opened)
                    raise self._mistake(f"{self._shown()} where ',' or {closing!r} is needed")
                self._advance()
            self._expect_closed(opened)
            starts.append(self._at)
            nodes.append(self._argument())
        self._advance()
        self._depth -= 1
        return nodes, starts

    def _expect_closed(self, opened: int) -> None:
        if self._kind == END:
            raise self._mistake_at(opened, f"{self._text[opened]!r} is never closed")

    def _check_count(self, name: str, at: int, count: int, least: int, most: int) -> None:
        if least <= count <= most:
            return
        takes = str(least) if least == most else f"{least} to {most}"
        if most > EXPRESSION_BYTES_MAX:
            takes = f"at least {least}"
        plural = "" if count == 1 else "s"
        raise self._mistake_at(at, f"{name}() has {count} argument{plural}, takes {takes}")

    def _converted(
        self, function: Function, place: int, node: Node, at: int
    ) -> Callable[[Fields], object]:
        convert = function.converters[min(place, len(function.converters) - 1)]
        try:
            return argument(convert, node)
        except ValueError as error:
            raise self._mistake_at(at, str(error)) from None

    def _advance(self) -> None:
        space = SPACE.match(self._text, self._next)
        assert space is not None
        self._at = space.end()
        if self._at == len(self._text):
            self._kind, self._token, self._next = END, "", self._at
            return
        token = TOKEN.match(self._text, self._at)
        if token is None:
            character = self._text[self._at]
            problem = f"unexpected {character!r}"
            if character in "'\"":
                problem = f"the string which begins with {character} is never closed"
            raise self._mistake(problem)
        assert token.lastgroup is not None
        self._kind, self._token, self._next = token.lastgroup, token[0], token.end()

    def _is(self, mark: str) -> bool:
        return self._kind == "mark" and self._token == mark

    def _shown(self) -> str:
        return "the end" if self._kind == END else repr(self._token)

    def _mistake(self, problem: str) -> BadExpressionError:
        return self._mistake_at(self._at, problem)

    def _mistake_at(self, at: int, problem: str) -> BadExpressionError:
        return BadExpressionError(self._text, at + 1, problem)
