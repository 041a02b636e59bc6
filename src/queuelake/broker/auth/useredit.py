"""Changing the users of a password file, and of the SCRAM file beside it.

The broker and `queuelake users` change files with this code, and only with it. Lines of other
users and comments stay as they are, and so does their order. Everything is worked out before the
first file is touched: what is refused changes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from queuelake.broker.auth.passwords import Grants, hash_password, parse_entry, parse_hash
from queuelake.broker.auth.userfile import username_mistake
from queuelake.errors import ConflictError, NotFoundError, RefusedError
from queuelake.files import locked, write_atomically

PASSWORD_BYTES_MAX: Final = 4096


class UserEditor:
    """The users of one file; with `scram`, their SCRAM credentials follow their passwords."""

    def __init__(self, path: Path, scram: Path | None = None) -> None:
        self._path = path
        self._scram = scram

    def add(self, name: str, secret: Secret, grants: Grants) -> None:
        """Raises ConflictError when there is such a user."""
        if mistake := username_mistake(name):
            raise RefusedError(f"user name {name!r} {mistake}")

        def made(former: str | None) -> str:
            if former is not None:
                raise ConflictError(f"user {name!r} is already in {self._path}")
            return _entry(secret.hashed, grants)

        self._edit(name, made, secret)

    def change(self, name: str, secret: Secret | None, grants: Grants | None) -> None:
        """Change what is not None. Raises NotFoundError when there is no such user."""

        def changed(former: str | None) -> str:
            if former is None:
                raise self._missing(name)
            hashed, kept = parse_entry(former)
            return _entry(
                hashed if secret is None else secret.hashed, kept if grants is None else grants
            )

        self._edit(name, changed, secret)

    def remove(self, name: str) -> None:
        """Raises NotFoundError when there is no such user."""

        def gone(former: str | None) -> None:
            if former is None:
                raise self._missing(name)

        with locked(self._path):
            lines = edited(_read(self._path), name, gone)
            if self._scram is not None:
                self._edit_scram(scram_name(name), None)
            _write(self._path, lines)

    def names(self) -> list[str]:
        """In the order of the file."""
        return [name for line in _read(self._path) if (name := name_of(line)) is not None]

    def _missing(self, name: str) -> NotFoundError:
        return NotFoundError(f"user {name!r} is not in {self._path}")

    def _edit(self, name: str, change: Callable[[str | None], str], secret: Secret | None) -> None:
        with locked(self._path):
            lines = edited(_read(self._path), name, change)
            if self._scram is not None and secret is not None:
                # A hash tells no SCRAM credentials: those of the former password must go, too.
                self._edit_scram(scram_name(name), secret.scram(name))
            _write(self._path, lines)

    def _edit_scram(self, name: str, entry: str | None) -> None:
        scram = self._scram
        assert scram is not None
        apart = scram.resolve().parent != self._path.resolve().parent  # else it is locked already
        with locked(scram) if apart else contextlib.nullcontext():
            former = _read(scram)
            lines = edited(former, name, lambda _: entry)
            if lines != former:
                _write(scram, lines)


class Secret:
    """A new password, or the hash of one.

    Raises:
        RefusedError: the password is empty or too long, or the hash is none that is known here.
    """

    def __init__(self, password: str = "", hashed: str = "") -> None:
        if bool(password) == bool(hashed):
            raise RefusedError("password: name a password, or the hash of one, and not both")
        size = len(password.encode("utf-8", "surrogatepass"))
        if size > PASSWORD_BYTES_MAX:
            raise RefusedError(f"the password has {size} bytes; the limit is {PASSWORD_BYTES_MAX}")
        self._password = password
        if hashed:
            try:
                parse_hash(hashed)
            except ValueError as error:
                raise RefusedError(f"hash: {error}") from None
        try:
            self.hashed: str = hashed or hash_password(password)
        except UnicodeEncodeError:
            raise RefusedError("the password is not Unicode text") from None

    def scram(self, name: str) -> str | None:
        """What stands behind `user:` in a SCRAM file; None when only a hash is known."""
        if not self._password:
            return None
        from queuelake.broker.auth.scram import scram_line

        return scram_line(name, self._password).partition(":")[2]


def scram_name(name: str) -> str:
    """The name as SASLprep leaves it, which may not be as it was typed."""
    from queuelake.broker.auth.scram import scram_line

    return scram_line(name, "-").partition(":")[0]


def edited(lines: list[str], name: str, change: Callable[[str | None], str | None]) -> list[str]:
    """The lines with what `change` makes of this user's entry, None for none."""
    at = next((index for index, line in enumerate(lines) if name_of(line) == name), None)
    former = None if at is None else lines[at].partition(":")[2].strip()
    entry = change(former)
    kept = [line for line in lines if name_of(line) != name]
    if entry is not None:
        kept.insert(len(kept) if at is None else at, f"{name}:{entry}")
    return kept


def name_of(line: str) -> str | None:
    """Whose line this is; None when it is a comment, or nobody's."""
    line = line.strip()
    if not line or line.startswith("#") or ":" not in line:
        return None
    return line.partition(":")[0].strip()


def _entry(hashed: str, grants: Grants) -> str:
    words = grants.words()
    return f"{hashed}:{words}" if words else hashed


def _read(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise RefusedError(f"{path}: is not UTF-8 text: {error.reason}") from error


def _write(path: Path, lines: list[str]) -> None:
    write_atomically(path, "".join(line + "\n" for line in lines))
