"""Clock, dice and environment, as `Fields` brings them."""

from __future__ import annotations

from typing import Final

from queuelake.expressions.fields import Fields
from queuelake.expressions.functions.function import Function
from queuelake.expressions.values import Value, from_octets, integer, text

ENVIRONMENT_PREFIX: Final = "QUEUELAKE_VAR_"
RANDOM_CHARACTERS_MAX: Final = 1024
RANDOM_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _timestamp_s(fields: Fields) -> int:
    return fields.now_ms // 1000


def _timestamp_ms(fields: Fields) -> int:
    return fields.now_ms


def _getenv(fields: Fields, name: str) -> Value:
    """Only variables made for expressions: the others may hold secrets of the broker."""
    full_name = ENVIRONMENT_PREFIX + name.removeprefix(ENVIRONMENT_PREFIX)
    value = fields.environment.get(full_name, "")
    return from_octets(value.encode("utf-8", "surrogateescape"))


def _random_text(fields: Fields, length: int) -> str:
    if not 1 <= length <= RANDOM_CHARACTERS_MAX:
        raise ValueError(f"length is {length}, must be 1 to {RANDOM_CHARACTERS_MAX}")
    dice = fields.dice
    return "".join([RANDOM_ALPHABET[dice(len(RANDOM_ALPHABET))] for _ in range(length)])


def _random_integer(fields: Fields, most: int) -> int:
    if most < 1:
        raise ValueError(f"the largest number is {most}, at least 1")
    return 1 + fields.dice(most)


SURROUNDINGS: Final[dict[str, Function]] = {
    "timestamp_s": Function(_timestamp_s, sees_fields=True),
    "timestamp_ms": Function(_timestamp_ms, sees_fields=True),
    "getenv": Function(_getenv, text, sees_fields=True),
    "rand_str": Function(_random_text, integer, sees_fields=True),
    "rand_int": Function(_random_integer, integer, sees_fields=True),
}
