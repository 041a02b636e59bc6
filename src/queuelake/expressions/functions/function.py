"""What the parser must know of a function."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, final

from queuelake.expressions.values import Value

Converter = Callable[[Value], object]

UNLIMITED: Final = sys.maxsize


@final
class Function:
    """An implementation, and for each argument the converter to what the implementation takes.

    Implementations raise ValueError for arguments they cannot work on. With `is_variadic` the last
    converter serves all further arguments; with `sees_fields` the message comes first.
    """

    __slots__ = ("arguments_max", "arguments_min", "converters", "implementation", "sees_fields")

    def __init__(
        self,
        implementation: Callable[..., Value],
        *converters: Converter,
        optional: int = 0,
        is_variadic: bool = False,
        sees_fields: bool = False,
    ) -> None:
        self.implementation = implementation
        self.converters = converters
        self.arguments_max = UNLIMITED if is_variadic else len(converters)
        self.arguments_min = len(converters) - optional
        self.sees_fields = sees_fields
