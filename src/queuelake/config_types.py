"""The types settings are made of: tables, bounded numbers, and quantities people write as text.

A duration stays the text it was written as, because it is shown to people again; `parse_duration`
gives its milliseconds. A size becomes a plain number of bytes when it is accepted.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Annotated, Final, cast

import msgspec
from msgspec import Meta, Struct

# Above every disk and every count there is, below where a 64-bit field would overflow.
NUMBER_MAX: Final = 10**15
DURATION_MS_MAX: Final = 36_500 * 86_400_000
TEXT_CHARACTERS_MAX: Final = 64

Port = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
U16 = Annotated[int, Meta(ge=1, le=65535)]
BoundedCount = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
BoundedPositive = Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
Size = Annotated[int, Meta(ge=0, le=NUMBER_MAX, extra={"quantity": "size"})]
PositiveSize = Annotated[int, Meta(ge=1, le=NUMBER_MAX, extra={"quantity": "size"})]
Duration = Annotated[str, Meta(extra={"quantity": "duration", "ms_min": 0})]
PositiveDuration = Annotated[str, Meta(extra={"quantity": "duration", "ms_min": 1})]
# As these, and a bare number means milliseconds.
Time = Annotated[str, Meta(extra={"quantity": "duration", "ms_min": 0, "bare_number": "ms"})]
PositiveTime = Annotated[
    str, Meta(extra={"quantity": "duration", "ms_min": 1, "bare_number": "ms"})
]

_MS_PER_UNIT: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES_PER_UNIT: Final = {
    "B": 1,
    **{unit: 1000**power for power, unit in enumerate(("kB", "MB", "GB", "TB"), 1)},
    **{unit: 1024**power for power, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), 1)},
}
_DURATION_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]+)")


class Section(Struct, forbid_unknown_fields=True, frozen=True):
    """A table of the TOML file.

    Modules with sections do without `from __future__ import annotations`: msgspec wants types, and
    reads them from text twice, which takes longer than all else about settings.
    """


def tree_of(section: Section) -> dict[str, object]:
    """A section as plain values."""
    return cast(dict[str, object], msgspec.to_builtins(section))


def changes_between(base: Section, section: Section) -> dict[str, object]:
    """What of a section differs from the one in the file: all that has to be stored of it."""
    return _difference(tree_of(base), tree_of(section))


def _difference(base: dict[str, object], tree: dict[str, object]) -> dict[str, object]:
    changes: dict[str, object] = {}
    for key, value in tree.items():
        former = base[key]
        if isinstance(value, dict) and isinstance(former, dict):
            inner = _difference(former, value)
            if inner:
                changes[key] = inner
        elif value != former:
            changes[key] = value
    return changes


def parse_duration(text: str) -> int:
    """Milliseconds of "250ms", "5s", "1.5m", "1h30m", "7d" or "0".

    Raises:
        ValueError: it is no duration, or longer than a hundred years.
    """
    if text == "0":
        return 0
    parts = _DURATION_PART.findall(text) if len(text) <= TEXT_CHARACTERS_MAX else []
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text[:TEXT_CHARACTERS_MAX]!r} is no duration such as '30s' or '1.5m'")
    # Rounded up: a short time must not become 0, which often means never.
    duration_ms = math.ceil(sum(Fraction(number) * _MS_PER_UNIT[unit] for number, unit in parts))
    if duration_ms > DURATION_MS_MAX:
        raise ValueError(f"{text!r} is {duration_ms} ms, the limit is {DURATION_MS_MAX} ms")
    return duration_ms


def parse_size(text: str) -> int:
    """Bytes of "10MiB", "1.5 GB" or "512B".

    Raises:
        ValueError: it is no size, or no whole number of bytes.
    """
    match = _SIZE.fullmatch(text) if len(text) <= TEXT_CHARACTERS_MAX else None
    if match is None or match[2] not in _BYTES_PER_UNIT:
        raise ValueError(f"{text[:TEXT_CHARACTERS_MAX]!r} is no size such as '10MiB' or '512B'")
    size = Fraction(match[1]) * _BYTES_PER_UNIT[match[2]]
    if size.denominator != 1:
        raise ValueError(f"{text!r} is no whole number of bytes")
    return int(size)
