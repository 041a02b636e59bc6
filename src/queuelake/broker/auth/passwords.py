"""Password files as `mosquitto_passwd` writes them.

| entry | hash |
|---|---|
| `$6$salt$hash` | SHA-512 of password and salt, once: weak, read for old files only |
| `$7$iterations$salt$hash` | PBKDF2 with HMAC-SHA-512 |
| `$argon2id$v=..$m=..,t=..,p=..$salt$hash` | Argon2id, as mosquitto 2.1 and argon2-cffi write it |

Behind the hash may stand what a user of ours may do, `name:hash:operator,platform`: a role of the
console, and whether clients with this name are platform accounts. New entries are Argon2id.

A file is parsed as a whole before it replaces the former one, so `verify` may run in several
threads while `reload` does.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final, NamedTuple, Protocol, final

import argon2
from argon2 import low_level

from queuelake.apikey import ROLES, Role
from queuelake.broker.auth.userfile import read_user_lines, stand_in
from queuelake.control_access import ConsoleUser
from queuelake.errors import ConfigError

SHA512_BYTES: Final = 64
PBKDF2_ITERATIONS_MAX: Final = 10_000_000
ARGON2_MEMORY_KIB_MAX: Final = 1024 * 1024
ARGON2_TIME_MAX: Final = 100
# OWASP's smaller setting: some 20 ms and 19 MiB, because a whole fleet may reconnect at once.
ARGON2_MEMORY_KIB: Final = 19 * 1024
ARGON2_TIME: Final = 2
PLATFORM: Final = "platform"


class PasswordHash(Protocol):
    """One stored hash."""

    def matches(self, password: bytes) -> bool: ...


class Grants(NamedTuple):
    """What a user may do besides connecting: log in to the console, be a platform account."""

    role: Role | None = None
    platform: bool = False

    def words(self) -> str:
        """As the file says it; empty for nothing."""
        return ",".join(word for word in (self.role, PLATFORM if self.platform else None) if word)


NOTHING: Final = Grants()
NOBODY: Final = ConsoleUser()


@final
class PasswordFile:
    """The users of one password file.

    Raises:
        ConfigError: the file cannot be read or a line is malformed; one mistake for each line.
    """

    __slots__ = ("_console", "_grants", "_secret", "_users", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._secret = secrets.token_bytes(32)
        # Index by name, and the hashes: one tuple, because one assignment is seen whole by threads.
        self._users: tuple[dict[str, int], list[PasswordHash]] = ({}, [])
        self._grants: dict[str, Grants] = {}
        self._console: dict[str, ConsoleUser] = {}
        self.reload()

    def reload(self) -> None:
        """Read the file again; on a ConfigError the former users stay."""
        mistakes: list[str] = []
        names: dict[str, int] = {}
        hashes: list[PasswordHash] = []
        granted: dict[str, Grants] = {}
        console: dict[str, ConsoleUser] = {}
        for line in read_user_lines(self.path, mistakes):
            try:
                hashed, grants = parse_entry(line.secret)
                entry = parse_hash(hashed)
            except ValueError as error:
                where = f"{self.path}, line {line.number}: user {line.username!r}"
                mistakes.append(f"{where}: {error}")
                continue
            names[line.username] = len(hashes)
            hashes.append(entry)
            if grants != NOTHING:
                granted[line.username] = grants
            if grants.role is not None:
                proof = hashlib.sha256(f"{grants.role}:{hashed}".encode()).digest()
                console[line.username] = ConsoleUser(grants.role, proof)
        if mistakes:
            raise ConfigError(mistakes)
        if not hashes:
            hashes.append(parse_hash(hash_password(secrets.token_hex())))
        self._users = (names, hashes)
        self._grants = granted
        self._console = console

    def names(self) -> list[str]:
        """In the order of the file."""
        return list(self._users[0])

    def __contains__(self, username: str) -> bool:
        return username in self._users[0]

    def grants(self, username: str) -> Grants:
        return self._grants.get(username, NOTHING)

    def console_user(self, username: str) -> ConsoleUser:
        return self._console.get(username, NOBODY)

    def __len__(self) -> int:
        return len(self._users[0])

    def verify(self, username: str, password: bytes) -> bool:
        """True when this is the user's password. Slow on purpose, known user or not."""
        names, hashes = self._users
        other = stand_in(self._secret, username, len(hashes))
        return hashes[names.get(username, other)].matches(password) and username in names


