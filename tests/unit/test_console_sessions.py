"""Sessions without a browser: time, keys and users which change."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from queuelake.admin.auth import RoleTooLowError
from queuelake.admin.console import session as module
from queuelake.admin.console.session import Session, SessionEndedError, Sessions
from queuelake.admin.console.visit import Visit
from queuelake.admin.services import Services
from queuelake.apikey import (
    FURTHER_NAME,
    Caller,
    KeyFile,
    add_key,
    ensure_api_key,
    read_api_key,
    remove_key,
)
from queuelake.control import CALLER
from queuelake.control_access import ConsoleUser
from queuelake.errors import BrokerDownError
from queuelake.settings import Console


class FakeServices:
    """The keys of a real directory, one user, and who asked for what."""

    def __init__(self, data_dir: Path) -> None:
        self.gate = SimpleNamespace(keys=KeyFile(data_dir))
        self.ann = ConsoleUser("operator", b"proof of ann")
        self.is_down = False
        self.asked: list[str] = []

    async def log_in(self, name: str, password: str, ip: str) -> ConsoleUser:
        return self.ann if (name, password) == ("ann", "pw") else ConsoleUser()

    async def console_user(self, name: str) -> ConsoleUser:
        assert name == "ann"
        if self.is_down:
            raise BrokerDownError("the broker does not answer")
        return self.ann

    async def purge_queue(self, name: str) -> str:
        self.asked.append(f"{CALLER.get()} purges {name}")
        return name


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    now = SimpleNamespace(s=1_000_000.0)
    monkeypatch.setattr(module.time, "time", lambda: now.s)
    return now


@pytest.fixture
def services(tmp_path: Path) -> Any:
    ensure_api_key(tmp_path)
    return FakeServices(tmp_path)


@pytest.fixture
def sessions(services: Any, clock: SimpleNamespace) -> Sessions:
    return Sessions(services, Console(idle_timeout="10m"))


async def opened(sessions: Sessions, key: str) -> Session:
    name, _, secret = key.partition(":")
    session = await sessions.open(name, secret, "127.0.0.1")
    assert session is not None
    return session


async def test_a_session_ends_when_nobody_uses_it(
    sessions: Sessions, services: Any, clock: SimpleNamespace
) -> None:
    session = await opened(sessions, read_api_key(services.gate.keys.data_dir))
    clock.s += 599
    sessions.used(session)
    clock.s += 599
    assert sessions.read(sessions.token(session)) is not None
    clock.s += 2
    assert sessions.read(sessions.token(session)) is None


async def test_no_session_is_for_ever(
    sessions: Sessions, services: Any, clock: SimpleNamespace
) -> None:
    session = await opened(sessions, read_api_key(services.gate.keys.data_dir))
    for _ in range(module.AGE_S_MAX // 300):
        clock.s += 300
        assert sessions.caller(session) is not None
        sessions.used(session)
    clock.s += 300
    assert sessions.caller(session) is None


async def test_a_session_survives_a_restart_and_not_another_secret(
    sessions: Sessions, services: Any, tmp_path: Path
) -> None:
    token = sessions.token(await opened(sessions, read_api_key(tmp_path)))
    assert Sessions(services, Console()).read(token) is not None
    (tmp_path / module.SECRET_NAME).unlink()
    assert Sessions(services, Console()).read(token) is None


async def test_a_key_of_the_same_name_is_another_key(sessions: Sessions, tmp_path: Path) -> None:
    session = await opened(sessions, add_key(tmp_path, "ci", "operator"))
    assert sessions.caller(session) == Caller("ci", "operator")
    remove_key(tmp_path, "ci")
    assert sessions.caller(session) is None
    add_key(tmp_path, "ci", "operator")
    assert sessions.caller(session) is None


async def test_a_key_with_another_role_ends_its_sessions(
    sessions: Sessions, tmp_path: Path
) -> None:
    session = await opened(sessions, add_key(tmp_path, "ci", "operator"))
    kept = tmp_path / FURTHER_NAME
    kept.write_text(kept.read_text().replace("ci:operator:", "ci:admin:"))
    assert sessions.caller(session) is None


async def test_a_visit_asks_in_the_name_of_who_is_there(
    sessions: Sessions, services: Any, tmp_path: Path
) -> None:
    session = await opened(sessions, add_key(tmp_path, "ci", "operator"))
    visit = Visit(services, sessions, session, None, None)  # type: ignore[arg-type]
    fake: Any = FakeServices
    assert await visit.do(fake.purge_queue, "a") == "a"
    assert services.asked == ["ci purges a"]
    assert CALLER.get() == ""
    visit.log_out()
    with pytest.raises(SessionEndedError):
        await visit.do(fake.purge_queue, "a")


async def test_a_viewer_is_refused_by_the_visit(
    sessions: Sessions, services: Any, tmp_path: Path
) -> None:
    session = await opened(sessions, add_key(tmp_path, "guest", "viewer"))
    visit = Visit(services, sessions, session, None, None)  # type: ignore[arg-type]
    assert not visit.may(Services.purge_queue)
    with pytest.raises(RoleTooLowError, match="has the role viewer; this needs operator"):
        await visit.do(Services.purge_queue, "a")
    assert services.asked == []


async def test_a_user_acts_by_name_and_with_the_right_password_only(
    sessions: Sessions, services: Any
) -> None:
    assert await sessions.open("ann", "wrong", "127.0.0.1") is None
    session = await opened(sessions, "ann:pw")
    visit = Visit(services, sessions, session, None, None)  # type: ignore[arg-type]
    fake: Any = FakeServices
    await visit.do(fake.purge_queue, "a")
    assert services.asked == ["user:ann purges a"]


@pytest.mark.parametrize(
    "changed",
    [
        ConsoleUser(),
        ConsoleUser("viewer", b"proof of ann"),
        ConsoleUser("admin", b"proof of ann"),
        ConsoleUser("operator", b"another password"),
    ],
    ids=["gone", "less", "more", "password"],
)
async def test_a_user_who_was_changed_is_out(
    sessions: Sessions, services: Any, clock: SimpleNamespace, changed: ConsoleUser
) -> None:
    session = await opened(sessions, "ann:pw")
    visit = Visit(services, sessions, session, None, None)  # type: ignore[arg-type]
    fake: Any = FakeServices
    assert await visit.stands()
    services.ann = changed
    clock.s += module.USER_AGE_S_MAX
    with pytest.raises(SessionEndedError):
        await visit.do(fake.purge_queue, "a")
    assert services.asked == []
    services.ann = ConsoleUser("operator", b"proof of ann")
    clock.s += module.USER_AGE_S_MAX
    assert not await visit.stands()
    assert sessions.read(sessions.token(session)) is None


async def test_a_page_which_only_watches_learns_it_too(
    sessions: Sessions, services: Any, clock: SimpleNamespace
) -> None:
    visit = Visit(services, sessions, await opened(sessions, "ann:pw"), None, None)  # type: ignore[arg-type]
    services.is_down = True
    assert await visit.stands()  # nobody is sent away because the broker is down
    services.is_down, services.ann = False, ConsoleUser()
    assert not await visit.stands()
