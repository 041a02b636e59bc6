"""Who is logged in: a signed cookie, and what ended it.

The cookie says who, since when, and the proof that their key or password, and their role, are
still those they logged in with: whatever changes ends the session. It is signed with a secret in
the data directory, so that a restart logs nobody out. Each look at a session asks the key file
again. About a user the broker is asked again, now and then.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import time
from pathlib import Path

import msgspec

from queuelake.admin.services import Services
from queuelake.apikey import Caller, Role
from queuelake.config_types import parse_duration
from queuelake.errors import NotAuthorizedError
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

    A user is called `user:NAME`, as no API key can be.
    """

    id: str
    name: str
    proof: str
    opened_at: int
    used_at: int
    role: Role

    @property
    def is_user(self) -> bool:
        return self.name.startswith(USER_PREFIX)


class Sessions:
    """All sessions of one console."""

    def __init__(self, services: Services, settings: Console) -> None:
        self._services = services
        self._idle_s = parse_duration(settings.idle_timeout) / 1000
        self._secret = _read_secret(services.gate.keys.data_dir / SECRET_NAME)
        # Actions come over a WebSocket, which cannot renew the cookie: they are remembered here.
        self._used_at: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        self._asked_at: dict[str, float] = {}  # when the broker knew a user last

    async def open(self, name: str, secret: str, address: str) -> Session | None:
        """Log in with a key, or as a user; None: that opens nothing.

        Raises:
            QueuelakeError: the broker, which knows the users, does not answer or refuses to.
        """
        presented = f"{name}:{secret}" if secret else name
        keys = self._services.gate.keys
        caller = keys.identify(presented.encode())
        key = keys.find(caller.name) if caller is not None else None
        if key is not None:
            return self._opened(key.name, key.role, key.digest)
        if not secret:
            return None
        user = await self._services.log_in(name, secret, address)
        if user.role is None:
            return None
        return self._opened(f"{USER_PREFIX}{name}", user.role, user.proof)

    def _opened(self, name: str, role: Role, digest: bytes) -> Session:
        now = int(time.time())
        return Session(secrets.token_urlsafe(16), name, self._proof(role, digest), now, now, role)

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
        if not session.is_user:
            key = self._services.gate.keys.find(session.name)
            if key is None or not self._proves(session, key.role, key.digest):
                return None
        return Caller(session.name, session.role)

    async def ask_about_user(self, session: Session) -> None:
        """The broker knows the users: who is gone, or has another password or role, is out.

        Raises:
            QueuelakeError: the broker does not answer.
        """
        age_s = time.time() - self._asked_at.get(session.id, 0.0)
        if not session.is_user or age_s < USER_AGE_S_MAX:
            return
        user = await self._services.console_user(session.name.removeprefix(USER_PREFIX))
        if user.role is None or not self._proves(session, user.role, user.proof):
            self.end(session)
        else:
            self._asked_at[session.id] = time.time()

    def used(self, session: Session) -> None:
        """Somebody did something: the idle time begins again."""
        now = time.time()
        if len(self._used_at) >= ENDED_MAX:
            self._used_at = {k: at for k, at in self._used_at.items() if now - at < self._idle_s}
            self._asked_at = {k: at for k, at in self._asked_at.items() if k in self._used_at}
        self._used_at[session.id] = now

    def end(self, session: Session) -> None:
        now = time.time()
        if len(self._ended) >= ENDED_MAX:  # those of the oldest are too old to be used anyway
            self._ended = {k: at for k, at in self._ended.items() if now - at < AGE_S_MAX}
        self._ended[session.id] = now

    def _proves(self, session: Session, role: Role, digest: bytes) -> bool:
        return hmac.compare_digest(self._proof(role, digest), session.proof)

    def _proof(self, role: Role, digest: bytes) -> str:
        return hmac.new(self._secret, role.encode() + digest, hashlib.sha256).hexdigest()

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
