"""SCRAM-SHA-256 (RFC 5802, RFC 7677) as an MQTT 5 enhanced authentication method, without I/O.

    client                                     server
    CONNECT, data = client-first      ->       step() returns server-first: AUTH 0x18
    AUTH 0x18, data = client-final    ->       step() returns server-final: CONNACK, `done` is True

The password never crosses the wire and the file holds nothing that could be used to log in. An
unknown user gets a salt and an iteration count too, always the same ones, and fails only at the
proof, as with a wrong password. Lines of the file are in PostgreSQL's notation:

    user:SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from typing import Final, NamedTuple, final

from scramp import ScramException, ScramMechanism
from scramp.utils import saslprep

from queuelake.broker.auth.userfile import derive, read_user_lines, stand_in, username_mistake
from queuelake.errors import ConfigError, NotAuthorizedError, RefusedError

SCRAM_METHOD: Final = "SCRAM-SHA-256"
SCRAM_MESSAGE_BYTES_MAX: Final = 4096
ITERATIONS: Final = 16_384
ITERATIONS_MIN: Final = 4096  # RFC 7677
ITERATIONS_MAX: Final = 10_000_000
SALT_BYTES: Final = 16
SALT_BYTES_MIN: Final = 12
KEY_BYTES: Final = 32

_MECHANISM = ScramMechanism(SCRAM_METHOD)


class Credentials(NamedTuple):
    """What a server keeps of a password, in the order scramp wants it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@final
class ScramFile:
    """The users of one SCRAM file.

    Raises:
        ConfigError: the file cannot be read or a line is malformed; one mistake for each line.
    """

    __slots__ = ("_users", "path", "stand_in_key")

    def __init__(self, path: str, stand_in_key: bytes = b"") -> None:
        """`stand_in_key` of a former ScramFile keeps the salts of unknown users as they were."""
        self.path = path
        self._users: tuple[dict[str, Credentials], list[Credentials]] = ({}, [])
        self.stand_in_key = stand_in_key
        self.reload()

    def reload(self) -> None:
        """Read the file again; on a ConfigError the former users stay."""
        mistakes: list[str] = []
        users: dict[str, Credentials] = {}
        for line in read_user_lines(self.path, mistakes):
            try:
                users[saslprep(line.username)] = parse_credentials(line.secret)
            except (ValueError, ScramException) as error:
                where = f"{self.path}, line {line.number}: user {line.username!r}"
                mistakes.append(f"{where}: {error}")
        if mistakes:
            raise ConfigError(mistakes)
        self._users = (users, list(users.values()))
        if not self.stand_in_key:
            # Made of all the keys: no single user knows it, and a restart does not change it.
            keys = b"".join(one.stored_key + one.server_key for one in users.values())
            self.stand_in_key = hashlib.sha256(keys or secrets.token_bytes(32)).digest()

    def __len__(self) -> int:
        return len(self._users[0])

    def __contains__(self, username: str) -> bool:
        return username in self._users[0]

    def begin(self, method: str) -> ScramExchange | None:
        """Start an exchange; None when the client means another method."""
        return ScramExchange(self) if method == SCRAM_METHOD else None

    def credentials(self, username: str) -> Credentials:
        """Those of the user, or for an unknown one some that no password fits."""
        users, entries = self._users
        found = users.get(username)
        key = self.stand_in_key
        iterations, salt_bytes = ITERATIONS, SALT_BYTES
        if entries:
            other = entries[stand_in(key, username, len(entries))]
            iterations, salt_bytes = other.iterations, len(other.salt)
        salt = hashlib.shake_256(derive(key, b"salt", username)).digest(salt_bytes)
        made = Credentials(
            salt,
            derive(key, b"stored-key", username),
            derive(key, b"server-key", username),
            iterations,
        )
        return made if found is None else found


@final
class ScramExchange:
    """One login: `step` takes what the client sent and returns what to answer."""

    __slots__ = ("_server", "_steps", "done", "username")

    def __init__(self, file: ScramFile) -> None:
        self._steps = 0
        self._server = _MECHANISM.make_server(file.credentials)
        self.done = False
        self.username = ""

    def step(self, data: bytes) -> bytes:
        """Answer client-first with server-first, then client-final with server-final.

        Raises:
            NotAuthorizedError: wrong proof, unknown user, or not a SCRAM message.
        """
        self._steps += 1
        if self._steps > 2 or len(data) > SCRAM_MESSAGE_BYTES_MAX:
            self._steps = 2  # nothing may follow
            self.done = False
            raise NotAuthorizedError("SCRAM login refused: a message too many, or too long")
        try:
            return self._step(data.decode("utf-8")).encode("utf-8")
        except (ScramException, ValueError) as error:
            self._steps = 2
            raise NotAuthorizedError("SCRAM login refused") from error

    def _step(self, message: str) -> str:
        if self._steps == 1:
            self._server.set_client_first(message)
            self.username = _username_in(message)
            answer: str = self._server.get_server_first()
            return answer
        self._server.set_client_final(message)
        answer = self._server.get_server_final()
        self.done = True
        return answer


def scram_line(username: str, password: str) -> str:
    """The line of a SCRAM file for this user, without line end.

    Raises:
        RefusedError: the name or the password holds what RFC 4013 (SASLprep) forbids.
    """
    try:
        name: str = saslprep(username)
        salt, stored_key, server_key, iterations = _MECHANISM.make_auth_info(
            password, iteration_count=ITERATIONS
        )
    except ScramException as error:
        raise RefusedError(f"user {username!r}: name or password refused: {error}") from error
    mistake = username_mistake(name)
    if mistake:
        raise RefusedError(f"user name {username!r}: {mistake}")
    keys = f"{_base64(stored_key)}:{_base64(server_key)}"
    return f"{name}:{SCRAM_METHOD}${iterations}:{_base64(salt)}${keys}"


def parse_credentials(text: str) -> Credentials:
    """Read what stands behind `user:`. A ValueError names the fault, never the keys."""
    fields = text.split("$")
    if len(fields) != 3 or fields[0] != SCRAM_METHOD:
        raise ValueError(f"must be {SCRAM_METHOD}$iterations:salt$StoredKey:ServerKey")
    iterations, _, salt = fields[1].partition(":")
    stored_key, _, server_key = fields[2].partition(":")
    if not (iterations.isascii() and iterations.isdigit() and len(iterations) <= 8):
        raise ValueError(f"iterations must be {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    if not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise ValueError(f"{iterations} iterations; allowed: {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return Credentials(
        _decode("salt", salt, SALT_BYTES_MIN, 1024),
        _decode("StoredKey", stored_key, KEY_BYTES, KEY_BYTES),
        _decode("ServerKey", server_key, KEY_BYTES, KEY_BYTES),
        int(iterations),
    )


def _username_in(client_first: str) -> str:
    """The normalised user name of a client-first message which scramp has accepted."""
    name = client_first.split(",")[2].removeprefix("n=")
    prepared: str = saslprep(name.replace("=2C", ",").replace("=3D", "="))
    return prepared


def _decode(name: str, text: str, least: int, most: int) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"the {name} is not base64") from error
    if not least <= len(data) <= most:
        raise ValueError(f"the {name} has {len(data)} bytes; allowed: {least} to {most}")
    return data


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
