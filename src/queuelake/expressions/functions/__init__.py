"""The functions of key expressions, by subject; `FUNCTIONS` is the one table of all of them.

Names, order of arguments and results are those users know from the variform expressions of EMQX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from queuelake.expressions.functions.comparing import COMPARING
from queuelake.expressions.functions.encoding import ENCODING
from queuelake.expressions.functions.formatting import FORMATTING
from queuelake.expressions.functions.function import UNLIMITED, Function
from queuelake.expressions.functions.hashing import HASHING
from queuelake.expressions.functions.lists import LISTS
from queuelake.expressions.functions.patterns import PATTERNS
from queuelake.expressions.functions.surroundings import SURROUNDINGS
from queuelake.expressions.functions.texts import TEXTS
from queuelake.expressions.functions.topics import TOPICS
from queuelake.expressions.nodes import Choice, Coalesce, IsEmpty, Node

__all__ = ["FORMS", "FUNCTIONS", "UNLIMITED", "Function"]

FUNCTIONS: Final[dict[str, Function]] = {
    **TEXTS,
    **LISTS,
    **FORMATTING,
    **PATTERNS,
    **TOPICS,
    **COMPARING,
    **ENCODING,
    **HASHING,
    **SURROUNDINGS,
}

# What looks like a call but decides itself which arguments to evaluate: maker, least, most.
FORMS: Final[dict[str, tuple[Callable[[Sequence[Node]], Node], int, int]]] = {
    "coalesce": (Coalesce, 1, UNLIMITED),
    "iif": (Choice, 3, 3),
    "if": (Choice, 3, 3),
    "is_empty": (IsEmpty, 1, 1),
}
