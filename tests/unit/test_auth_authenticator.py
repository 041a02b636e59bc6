"""Logins: certificate, token, password, SCRAM and anonymous, with real files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jwt
import pytest
from scramp import ScramClient

from queuelake.broker.auth.acl import Acl
from queuelake.broker.auth.authenticator import Authenticator, Identity, Login
from queuelake.broker.auth.passwords import hash_password
from queuelake.broker.auth.scram import scram_line
from queuelake.errors import BadCredentialsError, BannedError, ConfigError, NotAuthorizedError
from queuelake.settings import Auth, Ban, Jwt, Settings

SECRET = "0123456789abcdef0123456789abcdef"


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def login(
    username: str | None = None, password: bytes | None = None, ip: str = "10.0.0.9", **more: Any
) -> Login:
    local = ip in ("", "127.0.0.1", "::1")
    fields = {"client_id": "c1", "certificate_user": None, **more}
    return Login(username=username, password=password, peer_ip=ip, loopback=local, **fields)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def files(tmp_path: Path) -> Auth:
    (tmp_path / "passwords").write_text(f"ann:{hash_password('pw')}\n", encoding="utf-8")
    (tmp_path / "scram").write_text(scram_line("bob", "pw") + "\n", encoding="utf-8")
    return Auth(
        password_file=str(tmp_path / "passwords"),
        scram_file=str(tmp_path / "scram"),
        jwt=Jwt(secret=SECRET),
        platform_users=["ann", "root"],
        failed_logins_max=3,
        failed_logins_ban_s=60.0,
    )


def with_auth(**auth: Any) -> Authenticator:
    return Authenticator(Settings(auth=Auth(**auth)))


def outcome(authenticator: Authenticator, one: Login) -> type[Exception] | Identity:
    try:
        return authenticator.authenticate(one)
    except (BadCredentialsError, BannedError, NotAuthorizedError) as error:
        return type(error)


@pytest.mark.parametrize("ip", ["127.0.0.1", "::1", ""])
def test_without_users_local_clients_are_anonymous_platform_clients(ip: str) -> None:
    authenticator = with_auth()
    assert not authenticator.configured
    for one in (login(ip=ip), login("root", b"x", ip=ip)):
        assert authenticator.is_quick(one)
        identity = authenticator.authenticate(one)
        assert identity.username is None, "nobody proved this name"
        assert identity.platform


@pytest.mark.parametrize(
    ("allow", "ip", "enters"),
    [
        (None, "10.0.0.9", False),
        (True, "10.0.0.9", True),
        (False, "127.0.0.1", False),
        (None, "127.0.0.1", True),
    ],
)
def test_anonymous_clients_without_users(allow: bool | None, ip: str, enters: bool) -> None:
    found = outcome(with_auth(allow_anonymous=allow), login("x", ip=ip))
    if enters:
        assert isinstance(found, Identity)
        assert found.platform is (ip == "127.0.0.1")
    else:
        assert found is NotAuthorizedError


@pytest.mark.parametrize("ip", ["127.0.0.1", "10.0.0.9", ""])
def test_anonymous_clients_with_users(files: Auth, ip: str) -> None:
    assert outcome(Authenticator(Settings(auth=files)), login(ip=ip)) is NotAuthorizedError
    fields = {name: getattr(files, name) for name in files.__struct_fields__}
    open_to_all = Authenticator(Settings(auth=Auth(**{**fields, "allow_anonymous": True})))
    found = outcome(open_to_all, login(ip=ip))
    assert isinstance(found, Identity)
    assert found.username is None
    assert not found.platform
    assert outcome(open_to_all, login("ann", ip=ip)) is BadCredentialsError


def test_user_name_and_password(files: Auth) -> None:
    authenticator = Authenticator(Settings(auth=files))
    good = login("ann", b"pw")
    assert not authenticator.is_quick(good)
    identity = authenticator.authenticate(good)
    assert (identity.username, identity.platform, identity.expires_at) == ("ann", True, None)
    for bad in (login("ann", b"no"), login("eve", b"pw"), login("ann"), login(None, b"pw")):
        assert outcome(authenticator, bad) is BadCredentialsError


def test_a_certificate_user_needs_no_password(files: Auth) -> None:
    authenticator = Authenticator(Settings(auth=files, bans=[Ban(username="eve")]))
    one = login("someone", b"wrong", certificate_user="root")
    assert authenticator.is_quick(one)
    identity = authenticator.authenticate(one)
    assert (identity.username, identity.platform) == ("root", True)
    assert outcome(authenticator, login(certificate_user="eve")) is BannedError


def test_tokens(files: Auth, clock: Clock) -> None:
    authenticator = Authenticator(Settings(auth=files), clock)
    claims = {"sub": "dev", "exp": clock.now + 10, "acl": {"pub": ["t/${username}"]}}
    password = jwt.encode(claims, SECRET, algorithm="HS256").encode()
    for name in (None, "", "ann"):
        one = login(name, password)
        assert authenticator.is_quick(one)
        identity = authenticator.authenticate(one)
        assert (identity.username, identity.platform) == ("dev", False)
        assert identity.expires_at == clock.now + 10
        acl = Acl([], False).for_client("c1", identity.username, "", False, identity.rules)
        assert acl.may_publish(b"t/dev")
        assert not acl.may_publish(b"t/ann")
    clock.now += 10
    assert outcome(authenticator, login(None, password)) is BadCredentialsError
    assert outcome(authenticator, login("ann", b"pw")) is not BadCredentialsError


def test_a_token_of_a_banned_user_is_refused(files: Auth) -> None:
    authenticator = Authenticator(Settings(auth=files, bans=[Ban(username="dev")]))
    password = jwt.encode({"sub": "dev"}, SECRET, algorithm="HS256").encode()
    assert outcome(authenticator, login("other", password)) is BannedError


def test_scram_exchange(files: Auth, clock: Clock) -> None:
    authenticator = Authenticator(Settings(auth=files), clock)
    assert authenticator.begin_exchange("GS2-KRB5") is None
    assert with_auth().begin_exchange("SCRAM-SHA-256") is None
    exchange = authenticator.begin_exchange("SCRAM-SHA-256")
    assert exchange is not None
    client = ScramClient(["SCRAM-SHA-256"], "bob", "pw")
    client.set_server_first(exchange.step(client.get_client_first().encode()).decode())
    exchange.step(client.get_client_final().encode())
    assert exchange.done
    one = login()
    assert authenticator.identity_of(exchange.username, one).username == "bob"
    for _ in range(3):
        authenticator.exchange_failed(one, exchange)
    with pytest.raises(BannedError):
        authenticator.identity_of(exchange.username, one)


def test_too_many_failures_are_refused_without_hashing(
    files: Auth, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    authenticator = Authenticator(Settings(auth=files), clock)
    for _ in range(3):
        assert outcome(authenticator, login("ann", b"no")) is BadCredentialsError
    good = login("ann", b"pw")
    assert authenticator.is_quick(good), "refused on the loop, no thread needed"
    assert outcome(authenticator, good) is BannedError
    assert isinstance(outcome(authenticator, login("ann", b"pw", ip="10.0.0.8")), Identity)
    clock.now += 60
    assert isinstance(outcome(authenticator, good), Identity)


def test_one_bad_token_behind_an_address_does_not_lock_out_the_others(files: Auth) -> None:
    authenticator = Authenticator(Settings(auth=files))
    for _ in range(5):
        outcome(authenticator, login(None, b"eyJ.a.b", client_id="broken"))
    assert outcome(authenticator, login(None, b"eyJ.a.b", client_id="broken")) is BannedError
    password = jwt.encode({"sub": "dev"}, SECRET, algorithm="HS256").encode()
    assert isinstance(outcome(authenticator, login(None, password, client_id="ok")), Identity)


def test_bans_refuse_before_anything_else(files: Auth, clock: Clock) -> None:
    authenticator = Authenticator(Settings(auth=files, bans=[Ban(clientid="bad")]), clock)
    assert outcome(authenticator, login("ann", b"pw", client_id="bad")) is BannedError
    authenticator.bans.add("ip", "10.0.0.0/24", clock.now + 5)
    assert outcome(authenticator, login("ann", b"pw")) is BannedError
    with pytest.raises(BannedError):
        authenticator.refuse_banned(login())
    clock.now += 5
    assert isinstance(outcome(authenticator, login("ann", b"pw")), Identity)


def test_reload_takes_all_files_or_none(files: Auth) -> None:
    authenticator = Authenticator(Settings(auth=files))
    entry = f"eve:{hash_password('new')}\n"
    Path(files.password_file).write_text(entry, encoding="utf-8")
    good_scram = Path(files.scram_file).read_text(encoding="utf-8")
    Path(files.scram_file).write_text("broken\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="line 1"):
        authenticator.reload()
    assert isinstance(outcome(authenticator, login("ann", b"pw")), Identity)
    Path(files.scram_file).write_text(good_scram, encoding="utf-8")
    authenticator.reload()
    assert isinstance(outcome(authenticator, login("eve", b"new")), Identity)
    assert outcome(authenticator, login("ann", b"pw")) is BadCredentialsError


def test_all_mistakes_of_all_files_are_reported_at_start(tmp_path: Path) -> None:
    path = tmp_path / "broken"
    path.write_text("x\ny\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        with_auth(password_file=str(path), scram_file=str(path), jwt=Jwt(jwks_file=str(path)))
    assert len(caught.value.mistakes) == 5


def test_errors_carry_the_reason_codes_of_mqtt() -> None:
    codes = [one.reason_code for one in (BadCredentialsError, NotAuthorizedError, BannedError)]
    assert codes == [0x86, 0x87, 0x8A]
