"""Key expressions: which key a message has in a last-value queue.

    parse_expression("nth(2, tokens(message.topic, '/'))").evaluate(fields) == b"kitchen"

An expression is parsed and checked once, when the queue is configured, into a tree of small nodes
(`parser`, `nodes`); it is evaluated once for each message, at the edge, and the key travels on with
the command. The rules:

- What is wrong with the text is a `BadExpressionError` with its column; what is wrong with one
  message is an `EvaluationError`. Nothing else comes out of either.
- No clock, no dice, no environment of its own: `Fields` brings them.
- Whatever a message holds, evaluation is short: texts, lists, matches and regular expressions have
  limits (`values`, `functions/patterns`), and expressions have no loops.
"""

from queuelake.expressions.errors import BadExpressionError, EvaluationError
from queuelake.expressions.expression import Expression, parse_expression
from queuelake.expressions.fields import Fields

__all__ = ["BadExpressionError", "EvaluationError", "Expression", "Fields", "parse_expression"]
