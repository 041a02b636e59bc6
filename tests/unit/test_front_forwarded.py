"""What the front sends on is what the client has sent: the decoder reads the same from both."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queuelake.broker.front import forwarded
from queuelake.protocol.decoder import Decoder
from queuelake.protocol.packets import (
    V5,
    V311,
    Auth,
    Connect,
    Disconnect,
    Packet,
    Publish,
    Subscribe,
    SubscribeItem,
    Unsubscribe,
    Will,
)
from queuelake.protocol.wire import varint

names = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x17F), min_size=1, max_size=9)
topics = names.map(lambda text: text.replace("+", "p").replace("#", "h").encode())
binaries = st.binary(max_size=40)
versions = st.sampled_from([V5, V311])
packet_ids = st.integers(1, 65535)
PROPERTIES = b"\x02\x00\x00\x00\x09" + b"\x26\x00\x01a\x00\x01b"  # an expiry, a user property


def read(version: int, data: bytes) -> Packet:
    decoder = Decoder(1 << 20)
    decoder.feed(forwarded.connect(Connect(version, "c", True, 0), None, True))
    decoder.next_packet()
    decoder.feed(data)
    found = decoder.next_packet()
    assert found is not None
    assert decoder.next_packet() is None
    return found


def fields(one: object) -> dict[str, object]:
    """Also of compiled classes, which have no `__slots__`."""
    found = {name: getattr(one, name) for name in dir(one) if not name.startswith("_")}
    assert found
    return found


@st.composite
def connects(draw: st.DrawFn) -> Connect:
    made = Connect(draw(versions), draw(names), draw(st.booleans()), draw(st.integers(0, 65535)))
    if draw(st.booleans()):
        made.username = draw(names)
        made.password = draw(st.none() | binaries)
    if draw(st.booleans()):
        payload, qos, retain = draw(binaries), draw(st.integers(0, 2)), draw(st.booleans())
        head = varint(len(PROPERTIES)) + PROPERTIES if made.version == V5 else b""
        expiry_at = 2 if head else 0
        delay_s = draw(st.integers(0, 9)) if head else 0
        made.will = Will(draw(topics), qos, retain, head + payload, len(head), expiry_at, delay_s)
    if made.version == V5:
        made.session_expiry_s = draw(st.integers(-1, 2**32 - 1))
        made.receive_max = draw(st.integers(1, 65535))
        made.packet_size_max = draw(st.sampled_from([0, 1000]))
        made.request_response = draw(st.booleans())
        made.request_problem = draw(st.booleans())
        made.auth_method = draw(st.none() | names)
        made.auth_data = draw(binaries) if made.auth_method else None
    return made


@given(connects())
def test_connect(asked: Connect) -> None:
    decoder = Decoder(1 << 20)
    decoder.feed(forwarded.connect(asked, asked.will, True))
    found = decoder.next_packet()
    assert isinstance(found, Connect)
    will, there = asked.will, found.will
    assert (will is None) == (there is None)
    if will is not None and there is not None:
        assert fields(will) == fields(there)
    assert fields(found) | {"will": will} == fields(asked)


@given(connects())
def test_connect_without_will_and_login(asked: Connect) -> None:
    decoder = Decoder(1 << 20)
    decoder.feed(forwarded.connect(asked, None, False))
    found = decoder.next_packet()
    assert isinstance(found, Connect)
    assert (found.will, found.username, found.password, found.auth_method) == (None,) * 4
    assert (found.client_id, found.clean_start) == (asked.client_id, asked.clean_start)


@given(versions, topics, binaries, st.integers(0, 2), st.booleans(), st.booleans(), packet_ids)
def test_publish(
    version: int, topic: bytes, payload: bytes, qos: int, retain: bool, dup: bool, number: int
) -> None:
    head = varint(len(PROPERTIES)) + PROPERTIES if version == V5 else b""
    dup, number = dup and qos > 0, number if qos else 0
    expiry_at = 2 if head else 0
    asked = Publish(topic, qos, retain, dup, number, head + payload, len(head), expiry_at, 0)
    found = read(version, forwarded.publish(asked, topic, asked.body))
    assert fields(found) == fields(asked)


items = st.builds(
    SubscribeItem, topics, st.integers(0, 2), st.booleans(), st.booleans(), st.integers(0, 2)
)


@given(packet_ids, st.lists(items, min_size=1, max_size=3), st.integers(0, 1000))
def test_subscribe(number: int, wanted: list[SubscribeItem], subscription_id: int) -> None:
    user = [(b"consumer-group", b"g"), (b"a", b"")]
    found = read(V5, forwarded.subscribe(V5, number, wanted, subscription_id, user))
    assert isinstance(found, Subscribe)
    assert [fields(one) for one in found.items] == [fields(one) for one in wanted]
    assert (found.packet_id, found.subscription_id) == (number, subscription_id)
    assert found.user == user
    old = read(V311, forwarded.subscribe(V311, number, wanted, 0, []))
    assert isinstance(old, Subscribe)
    assert [(one.topic_filter, one.qos) for one in old.items] == [
        (one.topic_filter, one.qos) for one in wanted
    ]


@given(versions, packet_ids, st.lists(topics, min_size=1, max_size=3))
def test_unsubscribe(version: int, number: int, filters: list[bytes]) -> None:
    found = read(version, forwarded.unsubscribe(version, number, filters))
    assert isinstance(found, Unsubscribe)
    assert (found.packet_id, found.filters) == (number, filters)


@given(st.sampled_from([0, 4, 0x81]), st.integers(-1, 2**32 - 1))
def test_disconnect(reason: int, expiry_s: int) -> None:
    found = read(V5, forwarded.disconnect(V5, Disconnect(reason, expiry_s)))
    assert isinstance(found, Disconnect)
    assert (found.reason, found.session_expiry_s) == (reason, expiry_s)
    assert isinstance(read(V311, forwarded.disconnect(V311, Disconnect(0))), Disconnect)


@given(st.sampled_from([0x18, 0x19]), names, st.none() | binaries)
def test_auth(reason: int, method: str, data: bytes | None) -> None:
    found = read(V5, forwarded.auth(Auth(reason, method, data)))
    assert isinstance(found, Auth)
    assert (found.reason, found.method, found.data) == (reason, method, data)
