"""One parsed key expression."""

from __future__ import annotations

from typing import Final, final

from queuelake.expressions.errors import EvaluationError
from queuelake.expressions.fields import Fields
from queuelake.expressions.nodes import Node
from queuelake.expressions.parser import parse
from queuelake.expressions.values import to_key

CLIENT_ID: Final = "message.from"
TOPIC: Final = "message.topic"


@final
class Expression:
    """Gives each message its key; `text` is what the user wrote."""

    __slots__ = ("_root", "is_client_id", "is_topic", "text")

    def __init__(self, text: str, root: Node) -> None:
        self.text = text
        # For these two, which are most, the caller need not build `Fields`.
        self.is_client_id = text.strip() == CLIENT_ID
        self.is_topic = text.strip() == TOPIC
        self._root = root

    def evaluate(self, fields: Fields) -> bytes:
        """The key of the message, UTF-8. Raises EvaluationError when it has none."""
        try:
            return to_key(self._root.evaluate(fields))
        except (ValueError, RecursionError) as error:
            raise EvaluationError(str(error)) from error


def parse_expression(text: str) -> Expression:
    """Parse and check a key expression. Raises BadExpressionError with the column."""
    return Expression(text, parse(text))
