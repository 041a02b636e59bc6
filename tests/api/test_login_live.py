"""Users of the console log in through the broker, which counts failures as those of clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from queuelake.admin.services import Services
from queuelake.apikey import KeyFile, Role
from queuelake.broker.auth.passwords import Grants
from queuelake.broker.auth.useredit import Secret, UserEditor
from queuelake.control_client import ControlClient
from queuelake.errors import AnswerError
from tests.harness.broker import BrokerProcess


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("login")
    broker = BrokerProcess(directory, {"http.enabled": False, "auth.failed_logins_max": 3})
    broker.data_dir.mkdir()
    users = UserEditor(broker.data_dir / "users")
    users.add("olga", Secret("open sesame"), Grants("operator"))
    users.add("device", Secret("secret"), Grants())
    broker.start()
    yield broker
    broker.stop()


def log_in(broker: BrokerProcess, name: str, password: str, ip: str = "") -> Role | None:
    async def ask() -> Role | None:
        services = Services(ControlClient(broker.data_dir), KeyFile(broker.data_dir))
        try:
            return (await services.log_in(name, password, ip)).role
        finally:
            await services.close()

    return asyncio.run(ask())


def test_a_user_with_a_role_may_log_in(served: BrokerProcess) -> None:
    assert log_in(served, "olga", "open sesame") == "operator"


def test_who_has_no_role_or_a_wrong_password_may_not(served: BrokerProcess) -> None:
    assert log_in(served, "device", "secret") is None
    assert log_in(served, "olga", "wrong") is None
    assert log_in(served, "nobody", "open sesame") is None
    assert log_in(served, "", "") is None


def test_too_many_failures_from_one_place_are_refused_there(served: BrokerProcess) -> None:
    for _ in range(3):
        assert log_in(served, "olga", "guess", "192.0.2.7") is None
    with pytest.raises(AnswerError) as refused:
        log_in(served, "olga", "open sesame", "192.0.2.7")
    assert refused.value.code == "BANNED"
    assert log_in(served, "olga", "open sesame", "192.0.2.8") is not None


def test_users_of_the_console_lock_no_client_out(served: BrokerProcess) -> None:
    client = served.client()
    client.connect("anonymous")
    client.close()
