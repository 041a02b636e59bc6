"""The API key of a data directory: `<data-dir>/api-key`, one line `key:secret`, mode 0600.

`ensure_api_key` makes it at the first start; `KeyFile` checks what callers present, and follows
the file when somebody replaces it, so that a key can be changed without a restart.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import stat
from pathlib import Path

from queuelake.errors import ConfigError

FILE_NAME = "api-key"
LINE_BYTES_MAX = 1024

log = logging.getLogger(__name__)


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
    line = f"ql-{secrets.token_hex(4)}:{secrets.token_urlsafe(32)}\n"
    # Written aside and linked, so that nobody ever sees half a key, and the first of two wins.
    draft = path.with_name(f".{FILE_NAME}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return
    finally:
        draft.unlink()
    log.info("API key made: '%s'", path)


class KeyFile:
    """Checks presented keys against the file as it is now."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._identity: tuple[int, int, int] = (0, 0, 0)
        self._expected: bytes | None = None

    def accepts(self, presented: bytes) -> bool:
        """Whether this is the `key:secret`, in a time which does not depend on where it differs."""
        self._refresh()
        if self._expected is None:
            return False
        return hmac.compare_digest(presented, self._expected)

    def _refresh(self) -> None:
        try:
            found = (self._data_dir / FILE_NAME).stat()
        except OSError:
            self._identity, self._expected = (0, 0, 0), None
            return
        identity = (found.st_ino, found.st_mtime_ns, found.st_size)
        if identity == self._identity:
            return
        self._identity = identity
        try:
            self._expected = read_api_key(self._data_dir).encode("ascii")
        except ConfigError as exc:
            log.error("no API key is accepted: %s", exc)
            self._expected = None
