"""Who gets into the console, from where, and how a session ends. Most of it needs no browser."""

from __future__ import annotations

import http.client
import os
import signal
import socket
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from queuelake.admin.console import mount
from queuelake.admin.console.session import COOKIE, SECRET_NAME
from queuelake.apikey import add_key, remove_key
from tests.api.live import LiveAdmin, fetch
from tests.console.browser import Console, log_in, session_cookie
from tests.harness.broker import BrokerProcess
from tests.harness.processes import children

SOCKET = "/console/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
HTML = {"Accept": "text/html"}
PAGES = [
    *("/console/", "/console/queues", "/console/queue?name=a", "/console/message-queue?name=a"),
    *("/console/clients", "/console/audit", "/console/users", "/console/nothing"),
]


def upgrade(port: int, path: str, **headers: str) -> int:
    """The status of the answer to a WebSocket handshake."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=15)
    sent = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    connection.request("GET", path, headers=sent | headers)
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.fixture
def port(console_broker: BrokerProcess) -> int:
    return console_broker.http_port


@pytest.mark.parametrize("path", PAGES)
def test_no_page_answers_without_a_session(port: int, path: str) -> None:
    answer = fetch(port, path, headers=HTML)
    assert answer.status == 303
    assert answer.headers["location"].startswith("/console/login?next=")
    assert fetch(port, path).status == 401


@pytest.mark.parametrize("path", ["/console/_nicegui/3.18.0/static/nicegui.js", SOCKET])
def test_no_asset_answers_without_a_session(port: int, path: str) -> None:
    assert fetch(port, path).status == 401


def test_a_cookie_is_for_this_site_and_no_script(console: Console, port: int) -> None:
    plain = log_in(port, console.key("viewer")).headers["set-cookie"].lower()
    assert {"httponly", "samesite=strict", "path=/console"} <= set(plain.split("; "))
    assert "secure" not in plain
    secure = log_in(port, console.key("viewer"), Origin=f"https://127.0.0.1:{port}")
    assert "secure" in secure.headers["set-cookie"].lower()
    secret = console.broker.data_dir / SECRET_NAME
    assert secret.stat().st_mode & 0o777 == 0o600


def test_a_forged_cookie_opens_nothing(console: Console, port: int) -> None:
    good = session_cookie(port, console.key("viewer"))
    assert fetch(port, "/console/queues", headers=HTML | {"Cookie": good}).status == 200
    body, _, signature = good.removeprefix(f"{COOKIE}=").partition(".")
    for forged in (f"{body}.", f"{body}x.{signature}", f"{body}.{signature[::-1]}", "x", "."):
        answer = fetch(port, "/console/queues", headers=HTML | {"Cookie": f"{COOKIE}={forged}"})
        assert answer.status == 303


def test_a_login_from_the_page_of_another_site_is_refused(console: Console, port: int) -> None:
    key = console.key("viewer")
    for origin in (
        "http://evil.example",
        "null",
        f"http://127.0.0.1.evil.example:{port}",
        "",
        "http://[",
    ):
        answer = log_in(port, key, Origin=origin)
        assert answer.status == 403
        assert "set-cookie" not in answer.headers


def test_a_websocket_needs_a_session_and_our_own_page(console: Console, port: int) -> None:
    cookie = session_cookie(port, console.key("viewer"))
    ours = f"http://127.0.0.1:{port}"
    assert upgrade(port, SOCKET, Cookie=cookie, Origin=ours) == 101
    assert upgrade(port, SOCKET, Cookie=cookie, Origin="http://evil.example") == 403
    assert upgrade(port, SOCKET, Cookie=cookie) == 403
    assert upgrade(port, SOCKET, Origin=ours) == 403


@pytest.mark.parametrize("path", ["/metrics", "/api/v1/queues", "/healthz", "/console/queues"])
def test_no_other_path_takes_a_websocket(console: Console, port: int, path: str) -> None:
    cookie = session_cookie(port, console.key("admin"))
    headers = {"Cookie": cookie, "Origin": f"http://127.0.0.1:{port}"}
    key = {"Authorization": f"Bearer {console.key('admin')}"}
    assert upgrade(port, path, **headers, **key) == 403


def test_long_polling_is_refused(console: Console, port: int) -> None:
    cookie = session_cookie(port, console.key("admin"))
    path = SOCKET.replace("websocket", "polling")
    assert fetch(port, path, headers={"Cookie": cookie}).status == 400


def test_after_the_login_nobody_is_sent_to_another_host(console: Console, port: int) -> None:
    cookie = session_cookie(port, console.key("viewer"))
    for wanted in ("http://evil.example/console/", "//evil.example/console/", "/console/\\evil"):
        path = "/console/login?" + urlencode({"next": wanted})
        answer = fetch(port, path, headers=HTML | {"Cookie": cookie})
        assert answer.headers["location"] == "/console/"


def test_pages_stay_out_of_frames_and_on_this_host(console: Console, port: int) -> None:
    cookie = session_cookie(port, console.key("viewer"))
    for answer in (
        fetch(port, "/console/login", headers=HTML),
        fetch(port, "/console/queues", headers=HTML | {"Cookie": cookie}),
    ):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] in ("no-referrer", "same-origin")


def test_a_wrong_key_is_refused_late_and_said(console: Console) -> None:
    page = console.blank()
    console.forgiven = ("401",)
    console.log_in(page, "nobody:nothing")
    expect(page.get_by_role("alert")).to_have_text("the API key is wrong")
    assert page.get_by_label("API key or user").input_value() == "nobody"
    console.log_in(page, console.key("viewer"))
    page.get_by_role("heading", name="Overview").wait_for()


def test_the_whole_key_may_go_into_the_first_field(port: int, console: Console) -> None:
    body = urlencode({"name": console.key("admin"), "secret": ""}).encode()
    origin = {"Origin": f"http://127.0.0.1:{port}"}
    answer = fetch(port, "/console/login", method="POST", headers=origin, body=body)
    assert answer.status == 303


def test_who_logs_out_is_out(console: Console, port: int) -> None:
    page = console("viewer")
    [cookie] = page.context.cookies()
    page.get_by_role("button", name="Account").click()
    page.get_by_role("menuitem", name="Log out").click()
    page.get_by_role("button", name="Log in").wait_for()
    again = {"Cookie": f"{cookie['name']}={cookie['value']}"}
    assert fetch(port, "/console/", headers=HTML | again).status == 303


def test_a_removed_key_ends_its_session(console: Console) -> None:
    data_dir = console.broker.data_dir
    page = console.blank()
    console.log_in(page, add_key(data_dir, "guest", "viewer"))
    page.get_by_role("heading", name="Overview").wait_for()
    remove_key(data_dir, "guest")
    page.get_by_role("button", name="Log in").wait_for()


def test_a_role_which_changed_ends_the_session_before_anything_is_done(
    console: Console, rest: Any
) -> None:
    data_dir = console.broker.data_dir
    assert rest.put("door/fallen", partitions=1).status == 201
    page = console.blank()
    key = add_key(data_dir, "fallen", "operator")
    console.log_in(page, key)
    page.get_by_role("heading", name="Overview").wait_for()
    page.goto(f"{console.url}/queue?name=door/fallen")
    page.get_by_role("button", name="Publish").click()
    page.get_by_label("Payload").fill("too late")
    lowered = data_dir / "api-keys"
    # The page asks each second whether its session stands: stopped, it learns of it with the click.
    (admin,) = children(console.broker.pid, "queuelake.admin")
    os.kill(admin, signal.SIGSTOP)
    try:
        lowered.write_text(lowered.read_text().replace("fallen:operator:", "fallen:viewer:"))
        page.get_by_role("dialog").get_by_role("button", name="Publish").click()
    finally:
        os.kill(admin, signal.SIGCONT)
    page.get_by_role("button", name="Log in").wait_for()
    assert rest.queue("door/fallen", "/stats").json["depth"] == 0
    remove_key(data_dir, "fallen")


def test_a_viewer_is_offered_no_change(console: Console, rest: Any) -> None:
    assert rest.put("door/viewed", partitions=1).status == 201
    page = console("viewer", "/queue?name=door/viewed")
    page.get_by_role("heading", name="$queue/door/viewed").wait_for()
    for action in ("Publish", "Settings", "More"):
        assert page.get_by_role("button", name=action).count() == 0


# Without a broker of its own


def test_without_the_extra_the_page_says_what_to_install(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mount.importlib.util, "find_spec", lambda _name: None)
    admin = LiveAdmin(tmp_path)
    try:
        answer = fetch(admin.port, "/console", headers=HTML)
        assert answer.status == 501
        assert b"pip install" in answer.body
        assert b"queuelake[console]" in answer.body
        assert admin.fetch("/api/v1/status").status == 200
    finally:
        admin.close()


def test_a_console_which_is_off_is_a_path_like_any_other(tmp_path: Any) -> None:
    process = BrokerProcess(tmp_path, {"console.enabled": False}).start()
    try:
        assert fetch(process.http_port, "/console/login").status == 401
    finally:
        process.stop()


def test_too_many_wrong_logins_are_refused_at_once(console: Console, port: int) -> None:
    body = urlencode({"name": "nobody:x", "secret": ""}).encode()
    head = (
        f"POST /console/login HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Origin: http://127.0.0.1:{port}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(80)]
    for one in sockets:
        one.sendall(head.encode() + body)
    answers = [one.recv(64) for one in sockets]
    for one in sockets:
        one.close()
    assert any(b" 429 " in answer for answer in answers)
    assert any(b" 401 " in answer for answer in answers)
