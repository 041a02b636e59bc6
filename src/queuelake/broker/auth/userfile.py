"""Files with one `user:secret` on each line, and what an unknown user is checked against.

A check for a user who does not exist must look and cost like one for a user who does. So an
unknown name borrows the shape (hash kind, iterations, salt length) of an entry of the file, always
the same one for the same name, chosen with a key that nobody outside knows.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Final, NamedTuple

from queuelake.errors import ConfigError

USER_FILE_BYTES_MAX: Final = 64 * 1024 * 1024
USERNAME_BYTES_MAX: Final = 65_535


class UserLine(NamedTuple):
    number: int
    username: str
    secret: str


def read_user_lines(path: str, mistakes: list[str]) -> list[UserLine]:
    """Read the file; what is no `user:secret` line is added to `mistakes`, by line number.

    Raises:
        ConfigError: the file cannot be read at all.
    """
    lines: list[UserLine] = []
    seen: dict[str, int] = {}
    for number, raw in enumerate(_read(path).split(b"\n"), start=1):
        raw = raw.strip()
        if not raw or raw.startswith(b"#"):
            continue
        where = f"{path}, line {number}"
        try:
            username, colon, secret = raw.decode("utf-8").partition(":")
        except UnicodeDecodeError:
            mistakes.append(f"{where}: is not UTF-8 text")
            continue
        username = username.strip()
        if not colon or not username:
            mistakes.append(f"{where}: must be 'user:hash'")
            continue
        first = seen.setdefault(username, number)
        if first != number:
            mistakes.append(f"{where}: user {username!r} is already on line {first}")
            continue
        lines.append(UserLine(number, username, secret.strip()))
    return lines


def username_mistake(username: str) -> str:
    """Why this name cannot stand in a user file, or "" when it can."""
    if not username or username != username.strip() or username.startswith("#"):
        return "must not be empty, start with '#', or start or end with a space"
    if not username.isprintable() or ":" in username:
        return "must not hold ':' or control characters"
    size = len(username.encode("utf-8", "surrogatepass"))
    if size > USERNAME_BYTES_MAX:
        return f"has {size} bytes; allowed: at most {USERNAME_BYTES_MAX}"
    return ""


def derive(key: bytes, purpose: bytes, username: str) -> bytes:
    """32 bytes which are always the same for this name and tell nothing without the key."""
    message = purpose + b"\0" + username.encode("utf-8", "surrogatepass")
    return hmac.new(key, message, hashlib.sha256).digest()


def stand_in(key: bytes, username: str, count: int) -> int:
    """Which of `count` entries lends its shape to this unknown name."""
    return int.from_bytes(derive(key, b"stand-in", username), "big") % count


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(USER_FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise ConfigError([f"{path}: cannot be read: {error}"]) from error
    if len(data) > USER_FILE_BYTES_MAX:
        raise ConfigError([f"{path}: is longer than {USER_FILE_BYTES_MAX} bytes"])
    return data
