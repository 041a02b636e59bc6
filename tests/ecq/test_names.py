"""Owners and keys may be odd and long (section 2, T10)."""

from __future__ import annotations

import pytest

from tests.ecq.client import SUCCESS, pairs
from tests.ecq.conftest import VERSIONS, Connect
from tests.ecq.control import Mailboxes

ODD = [
    " ",
    "a b",
    "%2F",
    "%",
    "$SYS",
    "$rewind-not",
    "Ω-äöü",
    "日本語",
    "🚗",
    "a.b:c;d",
    "W",
    "..",
    "\\",
    "'\"",
    "{owner}",
    "${clientid}",
    "\u202e",
    "e\u0301",
]
TOPIC_BYTES_MAX = 65_000


@pytest.mark.rule("T10", "section 2")
@pytest.mark.parametrize("key", ["a/b/c", "/", "//", "/a", "a/", "$rewind", "$rewind/x", "w", "$"])
def test_a_key_may_have_levels(connect: Connect, owner: str, key: str) -> None:
    device = connect(owner)
    device.listen()
    assert connect().write(owner, key, "x") == SUCCESS
    delivery = device.take()
    assert (delivery.topic, delivery.payload) == (f"$ECQ/{owner}/{key}", "x")


@pytest.mark.rule("T10", "section 2")
@pytest.mark.parametrize("name", ODD)
@VERSIONS
def test_odd_names_of_owners_and_keys(
    connect: Connect, mailboxes: Mailboxes, owner: str, version: int, name: str
) -> None:
    odd = f"{name}{owner}"
    producer = connect(version=version)
    assert producer.write(odd, name, "1") == SUCCESS
    assert producer.write(odd, f"{name}/{name}", "2") == SUCCESS
    device = connect(odd, version=version)
    assert device.listen() == 1
    assert pairs(device.drain()) == [f"{name}=1", f"{name}/{name}=2"]
    assert mailboxes.inspect(odd)["queue"] == "[1,2]"


@pytest.mark.rule("section 2")
def test_names_which_look_alike_are_different(connect: Connect, owner: str) -> None:
    names = ["é", "e\u0301", "E", "e", "e ", " e"]
    producer = connect()
    for name in names:
        for key in names:
            assert producer.write(f"{owner}{name}", key, f"{name}:{key}") == SUCCESS
    for name in names:
        device = connect(f"{owner}{name}")
        device.listen()
        assert [one.payload for one in device.drain()] == [f"{name}:{key}" for key in names]
        device.disconnect()


@pytest.mark.rule("section 2", "T10")
@pytest.mark.parametrize("length", [400, 512, 4000, TOPIC_BYTES_MAX])
def test_a_key_may_be_long(connect: Connect, owner: str, length: int) -> None:
    device, producer = connect(owner), connect()
    device.listen()
    keys = [f"{'x' * (length - len(f'$ECQ/w/{owner}/') - 1)}{end}" for end in "ab"]
    for key in (*keys, keys[0]):
        assert producer.write(owner, key, key[-1]) == SUCCESS
        assert device.take().key == key
    device.disconnect()
    again = connect(owner)
    again.listen()
    again.rewind('{"to": "first"}')
    assert [one.payload for one in again.drain()] == ["b", "a"]


@pytest.mark.rule("section 2")
@pytest.mark.parametrize("length", [400, 512, 1024])
def test_an_owner_may_have_a_long_name(connect: Connect, owner: str, length: int) -> None:
    long = owner + "x" * (length - len(owner))
    producer = connect()
    for name in (long, long[:-1] + "y"):
        assert producer.write(name, "k", name[-1]) == SUCCESS
    device = connect(long)
    assert device.listen() == 1
    assert pairs(device.drain()) == ["k=x"]


@pytest.mark.rule("section 2")
@pytest.mark.parametrize("size", [0, 1, 40_000, 1_000_000])
def test_payloads_of_any_size(connect: Connect, owner: str, size: int) -> None:
    device, payload = connect(owner), bytes(index % 251 for index in range(size))
    device.listen()
    assert connect().write(owner, "k", payload) == SUCCESS
    assert device.take().packet.payload == payload