def hash_password(password: str) -> str:
    """The Argon2id entry for a password, to stand behind `user:`."""
    hasher = argon2.PasswordHasher(
        time_cost=ARGON2_TIME, memory_cost=ARGON2_MEMORY_KIB, parallelism=1
    )
    return hasher.hash(password)


def parse_entry(text: str) -> tuple[str, Grants]:
    """What stands behind `user:`, as the hash and what is granted. Raises ValueError."""
    hashed, _, words = text.partition(":")
    role: Role | None = None
    platform = False
    for word in words.split(",") if words else []:
        word = word.strip()
        if word == PLATFORM:
            platform = True
        elif word in ROLES and role is None:
            role = word
        else:
            raise ValueError(f"{word!r} behind the hash; allowed: one role of {ROLES}, platform")
    return hashed, Grants(role, platform)


def parse_hash(text: str) -> PasswordHash:
    """Read one stored hash. A ValueError names the fault and never shows the hash."""
    if text.startswith("$argon2id$"):
        return Argon2Hash(text)
    fields = text.split("$")
    if text.startswith("$6$") and len(fields) == 4:
        return Sha512Hash(_decode("salt", fields[2]), _digest(fields[3]))
    if text.startswith("$7$") and len(fields) == 5:
        iterations = _number("iterations", fields[2], PBKDF2_ITERATIONS_MAX)
        return Pbkdf2Hash(iterations, _decode("salt", fields[3]), _digest(fields[4]))
    raise ValueError("the password must be hashed as $6$, $7$ or $argon2id$ (mosquitto_passwd)")


@final
class Sha512Hash:
    __slots__ = ("_digest", "_salt")

    def __init__(self, salt: bytes, digest: bytes) -> None:
        self._salt = salt
        self._digest = digest

    def matches(self, password: bytes) -> bool:
        return hmac.compare_digest(hashlib.sha512(password + self._salt).digest(), self._digest)


@final
class Pbkdf2Hash:
    __slots__ = ("_digest", "_iterations", "_salt")

    def __init__(self, iterations: int, salt: bytes, digest: bytes) -> None:
        self._iterations = iterations
        self._salt = salt
        self._digest = digest

    def matches(self, password: bytes) -> bool:
        made = hashlib.pbkdf2_hmac("sha512", password, self._salt, self._iterations)
        return hmac.compare_digest(made, self._digest)


@final
class Argon2Hash:
    __slots__ = ("_encoded",)

    def __init__(self, text: str) -> None:
        # Some writers pad the base64 of salt and hash; the reference decoder refuses that.
        encoded = "$".join(field.rstrip("=") for field in text.split("$"))
        try:
            parameters = argon2.extract_parameters(encoded)
            _decode("salt", encoded.split("$")[-2])
            _decode("hash", encoded.split("$")[-1])
        except (argon2.exceptions.InvalidHashError, ValueError, IndexError) as error:
            raise ValueError("the $argon2id$ entry is malformed") from error
        if parameters.memory_cost > ARGON2_MEMORY_KIB_MAX:
            raise ValueError(
                f"m={parameters.memory_cost} KiB; allowed: at most {ARGON2_MEMORY_KIB_MAX}"
            )
        if parameters.time_cost > ARGON2_TIME_MAX:
            raise ValueError(f"t={parameters.time_cost}; allowed: at most {ARGON2_TIME_MAX}")
        self._encoded = encoded.encode("ascii")

    def matches(self, password: bytes) -> bool:
        try:
            return low_level.verify_secret(self._encoded, password, low_level.Type.ID)
        except argon2.exceptions.VerificationError:
            return False


def _digest(text: str) -> bytes:
    digest = _decode("hash", text)
    if len(digest) != SHA512_BYTES:
        raise ValueError(f"the hash has {len(digest)} bytes; a SHA-512 hash has {SHA512_BYTES}")
    return digest


def _decode(name: str, text: str) -> bytes:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"the {name} is not base64") from error
    if not data:
        raise ValueError(f"the {name} is empty")
    return data


def _number(name: str, text: str, most: int) -> int:
    if text.isascii() and text.isdigit() and len(text) <= len(str(most)) and 1 <= int(text) <= most:
        return int(text)
    raise ValueError(f"{name} must be 1 to {most}")
