from __future__ import annotations

import socket
from urllib.parse import quote

import pytest

from tests.api.fake_broker import CLIENT_IDS
from tests.api.live import Answer, LiveAdmin


def assert_problem(answer: Answer, status: int, code: str) -> None:
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json) == {"code", "message"}
    assert answer.json["code"] == code
    assert answer.json["message"]


def test_status_says_what_runs_where(admin: LiveAdmin) -> None:
    body = admin.fetch("/api/v1/status").json
    assert body["version"] == "1.2.3"
    assert body["addresses"] == {"mqtt": "mqtt://127.0.0.1:1883"}
    assert body["connections"] == 9


def test_pages_hold_every_client_once(admin: LiveAdmin) -> None:
    names: list[str] = []
    cursor: str | None = ""
    pages = 0
    while cursor is not None:
        page = admin.fetch(f"/api/v1/clients?limit=2&cursor={quote(cursor, safe='')}").json
        assert len(page["items"]) <= 2
        names += [item["client_id"] for item in page["items"]]
        cursor = page["next_cursor"]
        pages += 1
    assert names == sorted(CLIENT_IDS)
    assert pages == 5


@pytest.mark.parametrize("client_id", CLIENT_IDS)
def test_a_client_is_found_whatever_its_id_holds(admin: LiveAdmin, client_id: str) -> None:
    path = f"/api/v1/clients/{quote(client_id, safe='')}"
    assert admin.fetch(path).json["client_id"] == client_id
    gone = admin.fetch(path, method="DELETE")
    assert (gone.status, gone.body) == (204, b"")
    assert client_id not in admin.broker.clients
    assert len(admin.broker.clients) == len(CLIENT_IDS) - 1
    assert_problem(admin.fetch(path), 404, "NOT_FOUND")
    assert_problem(admin.fetch(path, method="DELETE"), 404, "NOT_FOUND")


def test_a_slash_that_is_not_encoded_is_another_path(admin: LiveAdmin) -> None:
    assert_problem(admin.fetch("/api/v1/clients/a/b"), 404, "NOT_FOUND")
    assert_problem(admin.fetch("/api/v1/clients/"), 404, "NOT_FOUND")


def test_letters_of_a_path_may_be_encoded(admin: LiveAdmin) -> None:
    assert admin.fetch("/api/v1/%73tatus").status == 200


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/", 404, "NOT_FOUND"),
        ("/docs", 404, "NOT_FOUND"),
        ("/api/v1/nothing", 404, "NOT_FOUND"),
        ("/api/v1/clients/nobody", 404, "NOT_FOUND"),
        ("/api/v1/clients/%ff", 400, "BAD_REQUEST"),
        ("/api/v1/clients?limit=0", 400, "BAD_REQUEST"),
        ("/api/v1/clients?limit=1001", 400, "BAD_REQUEST"),
        ("/api/v1/clients?limit=many", 400, "BAD_REQUEST"),
        (f"/api/v1/clients/{'%C3%BC' * 32767}", 404, "NOT_FOUND"),
    ],
)
def test_errors_have_one_shape(admin: LiveAdmin, path: str, status: int, code: str) -> None:
    assert_problem(admin.fetch(path), status, code)


def test_a_validation_error_names_the_parameter_its_value_and_the_limit(admin: LiveAdmin) -> None:
    message = admin.fetch("/api/v1/clients?limit=1001").json["message"]
    assert message == "limit = '1001': Input should be less than or equal to 1000"
    message = admin.fetch(f"/api/v1/clients?limit={'9' * 5000}").json["message"]
    assert len(message) < 300
    assert admin.fetch("/api/v1/acl/test?topic=a").json["message"] == "action: Field required"


def test_a_method_that_is_not_there_is_told_which_are(admin: LiveAdmin) -> None:
    answer = admin.fetch("/api/v1/clients/a", method="PUT")
    assert_problem(answer, 405, "METHOD_NOT_ALLOWED")
    assert answer.headers["allow"] == "DELETE, GET"


def test_bytes_that_are_not_http_get_the_same_shape(admin: LiveAdmin) -> None:
    with socket.create_connection(("127.0.0.1", admin.port), timeout=10) as sock:
        sock.sendall(b"\x10\x0c\x00\x04MQTT\x05\x02\x00\x00\x00\r\n\r\n")
        answer = b""
        while part := sock.recv(4096):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b" 400 " in head.splitlines()[0]
    assert b'{"code":"BAD_REQUEST","message":"' in body


def test_a_mistake_in_the_broker_is_500_and_tells_no_secret(admin: LiveAdmin) -> None:
    def fail(_args: dict[str, object]) -> object:
        raise RuntimeError("secret detail")

    admin.broker.operations["status"] = fail  # type: ignore[assignment]
    answer = admin.fetch("/api/v1/status")
    assert_problem(answer, 500, "INTERNAL_ERROR")
    assert b"secret" not in answer.body


def test_without_a_broker_calls_are_503_and_work_again_after(admin: LiveAdmin) -> None:
    assert admin.fetch("/api/v1/status").status == 200
    admin.broker_down()
    assert_problem(admin.fetch("/api/v1/status"), 503, "BROKER_DOWN")
    assert_problem(admin.fetch("/metrics"), 503, "BROKER_DOWN")
    admin.broker_up()
    assert admin.fetch("/api/v1/status").status == 200


def test_the_docs_page_needs_nothing_from_elsewhere(admin: LiveAdmin) -> None:
    answer = admin.fetch("/api/docs")
    assert answer.status == 200
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    page = answer.body.decode()
    assert "GET /api/v1/clients/{client_id}" in page
    assert "http" not in page.lower()
    assert "<script" not in page
