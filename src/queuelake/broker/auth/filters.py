"""Topic filters as sets of topics: does one cover another, do two have a topic in common.

A filter stands for the set of topics it matches. A wildcard on the first level matches no topic
that starts with `$`, so `#` neither covers nor meets `$SYS/#`. A topic name is a filter without
wildcards: `covers(filter, topic)` is the ordinary match.

A rule's pattern is such a filter, or `eq filter`: literally this text. It may hold `${clientid}`
and `${username}`; what a client puts there can never widen the rule (see `Pattern.of`).
"""

from __future__ import annotations

from typing import Final, final

EQ: Final = "eq "
PLACEHOLDERS: Final = ("${clientid}", "${username}")


def covers(wide: list[bytes], narrow: list[bytes]) -> bool:
    """True when every topic of `narrow` is also one of `wide`."""
    if len(wide) == 2 and wide[1] == b"#" and wide[0] == b"+":
        return narrow[0][:1] != b"$"  # '+/#' has the topics of '#': '#' includes its parent
    if narrow[0][:1] == b"$" and wide[0] != narrow[0]:
        return False
    narrow = _spelled_out(narrow)
    end = len(narrow)
    for position, level in enumerate(wide):
        if level == b"#":
            return True
        if position >= end:
            return False
        other = narrow[position]
        if other == b"#":
            return False
        if level != b"+" and level != other:
            return False
    return len(wide) == end


def intersects(one: list[bytes], two: list[bytes]) -> bool:
    """True when at least one topic belongs to both."""
    if (one[0][:1] == b"$" or two[0][:1] == b"$") and one[0] != two[0]:
        return False
    one, two = _spelled_out(one), _spelled_out(two)
    if len(one) > len(two):
        one, two = two, one
    for position, level in enumerate(one):
        other = two[position]
        if level == b"#" or other == b"#":
            return True
        if level != b"+" and other != b"+" and level != other:
            return False
    return len(one) == len(two) or (len(two) == len(one) + 1 and two[-1] == b"#")


def _spelled_out(levels: list[bytes]) -> list[bytes]:
    """`/#` is `/+/#`: the parent it includes is the empty topic, which there is not."""
    if len(levels) == 2 and not levels[0] and levels[1] == b"#":
        return [b"", b"+", b"#"]
    return levels


@final
class Pattern:
    """One entry of a rule's `topics`."""

    __slots__ = ("_parts", "levels", "literal", "text")

    def __init__(self, source: str) -> None:
        self.literal = source.startswith(EQ)
        body = source[len(EQ) :] if self.literal else source
        self._parts = split_placeholders(body)
        self.text = body.encode("utf-8")
        self.levels: list[bytes] = self.text.split(b"/")

    def is_template(self) -> bool:
        return len(self._parts) > 1

    def of(self, client_id: str, username: str | None) -> Pattern | None:
        """The pattern for this client; None when it matches nothing for it.

        A value which is missing, empty, or holds `/`, `+` or `#` would change the shape of the
        filter, and one that starts with `$` at the very beginning would leave the ordinary topics.
        """
        if len(self._parts) == 1:
            return self
        text = ""
        for part in self._parts:
            if part not in PLACEHOLDERS:
                text += part
                continue
            value = client_id if part == PLACEHOLDERS[0] else username
            if not value or "/" in value or "+" in value or "#" in value:
                return None
            if not text and value.startswith("$"):
                return None
            text += value
        made = Pattern("")
        made.literal = self.literal
        made.text = text.encode("utf-8", "surrogatepass")
        made.levels = made.text.split(b"/")
        return made

    def covers(self, text: bytes, levels: list[bytes]) -> bool:
        return self.text == text if self.literal else covers(self.levels, levels)

    def meets(self, text: bytes, levels: list[bytes]) -> bool:
        return self.text == text if self.literal else intersects(self.levels, levels)

    def leaves_ordinary_topics_alone(self) -> bool:
        """True when it cannot match a published topic that does not start with `$`."""
        if self.literal and (b"+" in self.text or b"#" in self.text):
            return True
        return self._parts[0][:1] == "$" and self._parts[0] not in PLACEHOLDERS


def split_placeholders(text: str) -> list[str]:
    """Split `a/${clientid}/b` into its texts and placeholders, in order; never empty."""
    parts: list[str] = []
    start = 0
    while True:
        found = -1
        placeholder = ""
        for candidate in PLACEHOLDERS:
            position = text.find(candidate, start)
            if position >= 0 and (found < 0 or position < found):
                found = position
                placeholder = candidate
        if found < 0:
            break
        if found > start:
            parts.append(text[start:found])
        parts.append(placeholder)
        start = found + len(placeholder)
    if start < len(text) or not parts:
        parts.append(text[start:])
    return parts
