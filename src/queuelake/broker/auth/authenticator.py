"""Who a client is: certificate, token, password, or nobody in particular.

In this order, the first that is there decides:

1. a ban, or too many failed logins from there: BannedError, before anything is computed;
2. the user of a verified client certificate;
3. without users in the configuration: anonymous, on loopback and Unix sockets only;
4. no credentials: anonymous, when `auth.allow_anonymous` says so;
5. a token in the password; else user name and password.

An anonymous client has no user name, whatever it wrote into CONNECT: rules of the ACL only ever
see names that were proven. `authenticate` may run in any thread; `is_quick` says when it need not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from queuelake.broker.auth.bans import Bans, FailedLogins
from queuelake.broker.auth.matchers import parse_address
from queuelake.broker.auth.passwords import NOBODY, PasswordFile
from queuelake.control_access import ConsoleUser
from queuelake.errors import BadCredentialsError, BannedError, ConfigError, NotAuthorizedError
from queuelake.settings import AclRule, Auth, Settings, authentication_configured

# A broker which uses neither does not pay for their libraries: they are imported where made.
if TYPE_CHECKING:
    from queuelake.broker.auth.scram import ScramExchange, ScramFile
    from queuelake.broker.auth.tokens import TokenIdentity, TokenVerifier

USERS_NAME: Final = "users"


@final
class Login:
    """What is known of a client when its CONNECT arrives; `peer_ip` is "" on a Unix socket."""

    __slots__ = ("certificate_user", "client_id", "loopback", "password", "peer_ip", "username")

    def __init__(
        self,
        client_id: str,
        username: str | None,
        password: bytes | None,
        peer_ip: str,
        loopback: bool,
        certificate_user: str | None = None,
    ) -> None:
        self.client_id = client_id
        self.username = username
        self.password = password
        self.peer_ip = peer_ip
        self.loopback = loopback
        self.certificate_user = certificate_user


@final
class Identity:
    """A client that was let in; at `expires_at` (epoch seconds) its connection is closed.

    `of_file`: the name was proven by a password of the users file, or of the SCRAM file.
    """

    __slots__ = ("expires_at", "of_file", "platform", "rules", "username")

    def __init__(
        self,
        username: str | None,
        platform: bool,
        rules: list[AclRule],
        expires_at: float | None = None,
    ) -> None:
        self.username = username
        self.platform = platform
        self.rules = rules
        self.expires_at = expires_at
        self.of_file = False


@final
class Files:
    """Everything read from disk, replaced as a whole.

    `users` are those of the console; clients are checked against them, as `passwords`, only when
    the configuration names the file: a first user for the console must not lock all clients out.
    """

    __slots__ = ("passwords", "scram", "tokens", "users")

    def __init__(self, auth: Auth, users_path: Path, former: Files | None) -> None:
        mistakes: list[str] = []
        self.passwords: PasswordFile | None = None
        self.users: PasswordFile | None = None
        self.scram: ScramFile | None = None
        self.tokens: TokenVerifier | None = None
        try:
            if auth.password_file or users_path.exists():
                self.users = PasswordFile(str(users_path))
                self.passwords = self.users if auth.password_file else None
        except ConfigError as error:
            mistakes += error.mistakes
        try:
            if auth.scram_file:
                from queuelake.broker.auth.scram import ScramFile

                kept = former.scram if former is not None else None
                key = kept.stand_in_key if kept is not None else b""
                self.scram = ScramFile(auth.scram_file, key)
        except ConfigError as error:
            mistakes += error.mistakes
        try:
            if auth.jwt.secret or auth.jwt.public_key_file or auth.jwt.jwks_file:
                from queuelake.broker.auth.tokens import TokenVerifier

                self.tokens = TokenVerifier(auth.jwt)
        except ConfigError as error:
            mistakes += error.mistakes
        if mistakes:
            raise ConfigError(mistakes)


class Authenticator:
    """Decides at CONNECT.

    Raises:
        ConfigError: a file of the configuration is missing or malformed.
    """

    __slots__ = (
        "_auth",
        "_clock",
        "_failed",
        "_files",
        "_lock",
        "_platform_users",
        "bans",
        "configured",
        "users_path",
    )

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._auth = settings.auth
        self._clock = clock
        self._platform_users = frozenset(settings.auth.platform_users)
        data_dir = Path(settings.data_dir).expanduser()
        self.users_path: Path = Path(settings.auth.password_file or data_dir / USERS_NAME)
        self._files = Files(settings.auth, self.users_path, None)
        self._failed = FailedLogins(
            settings.auth.failed_logins_max, settings.auth.failed_logins_ban_s
        )
        # The loop and the threads that hash passwords share the tables.
        self._lock = threading.Lock()
        self.bans = Bans(settings.bans)
        self.configured: bool = authentication_configured(settings)

    def is_quick(self, login: Login) -> bool:
        """True when `authenticate` hashes no password and may run on the event loop."""
        if login.certificate_user is not None or not self.configured or login.password is None:
            return True
        files = self._files
        if files.tokens is not None and files.tokens.recognizes(login.password):
            return True
        return files.passwords is None or self._is_banned(login, login.username)

    def authenticate(self, login: Login) -> Identity:
        """Let the client in, or raise why not.

        Raises:
            BannedError: banned, or too many failed logins. Nothing was computed.
            BadCredentialsError: user name, password or token is wrong.
            NotAuthorizedError: no credentials, and anonymous clients are not allowed.
        """
        self.refuse_banned(login)
        if login.certificate_user is not None:
            return self.identity_of(login.certificate_user, login)
        if not self.configured or (not login.username and login.password is None):
            return self._anonymous(login)
        files = self._files
        password = login.password
        tokens = files.tokens
        if password is not None and tokens is not None and tokens.recognizes(password):
            return self._by_token(login, tokens, password)
        username = login.username or ""
        if password is None or files.passwords is None:
            raise self._refused(login)
        if not files.passwords.verify(username, password):
            raise self._refused(login)
        with self._lock:
            self._failed.succeeded(username or login.client_id, login.peer_ip)
        identity = self.identity_of(username, login)
        identity.of_file = True
        return identity

    def log_in(self, username: str, password: bytes, peer_ip: str) -> ConsoleUser:
        """A user of the console; nobody: a wrong password, or a user without a role.

        Slow, as a login of a client is, and counted as one.

        Raises:
            BannedError: banned, or too many failed logins. Nothing was computed.
        """
        login = Login("", username, password, peer_ip, False)
        self.refuse_banned(login)
        users = self._files.users
        if users is None or not users.verify(username, password):
            self._count_failure(username, login)
            return NOBODY
        with self._lock:
            self._failed.succeeded(username, peer_ip)
        return users.console_user(username)

    @property
    def users(self) -> PasswordFile | None:
        """As they were read last; None: nobody has made a file yet."""
        return self._files.users

    def is_user(self, username: str) -> bool:
        """Whether clients may still log in by this name, with a password or SCRAM."""
        files = self._files
        if files.passwords is not None and username in files.passwords:
            return True
        return files.scram is not None and username in files.scram

    def is_platform(self, username: str) -> bool:
        users = self._files.users
        granted = users is not None and users.grants(username).platform
        return granted or username in self._platform_users

    def begin_exchange(self, method: str) -> ScramExchange | None:
        """Start an enhanced authentication; None when there is no such method here."""
        scram = self._files.scram
        return scram.begin(method) if scram is not None else None

    def identity_of(self, username: str, login: Login) -> Identity:
        """The identity of a user who has proven the name.

        Raises:
            BannedError: this user is banned.
        """
        if self._is_banned(login, username):
            raise BannedError(f"client {login.client_id!r}: refused by a ban")
        return self.presumed(username, login.peer_ip)

    def presumed(self, username: str | None, peer_ip: str) -> Identity:
        """Who a client would be if it were let in by this name, or without one."""
        if username is not None:
            return Identity(username, self.is_platform(username), [])
        address = parse_address(peer_ip)
        local = address is not None and address.is_loopback
        return Identity(None, local and not self.configured, [])

    def refuse_banned(self, login: Login) -> None:
        """Raise BannedError when nothing this client sends could let it in.

        Ask before the first step of an exchange; `authenticate` asks by itself.
        """
        if self._is_banned(login, login.certificate_user or login.username):
            raise BannedError(f"client {login.client_id!r}: refused by a ban or failed logins")

    def exchange_failed(self, login: Login, exchange: ScramExchange) -> None:
        """Count an exchange that raised, as `authenticate` counts a wrong password."""
        self._count_failure(exchange.username or login.username, login)

    def reload(self) -> None:
        """Read the files again. On a ConfigError all of the former ones stay in use."""
        self._files = Files(self._auth, self.users_path, self._files)

    def _is_banned(self, login: Login, username: str | None) -> bool:
        now = self._clock()
        with self._lock:
            return self._failed.refuses(
                username or login.client_id, login.peer_ip, now
            ) or self.bans.refuses(login.client_id, username, login.peer_ip, now)

    def _count_failure(self, username: str | None, login: Login) -> None:
        # Without a user name the client id stands in: devices with tokens behind one address must
        # not be locked out by the one whose token has expired.
        with self._lock:
            self._failed.failed(username or login.client_id, login.peer_ip, self._clock())

    def _anonymous(self, login: Login) -> Identity:
        local = login.loopback or not login.peer_ip
        allowed = self._auth.allow_anonymous
        if allowed is None:
            allowed = local and not self.configured
        if not allowed:
            raise NotAuthorizedError(
                f"client {login.client_id!r}: anonymous clients are not allowed from here"
            )
        return Identity(None, local and not self.configured, [])

    def _by_token(self, login: Login, tokens: TokenVerifier, token: bytes) -> Identity:
        try:
            found: TokenIdentity = tokens.verify(token, self._clock())
        except BadCredentialsError as error:
            raise self._refused(login) from error
        identity = self.identity_of(found.username, login)
        identity.rules = found.rules
        identity.expires_at = found.expires_at
        return identity

    def _refused(self, login: Login) -> BadCredentialsError:
        self._count_failure(login.username, login)
        return BadCredentialsError(f"client {login.client_id!r}: bad user name or password")
