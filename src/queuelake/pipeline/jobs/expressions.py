"""What users may write as SQL: an expression for `--where`, a query for `--sql`.

Spark checks names and types. Here only the form is looked at, so that what is meant as a condition
cannot become something else: no second statement, no subquery, no comment which hides a part, no
function that runs code, and in a condition nothing whose answer changes from one look to the next,
because a job which was stopped has to find the same rows again.
"""

from __future__ import annotations

import re
from typing import Final

from queuelake.errors import RefusedError

CHARACTERS_MAX: Final = 10_000
TOKEN: Final = re.compile(
    r"""(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`)
    | (?P<comment>--|/\*)
    | (?P<word>[A-Za-z_]\w*)
    | (?P<end>;)
    | (?P<open>['"`])
    | .""",
    re.VERBOSE | re.DOTALL,
)
QUERIES: Final = frozenset({"select", "table", "values"})
CODE: Final = frozenset({"java_method", "reflect", "try_reflect"})
UNSTEADY: Final = frozenset(
    {
        *("input_file_name", "monotonically_increasing_id", "rand", "randn", "random", "randstr"),
        *("shuffle", "spark_partition_id", "uniform", "uuid"),
    }
)
QUERY_BEGINS: Final = ("select", "with", "from", "values", "table")


def check_expression(text: str, option: str) -> str:
    """The expression, if it is one.

    Raises:
        RefusedError: it is empty, too long, or holds what an expression does not.
    """
    for word in _words(text, option):
        if word in QUERIES:
            raise RefusedError(
                f"{option}: {word.upper()!r} is part of a query; write an expression"
            )
        if word in UNSTEADY:
            raise RefusedError(f"{option}: {word!r} gives another answer each time it is asked")
    return text


def check_query(text: str, option: str) -> str:
    """The query, if it is one and only reads."""
    words = list(_words(text, option))
    if not words or words[0] not in QUERY_BEGINS:
        raise RefusedError(f"{option}: {text.strip()[:40]!r} is not a query; begin with SELECT")
    if "insert" in words and words[0] in ("from", "with"):
        raise RefusedError(f"{option}: INSERT writes; only a query is allowed")
    return text


def _words(text: str, option: str) -> list[str]:
    """The words outside of quotes, in small letters."""
    if not text.strip():
        raise RefusedError(f"{option} is empty")
    if len(text) > CHARACTERS_MAX:
        raise RefusedError(f"{option} has {len(text)} characters of {CHARACTERS_MAX}")
    words: list[str] = []
    for match in TOKEN.finditer(text):
        if match["comment"]:
            raise RefusedError(f"{option}: comments are not allowed")
        if match["end"]:
            raise RefusedError(f"{option}: ';' ends a statement; there is only one")
        if match["open"]:
            raise RefusedError(f"{option}: the quote {match['open']} is not closed")
        if match["word"]:
            word = match["word"].lower()
            if word in CODE:
                raise RefusedError(f"{option}: {word!r} runs code, which is not allowed")
            words.append(word)
    return words
