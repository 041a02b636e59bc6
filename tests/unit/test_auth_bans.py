"""Bans and the table of failed logins: who is refused, until when, and that both are bounded."""

from __future__ import annotations

import pytest

from queuelake.broker.auth import bans as bans_module
from queuelake.broker.auth.bans import BanKind, Bans, FailedLogins
from queuelake.errors import ConfigError, RefusedError
from queuelake.settings import Ban


def test_bans_of_the_configuration_must_fit_in_all_their_fields() -> None:
    bans = Bans([Ban(clientid="bad"), Ban(username="eve", ip="10.0.0.0/8"), Ban(ip="fd00::1")])
    assert bans.refuses("bad", None, "", 0.0)
    assert bans.refuses("x", "eve", "10.9.9.9", 0.0)
    assert not bans.refuses("x", "eve", "11.9.9.9", 0.0)
    assert not bans.refuses("x", "ann", "10.9.9.9", 0.0)
    assert bans.refuses("x", None, "fd00::1", 0.0)
    assert not bans.refuses("x", "eve", "", 0.0)


def test_wrong_bans_are_config_errors() -> None:
    with pytest.raises(ConfigError) as caught:
        Bans([Ban(), Ban(ip="10.0.0.0/99")])
    assert len(caught.value.mistakes) == 2


@pytest.mark.parametrize(
    ("kind", "value", "fits", "other"),
    [
        ("clientid", "c1", ("c1", None, "1.2.3.4"), ("c2", "c1", "1.2.3.4")),
        ("username", "eve", ("c", "eve", ""), ("eve", None, "")),
        ("ip", "10.1.0.0/16", ("c", None, "10.1.255.255"), ("c", None, "10.2.0.0")),
        ("ip", "10.1.1.1", ("c", None, "::ffff:10.1.1.1"), ("c", None, "10.1.1.2")),
        ("ip", "0.0.0.0/0", ("c", None, "9.9.9.9"), ("c", None, "fd00::1")),
        ("ip", "fd00::/8", ("c", None, "fdff::1%eth0"), ("c", None, "fe80::1")),
    ],
)
def test_a_ban_holds_until_its_time_and_can_be_removed(
    kind: BanKind, value: str, fits: tuple[str, str | None, str], other: tuple[str, str | None, str]
) -> None:
    bans = Bans([])
    bans.add(kind, value, 100.0)
    assert bans.refuses(*fits, 99.0)
    assert not bans.refuses(*other, 99.0)
    assert not bans.refuses(*fits, 100.0)
    bans.add(kind, value, None)
    assert bans.refuses(*fits, 1e12)
    assert [one.kind for one in bans.list()] == [kind]
    assert bans.remove(kind, value)
    assert not bans.remove(kind, value)
    assert not bans.refuses(*fits, 0.0)


def test_a_wrong_value_is_refused() -> None:
    bans = Bans([])
    for kind, value in (("ip", "10.0.0.1/8"), ("ip", "host"), ("clientid", "")):
        with pytest.raises(RefusedError):
            bans.add(kind, value, None)  # type: ignore[arg-type]


def test_bans_are_bounded_and_expired_ones_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bans_module, "BANS_MAX", 10)
    bans = Bans([])
    for index in range(10):
        bans.add("ip", f"10.0.0.{index}", None if index else 50.0)
    with pytest.raises(RefusedError, match="10 bans"):
        bans.add("clientid", "x", None, now=49.0)
    bans.add("ip", "10.0.0.3", 70.0, now=49.0)  # replacing needs no room
    bans.add("clientid", "x", None, now=51.0)
    assert len(bans.list()) == 10


def test_failures_of_a_user_from_one_address_ban_that_pair() -> None:
    failed = FailedLogins(3, 60.0)
    for now in (0.0, 1.0):
        failed.failed("ann", "10.0.0.1", now)
    assert not failed.refuses("ann", "10.0.0.1", 1.0)
    failed.failed("ann", "10.0.0.1", 2.0)
    assert failed.refuses("ann", "10.0.0.1", 61.9)
    assert not failed.refuses("ann", "10.0.0.1", 62.0)
    assert not failed.refuses("bob", "10.0.0.1", 3.0)
    assert not failed.refuses("ann", "10.0.0.2", 3.0)


def test_old_failures_and_those_before_a_success_do_not_count() -> None:
    failed = FailedLogins(2, 60.0)
    failed.failed("ann", "10.0.0.1", 0.0)
    failed.failed("ann", "10.0.0.1", 61.0)
    assert not failed.refuses("ann", "10.0.0.1", 61.0)
    failed.succeeded("ann", "10.0.0.1")
    failed.failed("ann", "10.0.0.1", 62.0)
    assert not failed.refuses("ann", "10.0.0.1", 62.0)


@pytest.mark.parametrize(
    ("ips", "banned"),
    [
        (["10.0.0.1"], True),
        (["127.0.0.1"], False),
        ([""], False),
        ([f"fd00::{index}" for index in range(1, 9)], True),
        ([f"10.0.1.{index}" for index in range(30)], False),
    ],
)
def test_many_names_from_one_place_ban_the_place(ips: list[str], banned: bool) -> None:
    failed = FailedLogins(3, 60.0)
    for index in range(30):
        failed.failed(f"user{index}", ips[index % len(ips)], 0.0)
    assert failed.refuses("fresh", ips[0], 1.0) is banned


def test_zero_turns_it_off() -> None:
    for failed in (FailedLogins(0, 60.0), FailedLogins(3, 0.0)):
        for _ in range(100):
            failed.failed("ann", "10.0.0.1", 0.0)
        assert not failed.refuses("ann", "10.0.0.1", 0.0)
        assert len(failed) == 0


def test_the_table_of_failures_is_bounded_and_keeps_the_latest() -> None:
    failed = FailedLogins(1, 60.0)
    for index in range(bans_module.FAILED_LOGINS_MAX + 500):
        failed.failed(
            "x" * 1000 + str(index), f"10.{index >> 16}.{index >> 8 & 255}.{index & 255}", 0.0
        )
    assert len(failed) == bans_module.FAILED_LOGINS_MAX
    last = bans_module.FAILED_LOGINS_MAX + 499
    assert failed.refuses("x" * 1000 + str(last), f"10.0.{last >> 8 & 255}.{last & 255}", 1.0)
