"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

NUMBERS = (int, float)


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Numbers to the right. What a client wrote is shown as text, never as markup."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    listed = [list(row) for row in rows]
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for at, heading in enumerate(headings):
        values = [row[at] for row in listed if row[at] is not None]
        numeric = bool(values) and all(isinstance(value, NUMBERS) for value in values)
        made.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for row in listed:
        made.add_row(*(Text(shown(value)) for value in row))
    return made


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    plain_console().print(table(headings, rows))


def print_fields(fields: Mapping[str, object]) -> None:
    """One thing: a line for each of its fields which says something."""
    told = dict(map(_field, fields.items()))
    width = max(map(len, told), default=0)
    for name, text in told.items():
        if text:
            print(f"{name:<{width}}  {text}")


def _field(field: tuple[str, object]) -> tuple[str, str]:
    name, value = field
    bare = name.removesuffix("_at_ms")
    if bare != name and isinstance(value, int | None):
        return f"{bare} (UTC)", moment(value)
    return name, shown(value)


def plain_console() -> Console:
    """A terminal, or a pipe: it gets whole lines, whatever reads it is not helped by folds."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=10_000)


def shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return "".join(one if one.isprintable() else "·" for one in str(value))


def moment(ms: int | None) -> str:
    """A time in UTC; empty for none."""
    if not ms:
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(ms / 1000))


def payload_text(payload: bytes, characters_max: int = 60) -> str:
    """A payload in one line: as text, or its first bytes in hex."""
    if is_text(payload):
        text = " ".join(payload.decode().split())
        return text if len(text) <= characters_max else text[: characters_max - 1] + "…"
    hexed = payload[: characters_max // 3].hex(" ")
    return hexed + (" …" if len(payload) > characters_max // 3 else "")


def is_text(payload: bytes) -> bool:
    """Whether people can read it, and a terminal shows it without doing anything else."""
    try:
        return all(one.isprintable() or one in "\t\n\r" for one in payload.decode())
    except UnicodeDecodeError:
        return False
