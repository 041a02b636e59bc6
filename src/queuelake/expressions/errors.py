"""What can go wrong with a key expression: its text, or one message it is evaluated on."""

from __future__ import annotations

from typing import Final

from queuelake.errors import QueuelakeError, RefusedError

SHOWN_CHARACTERS_MAX: Final = 200


class BadExpressionError(RefusedError):
    """The text is no key expression: correct it at `column`, counted from 1."""

    def __init__(self, text: str, column: int, problem: str) -> None:
        shown = text
        if len(text) > SHOWN_CHARACTERS_MAX:
            shown = text[:SHOWN_CHARACTERS_MAX] + "..."
        super().__init__(f"key expression {shown!r}, column {column}: {problem}")
        self.text = text
        self.column = column
        self.problem = problem


class EvaluationError(QueuelakeError):
    """This message has no key: it is not stored in the queue; count it and go on."""


class UnboundError(EvaluationError):
    """The message does not have this variable; `coalesce` and `iif` take it as empty."""
