"""The API keys of a data directory, and what their owners may do.

The first one is `<data-dir>/api-key`, one line `key:secret`, made at the first start; its owner may
do everything. Further ones are lines `name:role:digest of the secret` in `<data-dir>/api-keys`,
kept by `queuelake keys`. Both files have mode 0600. `KeyFile` checks what callers present, and
follows the files when somebody replaces them, so that a key can be changed without a restart.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
from pathlib import Path
from typing import Final, Literal, NamedTuple, get_args

from queuelake.errors import ConfigError
from queuelake.files import write_atomically

FILE_NAME = "api-key"
FURTHER_NAME = "api-keys"
LINE_BYTES_MAX = 1024

Role = Literal["viewer", "operator", "admin"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)  # each may do what those before it may
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")

log = logging.getLogger(__name__)


class Caller(NamedTuple):
    """Who asks for something."""

    name: str
    role: Role

    def may(self, needed: Role) -> bool:
        return ROLES.index(self.role) >= ROLES.index(needed)


class Key(NamedTuple):
    """A further key, as it is kept."""

    name: str
    role: Role
    digest: bytes


def ensure_api_key(data_dir: Path) -> None:
    """Make the key file when there is none; raise ConfigError when there is a wrong one."""
    path = data_dir / FILE_NAME
    if not path.exists():
        _create(path)
    read_api_key(data_dir)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        log.warning("API key file '%s' has mode %04o; others may read it, 0600 is safe", path, mode)


def read_api_key(data_dir: Path) -> str:
    """Return `key:secret`, for programs on this machine which call the API."""
    path = data_dir / FILE_NAME
    try:
        with path.open("rb") as file:
            line = file.read(LINE_BYTES_MAX + 1).strip()
    except OSError as exc:
        raise ConfigError([f"API key file '{path}' cannot be read: {exc.strerror}"]) from exc
    key, colon, secret = line.partition(b":")
    if not (key and colon and secret) or len(line.split()) != 1 or len(line) > LINE_BYTES_MAX:
        raise ConfigError([f"API key file '{path}' must hold one line key:secret"])
    try:
        return line.decode("ascii")
    except UnicodeDecodeError:
        raise ConfigError([f"API key file '{path}' must hold ASCII only"]) from None


def _create(path: Path) -> None:
    # Written aside and linked, so that nobody ever sees half a key, and the first of two wins.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    write_atomically(draft, f"ql-{secrets.token_hex(4)}:{_new_secret()}\n")
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        draft.unlink()
    log.info("API key made: '%s'", path)


def read_further_keys(data_dir: Path) -> list[Key]:
    """All keys but the first one, in the order of the file.

    Raises:
        ConfigError: the file cannot be read, or a line of it is no key.
    """
    path = data_dir / FURTHER_NAME
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError([f"API key file '{path}' cannot be read: {exc}"]) from exc
    return [_read_further(path, number, line) for number, line in enumerate(lines, 1) if line]


def _read_further(path: Path, number: int, line: str) -> Key:
    name, role, digest = [*line.split(":"), "", "", ""][:3]
    try:
        found = bytes.fromhex(digest)
    except ValueError:
        found = b""
    if role not in ROLES or len(found) != hashlib.sha256().digest_size or line.count(":") != 2:
        raise ConfigError([f"API key file '{path}', line {number}: not name:role:digest"])
    return Key(name, role, found)


def add_key(data_dir: Path, name: str, role: Role) -> str:
    """Make a further key; returns its `name:secret`, which is kept nowhere."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            [f"API key name {name!r}: 1 to 64 letters, digits, dots, dashes and underscores"]
        )
    keys = read_further_keys(data_dir)
    if any(key.name == name for key in keys) or read_api_key(data_dir).startswith(f"{name}:"):
        raise ConfigError([f"API key {name!r} exists already; remove it first"])
    secret = _new_secret()
    _write_further(data_dir, [*keys, Key(name, role, _digest(secret.encode()))])
    return f"{name}:{secret}"


def remove_key(data_dir: Path, name: str) -> None:
    keys = read_further_keys(data_dir)
    left = [key for key in keys if key.name != name]
    if len(left) == len(keys):
        raise ConfigError([f"there is no API key {name!r} in '{data_dir / FURTHER_NAME}'"])
    _write_further(data_dir, left)


def _write_further(data_dir: Path, keys: list[Key]) -> None:
    text = "".join(f"{key.name}:{key.role}:{key.digest.hex()}\n" for key in keys)
    write_atomically(data_dir / FURTHER_NAME, text)


def _new_secret() -> str:
    return secrets.token_urlsafe(32)


def _digest(secret: bytes) -> bytes:
    """Secrets are long and random: one hash is enough to keep them from whoever reads the file."""
    return hashlib.sha256(secret).digest()


class KeyFile:
    """Checks presented keys against the files as they are now."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self._identities: list[tuple[int, int, int]] = []
        self._first = b""  # the whole line of the first key; empty: there is none
        self._further: dict[bytes, Key] = {}

    def find(self, name: str) -> Key | None:
        """The key of this name as it is now, for those who presented it before."""
        self._refresh()
        first, _, secret = self._first.partition(b":")
        if self._first and name.encode() == first:
            return Key(name, "admin", _digest(secret))
        return self._further.get(name.encode())

    def identify(self, presented: bytes) -> Caller | None:
        """Whose `key:secret` this is, in a time which does not depend on where it differs."""
        self._refresh()
        name, _, secret = presented.partition(b":")
        if self._first and hmac.compare_digest(presented, self._first):
            return Caller(name.decode(), "admin")
        key = self._further.get(name)
        if key is not None and hmac.compare_digest(_digest(secret), key.digest):
            return Caller(key.name, key.role)
        return None

    def _refresh(self) -> None:
        identities = [_identity(self.data_dir / name) for name in (FILE_NAME, FURTHER_NAME)]
        if identities == self._identities:
            return
        self._identities = identities
        self._first, self._further = b"", {}
        try:
            self._first = read_api_key(self.data_dir).encode("ascii")
            self._further = {key.name.encode(): key for key in read_further_keys(self.data_dir)}
        except ConfigError as exc:
            log.error("API keys are not accepted: %s", exc)


def _identity(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_size)
