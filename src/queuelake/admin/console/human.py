"""Numbers, sizes and times as people read them."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

View = Literal["text", "json", "hex"]
HEX_BYTES_PER_LINE = 16
NONE = "—"

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")


def count(number: float) -> str:
    """1,234 as it is; above 100,000 in short."""
    if abs(number) < 100_000:
        return f"{number:,.0f}"
    for unit in ("k", "M", "G"):
        number /= 1000
        if abs(number) < 1000 or unit == "G":
            return f"{number:,.1f} {unit}"
    raise AssertionError


def rate(per_s: float) -> str:
    """Messages per second."""
    if per_s == 0:
        return "0/s"
    return f"{per_s:.1f}/s" if per_s < 10 else f"{count(per_s)}/s"


def size(number: float) -> str:
    for unit in _SIZES:
        if abs(number) < 1024 or unit == _SIZES[-1]:
            return f"{number:,.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1024
    raise AssertionError


def duration(seconds: float) -> str:
    """The two largest units: `3 d 4 h`, `2 min 5 s`, `12 ms`."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms" if seconds else "0 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    parts: list[str] = []
    left = round(seconds)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        amount, left = divmod(left, length)
        if amount:
            parts.append(f"{amount} {unit}")
        if len(parts) == 2 or (parts and not amount):
            break
    return " ".join(parts)


def ago(ms: int, now_s: float | None = None) -> str:
    """How long ago a time was; empty for none."""
    if not ms:
        return ""
    seconds = (time.time() if now_s is None else now_s) - ms / 1000
    if seconds < 0:
        return f"in {duration(-seconds)}"
    return "just now" if seconds < 2 else f"{duration(seconds)} ago"


def moment(ms: int) -> str:
    """A time exactly, in UTC; empty for none."""
    if not ms:
        return ""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def milliseconds(text: str) -> int:
    """A time in ISO 8601 as milliseconds since 1970; 0: it is none."""
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return 0


def ranges(numbers: Sequence[int]) -> str:
    """`0-3, 7` for what is sorted or not."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts) or NONE


def best_view(payload: bytes) -> View:
    """How a payload is read best."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return "hex"
    if text[:1] in ("{", "["):
        try:
            json.loads(text)
            return "json"
        except (ValueError, RecursionError):
            return "text"
    readable = all(one.isprintable() or one in "\t\n\r" for one in text)
    return "text" if readable else "hex"


def payload(data: bytes, view: View) -> str:
    """A payload as text, as indented JSON or as a hex dump; what is no JSON is shown as text."""
    if view == "hex":
        return _hex(data)
    text = data.decode(errors="replace")
    if view == "json":
        try:
            return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            return text
    return text


def _hex(data: bytes) -> str:
    lines = []
    for at in range(0, len(data), HEX_BYTES_PER_LINE):
        part = data[at : at + HEX_BYTES_PER_LINE]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {part.hex(' '):<{HEX_BYTES_PER_LINE * 3}} {shown}")
    return "\n".join(lines)
