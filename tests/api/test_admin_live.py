"""Subscriptions, retained messages, bans, permissions and settings through the HTTP of a broker."""

from __future__ import annotations

import base64
from urllib.parse import quote

from tests.api.queue_rest import Connect, Rest
from tests.conftest import BrokerFactory


def test_subscriptions_are_listed_by_client_and_by_topic(rest: Rest, connect: Connect) -> None:
    one, two = connect("sub-a"), connect("sub-b")
    one.wire.subscribe("lists/+/x", qos=1)
    one.wire.subscribe("other/#")
    two.wire.subscribe("$share/g/lists/#", qos=2)
    ours = rest.fetch("/api/v1/subscriptions?client_id=sub-a").json
    assert [(s["topic_filter"], s["qos"]) for s in ours["subscriptions"]] == [
        ("lists/+/x", 1),
        ("other/#", 0),
    ]
    reached = rest.fetch("/api/v1/subscriptions?topic=lists/1/x").json["subscriptions"]
    assert [s["client_id"] for s in reached] == ["sub-a", "sub-b"]
    first = rest.fetch("/api/v1/subscriptions?client_id=sub-a&limit=1").json
    cursor = quote(first["next"], safe="")
    second = rest.fetch(f"/api/v1/subscriptions?client_id=sub-a&limit=1&cursor={cursor}").json
    assert [s["topic_filter"] for s in second["subscriptions"]] == ["other/#"]
    assert rest.fetch("/api/v1/subscriptions?client_id=nobody").json["subscriptions"] == []


def test_retained_messages_are_listed_read_and_deleted(rest: Rest, connect: Connect) -> None:
    client = connect()
    for number in range(5):
        client.wire.publish(f"kept/{number}", b"v%d" % number, qos=1, retain=True)
    page = rest.fetch("/api/v1/retained?filter=kept/%2B&limit=3").json
    assert [message["topic"] for message in page["messages"]] == ["kept/0", "kept/1", "kept/2"]
    cursor = quote(page["next"], safe="")
    rest_of = rest.fetch(f"/api/v1/retained?filter=kept/%2B&limit=3&cursor={cursor}").json
    assert [message["topic"] for message in rest_of["messages"]] == ["kept/3", "kept/4"]
    path = "/api/v1/retained/kept%2F3"
    found = rest.fetch(path).json
    assert base64.b64decode(found["payload"]) == b"v3"
    assert (found["info"]["qos"], found["info"]["payload_bytes"]) == (1, 2)
    assert rest.fetch(path, method="DELETE").status == 204
    assert rest.fetch(path).status == 404
    assert rest.fetch(path, method="DELETE").status == 404
    bad = rest.fetch("/api/v1/retained?filter=a/%23/b")
    assert (bad.status, "'#' must stand alone" in bad.json["message"]) == (400, True)


def test_retained_messages_of_long_topics_are_listed_page_by_page(
    rest: Rest, connect: Connect
) -> None:
    topics = [f"long/{'x' * 600}/{number}" for number in range(3)] + ["longer/1", "longer/2"]
    client = connect()
    for topic in topics:
        client.wire.publish(topic, b"kept", qos=1, retain=True)
    found: list[str] = []
    cursor = "long"
    while len(found) < len(topics):
        page = rest.fetch(f"/api/v1/retained?limit=1&cursor={quote(cursor, safe='')}").json
        found += [message["topic"] for message in page["messages"]]
        cursor = page["next"]
    assert sorted(found) == topics
    assert found[3:] == topics[3:]


def test_a_ban_disconnects_and_refuses_until_it_ends(
    fresh_broker: BrokerFactory, connect: Connect
) -> None:
    broker = fresh_broker()
    rest = Rest(broker)
    client = connect("banned", of=broker)
    made = rest.fetch("/api/v1/bans/clientid/banned?seconds=60", method="PUT")
    assert (made.status, made.json["kind"], made.json["value"]) == (200, "clientid", "banned")
    client.wire.expect_disconnect(0x8A)
    assert [ban["value"] for ban in rest.fetch("/api/v1/bans").json["bans"]] == ["banned"]
    assert rest.fetch("/api/v1/bans/clientid/banned", method="DELETE").status == 204
    connect("banned", of=broker)
    assert rest.fetch("/api/v1/bans/clientid/banned", method="DELETE").status == 404
    assert rest.fetch("/api/v1/bans/ip/nowhere", method="PUT").status == 400


def test_permissions_can_be_asked_for(fresh_broker: BrokerFactory) -> None:
    rest = Rest(fresh_broker())
    ask = "/api/v1/acl/test?client_id=me&topic="
    assert rest.fetch(f"{ask}any/topic&action=publish").json == {"allowed": True, "platform": True}
    assert not rest.fetch(f"{ask}$SYS/x&action=publish").json["allowed"]
    assert rest.fetch(f"{ask}$SDV-FANOUT/x&action=publish").json["allowed"]
    far = rest.fetch(f"{ask}$SDV-FANOUT/x&action=publish&ip=10.0.0.1").json
    assert far == {"allowed": False, "platform": False}
    assert rest.fetch(f"{ask}$ECQ/me/%23&action=subscribe").json["allowed"]
    assert not rest.fetch(f"{ask}$ECQ/you/%23&action=subscribe").json["allowed"]
    for wrong in ("a/%23&action=publish", "a&action=read", "a/%23/b&action=subscribe"):
        assert rest.fetch(ask + wrong).status == 400
    nowhere = rest.fetch(f"{ask}a&action=publish&ip=nowhere")
    assert nowhere.status == 400
    assert nowhere.json["message"] == "ip is 'nowhere', may be an IPv4 or IPv6 address"


def test_settings_are_shown_without_secrets(fresh_broker: BrokerFactory) -> None:
    rest = Rest(fresh_broker({"auth.jwt.secret": "x" * 40, "mqtt.receive_max": 7}))
    in_force = rest.fetch("/api/v1/settings").json
    shown = in_force["settings"]
    assert shown["mqtt"]["receive_max"] == 7
    assert "secret" not in shown["auth"]["jwt"]
    assert in_force["origins"]["mqtt.receive_max"] == "--set"
    assert "mqtt.inflight_max" not in in_force["origins"]


def test_clients_are_found_by_a_part_of_their_name(rest: Rest, connect: Connect) -> None:
    for name in ("Find-one", "find-two", "hidden"):
        connect(name)
    ask = "/api/v1/clients?search=FIND-"
    assert [one["client_id"] for one in rest.fetch(ask).json["items"]] == ["Find-one", "find-two"]
    first = rest.fetch(f"{ask}&limit=1").json
    then = rest.fetch(f"{ask}&limit=1&cursor={first['next_cursor']}").json
    assert [one["client_id"] for one in then["items"]] == ["find-two"]
    assert then["next_cursor"] is None
    by_address = rest.fetch("/api/v1/clients?search=127.0.0.1&limit=1000").json["items"]
    assert "hidden" in [one["client_id"] for one in by_address]


def test_a_single_node_says_that_it_is_no_cluster(rest: Rest) -> None:
    for method, path in (
        ("GET", ""),
        ("GET", "/members"),
        ("GET", "/shards"),
        ("POST", "/transfer"),
        ("POST", "/rebalance"),
        ("POST", "/drain"),
        ("POST", "/check"),
        ("DELETE", "/members/a"),
    ):
        answer = rest.fetch(f"/api/v1/cluster{path}", method=method)
        assert (answer.status, answer.json["message"]) == (
            404,
            "this broker is not part of a cluster",
        )
