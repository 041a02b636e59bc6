"""Who is logged in: a signed cookie, and what ended it.

The cookie says who, since when, and the proof that their key is still the one they showed. It is
signed with a secret in the data directory, so that a restart logs nobody out. Each look at a
session asks the key file again: a key which was removed or changed ends its sessions at once, and
a new role is in force at once. About a user the broker is asked again, with what they do.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import time
from http import HTTPStatus
from pathlib import Path

import msgspec

from queuelake.admin.services import Services
from queuelake.apikey import Caller, Role
from queuelake.config_types import parse_duration
from queuelake.errors import AnswerError, NotAuthorizedError
from queuelake.settings import Console

COOKIE = "queuelake-console"
SECRET_NAME = "console-secret"
SECRET_BYTES = 32
AGE_S_MAX = 12 * 3600  # whatever somebody does: a stolen cookie is not for ever
RENEW_AFTER_S = 60
ENDED_MAX = 10_000
USER_PREFIX = "user:"
USER_AGE_S_MAX = 2.0


class SessionEndedError(NotAuthorizedError):
    """Log in again."""


class Session(msgspec.Struct, frozen=True):
    """What the cookie says; `used_at` is when it was made or last renewed.

    `role` is that of a user, who is called `user:NAME`; a key has the role it has now.
    """

    id: str
    name: str
    proof: str
    opened_at: int
    used_at: int
    role: Role | None = None


class Sessions:
    """All sessions of one console."""

    def __init__(self, services: Services, settings: Console) -> None:
        self._services = services
        self._idle_s = parse_duration(settings.idle_timeout) / 1000
        self._secret = _read_secret(services.gate.keys.data_dir / SECRET_NAME)
        # Actions come over a WebSocket, which cannot renew the cookie: they are remembered here.
        self._used_at: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        # Of users, as the broker told it last, and when it did.
        self._roles: dict[str, Role] = {}
        self._asked_at: dict[str, float] = {}

    async def open(self, name: str, secret: str, address: str) -> Session | None:
        """Log in with a key, or as a user; None: that opens nothing.

        Raises:
            QueuelakeError: the broker, which knows the users, does not answer or refuses to.
        """
        presented = f"{name}:{secret}" if secret else name
        caller = self._services.gate.keys.identify(presented.encode())
        role: Role | None = None
        if caller is None and secret:
            caller = await self._services.log_in(name, secret, address)
            role = None if caller is None else caller.role
        if caller is None:
            return None
        now = int(time.time())
        proof = self._proof(caller.name)
        return Session(secrets.token_urlsafe(16), caller.name, proof, now, now, role)

    def read(self, token: str) -> Session | None:
        """The session of a cookie, if we signed it and nothing has ended it."""
        body, _, signature = token.partition(".")
        if not hmac.compare_digest(self._sign(body.encode()), signature.encode()):
            return None
        try:
            session = msgspec.json.decode(base64.urlsafe_b64decode(body), type=Session)
        except (binascii.Error, msgspec.MsgspecError):
            return None
        return session if self.caller(session) is not None else None

    def token(self, session: Session) -> str:
        body = base64.urlsafe_b64encode(msgspec.json.encode(session))
        return (body + b"." + self._sign(body)).decode()

    def renewed(self, session: Session) -> Session | None:
        """The session with its time set anew, or None while the old one does."""
        now = int(time.time())
        if now - session.used_at < RENEW_AFTER_S:
            return None
        return msgspec.structs.replace(session, used_at=now)

    def caller(self, session: Session) -> Caller | None:
        """Who they are now; None: the session has ended."""
        now = time.time()
        used_at = max(session.used_at, self._used_at.get(session.id, 0.0))
        if session.id in self._ended or now - used_at > self._idle_s:
            return None
        if now - session.opened_at > AGE_S_MAX:
            return None
        if session.role is not None:
            return Caller(session.name, self._roles.get(session.id, session.role))
        key = self._services.gate.keys.find(session.name)
        if key is None or not hmac.compare_digest(self._proof(session.name), session.proof):
            return None
        return Caller(key.name, key.role)

    async def ask_about_user(self, session: Session) -> None:
        """The broker knows the users: one who is gone has no session, another role is in force.

        Raises:
            QueuelakeError: the broker does not answer.
        """
        age_s = time.time() - self._asked_at.get(session.id, 0.0)
        if session.role is None or age_s < USER_AGE_S_MAX:
            return
        try:
            user = await self._services.user(session.name.removeprefix(USER_PREFIX))
        except AnswerError as exc:
            if exc.http_status != HTTPStatus.NOT_FOUND:
                raise
            self.end(session)
            return
        if user.role == "none":
            self.end(session)
        else:
            self._roles[session.id] = user.role
            self._asked_at[session.id] = time.time()

    def used(self, session: Session) -> None:
        """Somebody did something: the idle time begins again."""
        now = time.time()
        if len(self._used_at) >= ENDED_MAX:
            self._used_at = {k: at for k, at in self._used_at.items() if now - at < self._idle_s}
            self._roles = {k: role for k, role in self._roles.items() if k in self._used_at}
            self._asked_at = {k: at for k, at in self._asked_at.items() if k in self._used_at}
        self._used_at[session.id] = now

    def end(self, session: Session) -> None:
        now = time.time()
        if len(self._ended) >= ENDED_MAX:  # those of the oldest are too old to be used anyway
            self._ended = {k: at for k, at in self._ended.items() if now - at < AGE_S_MAX}
        self._ended[session.id] = now

    def _proof(self, name: str) -> str:
        key = self._services.gate.keys.find(name)
        digest = b"" if key is None else key.digest
        return hmac.new(self._secret, digest, hashlib.sha256).hexdigest()

    def _sign(self, body: bytes) -> bytes:
        digest = hmac.new(self._secret, b"session:" + body, hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest)


def _read_secret(path: Path) -> bytes:
    """The secret of this data directory, made when there is none or it is no whole one."""
    try:
        secret = path.read_bytes()
        if len(secret) == SECRET_BYTES:
            return secret
    except FileNotFoundError:
        pass
    secret = secrets.token_bytes(SECRET_BYTES)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secret)
    draft.replace(path)
    return secret
